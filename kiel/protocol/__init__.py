"""Kafka's wire format: bytes from messages and messages from bytes, with no socket, clock or IOLoop.

:mod:`~kiel.protocol.conversation` pairs requests with responses, :mod:`~kiel.protocol.errors` is the table
of error codes, :mod:`~kiel.protocol.records` reads and writes batches of records, and there is a module for
each API.
"""
