"""The orders in which a Java program meets strings and partitions.

Java's assignors go through hash maps and sorted sets, and where several shares are equally good, it is the
order in which they come to the members that decides. To give the same answers kiel goes the same way. (Not
followed is what Java's maps do once a bucket has nine entries: the order would differ then, and so might
which of several equally good shares is chosen.)
"""
import struct

import six

_LEAST_CAPACITY = 16


def utf16(text):
    """The key by which Java sorts strings: their UTF-16 code units."""
    if isinstance(text, bytes):  # Python 2, where it is what a plain literal is
        text = text.decode("utf-8")
    return text.encode("utf-16-be")


def string_hash(text):
    """What String.hashCode gives, as an unsigned number."""
    units = utf16(text)
    value = 0
    for unit in struct.unpack(">%dH" % (len(units) // 2), units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value


def _capacity(count):
    """How many buckets a HashMap has after `count` entries were put into it one by one."""
    capacity = _LEAST_CAPACITY
    while count > capacity * 3 // 4:
        capacity *= 2
    return capacity


def _bucket(hashed, capacity):
    return (hashed ^ hashed >> 16) & (capacity - 1)


def in_map_order(names):
    """The names (no two alike, in the order in which they were put in) as a HashMap goes through them."""
    names = list(names)
    capacity = _capacity(len(names))
    return sorted(names, key=lambda name: _bucket(string_hash(name), capacity))


class PartitionSet(object):
    """A HashSet of partitions ((topic, partition) pairs), of which only the first in order is asked for."""

    def __init__(self):
        self._hashes, self._capacity, self._count = {}, _LEAST_CAPACITY, 0

    def __len__(self):
        return len(self._hashes)

    def add(self, partition):
        self._count += 1
        hashed = (31 * (31 + partition[1]) + string_hash(partition[0])) & 0xFFFFFFFF
        self._hashes[partition] = hashed, self._count
        # it grows with what it holds and never shrinks
        self._capacity = max(self._capacity, _capacity(len(self._hashes)))

    def remove(self, partition):
        del self._hashes[partition]

    def first(self):
        return min(six.iteritems(self._hashes), key=self._place)[0]

    def _place(self, item):
        hashed, count = item[1]
        return _bucket(hashed, self._capacity), count
