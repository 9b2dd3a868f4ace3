"""Which partition a record goes to: the one that the Java client would choose for its key, else a sticky one.

Nothing here knows of a cluster; partitions are handed in as sorted lists of ids, and chance as a number.
"""
import struct

_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


def to_bytes(data):
    """`data` as bytes: text as UTF-8, bytes and bytearray as they are, None as None; else a TypeError."""
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, type(u"")):
        return data.encode("utf-8")
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data.tobytes() if isinstance(data, memoryview) else data)
    raise TypeError("has to be text, bytes, a bytearray or None, not %s" % type(data).__name__)


def murmur2(data):
    """The 32-bit MurmurHash2 of `data` (text as UTF-8) as Kafka's Java client computes it, but unsigned."""
    data = to_bytes(data)
    length = len(data)
    words = length // 4
    result = _SEED ^ length
    for word in struct.unpack_from("<%dI" % words, data):
        word = word * _MULTIPLIER & _MASK
        result = (result * _MULTIPLIER ^ (word ^ word >> 24) * _MULTIPLIER) & _MASK
    rest = bytearray(data[words * 4:])
    if rest:
        for index, octet in enumerate(rest):
            result ^= octet << 8 * index
        result = result * _MULTIPLIER & _MASK
    result = (result ^ result >> 13) * _MULTIPLIER & _MASK
    return result ^ result >> 15


def keyed(key, partitions):
    """The partition among `partitions` (a sorted list of all of the topic's) for a record with this key.

    It is the one that the Java client's default partitioner chooses, so that records of one key meet in one
    partition whoever wrote them.
    """
    return partitions[(murmur2(key) & _POSITIVE) % len(partitions)]


def sticky(current, available, chance):
    """Another of the `available` partitions than `current`, if there is one, for the next batch without keys.

    All are as likely (KIP-480, KIP-794); `chance` is a number from 0 up to 1, handed in.
    """
    others = [partition for partition in available if partition != current] or available
    return others[min(int(chance * len(others)), len(others) - 1)]
