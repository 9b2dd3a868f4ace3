"""CRC-32C by PyPI's crc32c where it can be imported, else in Python.

``crc32c(data, value=0)`` is the checksum of ``data`` going on from ``value``, and ``piece_bytes`` is as much
as one call should be given so that it takes about a millisecond at most.
"""

from __future__ import absolute_import

try:
    from crc32c import crc32c

    piece_bytes = 1024 * 1024
except ImportError:
    from kiel.protocol.records.crc32c_pure import crc32c

    piece_bytes = 64 * 1024

__all__ = ("crc32c", "piece_bytes")
