"""What consumers and producers hand to the application beside plain values."""
import collections


class Record(
    collections.namedtuple(
        "Record", ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
    )
):
    """A record as it was read.

    ``timestamp`` is in milliseconds since 1970 (UTC) and ``timestamp_type`` says whose clock it is: "create" (the
    producer's) or "append" (the broker's). ``key`` is bytes or None, ``value`` is deserialized, and ``headers`` is a
    list of (text, bytes or None).
    """

    __slots__ = ()


class RecordMetadata(collections.namedtuple("RecordMetadata", ("topic", "partition", "offset", "timestamp"))):
    """Where an acknowledged record is.

    ``offset`` is -1 where the broker doesn't tell (``required_acks=0``); ``timestamp`` is in milliseconds since 1970.
    """

    __slots__ = ()
