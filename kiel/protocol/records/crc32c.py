"""CRC-32C (Castagnoli), by PyPI's crc32c where it can be imported, else by a table."""

from __future__ import absolute_import

import six

try:
    from crc32c import crc32c as _compiled
except ImportError:
    _compiled = None

_POLYNOMIAL = 0x82F63B78  # its bits in the order in which the checksum shifts

# How much to checksum at once, so that either way takes about a millisecond.
_COMPILED_PIECE_BYTES = 1024 * 1024
_TABLE_PIECE_BYTES = 16 * 1024


def _make_table():
    table = []
    for index in range(256):
        for _ in range(8):
            index = index >> 1 ^ (_POLYNOMIAL if index & 1 else 0)
        table.append(index)
    return tuple(table)


_TABLE = _make_table()


def by_table(data, value=0):
    """The checksum of ``data``, going on from ``value``; slow, but needs nothing."""
    table = _TABLE
    value ^= 0xFFFFFFFF
    for octet in six.iterbytes(data):
        value = table[(value ^ octet) & 255] ^ value >> 8
    return value ^ 0xFFFFFFFF


crc32c = _compiled or by_table
piece_bytes = _COMPILED_PIECE_BYTES if _compiled else _TABLE_PIECE_BYTES
