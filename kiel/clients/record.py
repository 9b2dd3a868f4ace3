"""What consumers and producers hand to the application beside plain values."""
import collections

Record = collections.namedtuple(
    "Record", ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
)
Record.__doc__ = """A record as it was read.

``timestamp`` is in milliseconds since 1970 (UTC) and ``timestamp_type`` "create" (the producer's clock) or "append"
(the broker's); ``key`` is bytes or None; ``value`` is deserialized; ``headers`` is a list of (str, bytes or None).
"""

RecordMetadata = collections.namedtuple("RecordMetadata", ("topic", "partition", "offset", "timestamp"))
RecordMetadata.__doc__ = """Where an acknowledged record is.

``offset`` is -1 where the broker doesn't tell (``required_acks=0``); ``timestamp`` is in milliseconds since 1970 (UTC).
"""
