"""CRC-32C (Castagnoli) for where no compiled one is installed: a table for short data, folding for the rest.

A checksum is the remainder of the data, read as a polynomial over bits, divided by a fixed polynomial of
degree 32. So if the first bits of the data stand for L(x) * x**m, then L(x) * (x**m mod that polynomial) may
be added (XOR) to what follows instead of them: the data gets shorter and the remainder stays. With half of
the data as L, this is some sixteen shifts and XORs of Python's long integers, which cost far less than a step
of the table for each byte.

CRC-32C is a "reflected" one: the lowest bit of the first byte is the highest power. So the first byte is
taken as the lowest byte of the integer, and the first bits of the data are its lowest bits.
"""

import binascii

import six

_POLYNOMIAL = 0x82F63B78  # without x**32; the highest bit is x**0
_ONE = 0x80000000  # the polynomial 1, as a remainder

# Lengths to which data is folded, in bytes: from 2 * n - 4 to n, so that what is folded has room in what is
# left. To begin with 36 makes the longest lengths' remainders those with few bits: fewer shifts than with
# other short ones.
_LEAST_FOLDED_BYTES = 36
_FOLDINGS = 9


def _make_table():
    table = []
    for index in range(256):
        for _ in range(8):
            index = index >> 1 ^ (_POLYNOMIAL if index & 1 else 0)
        table.append(index)
    return tuple(table)


def _by_table(data, state, table=_make_table()):
    for octet in six.iterbytes(data):
        state = table[(state ^ octet) & 255] ^ state >> 8
    return state


def _make_foldings():
    """The lengths in bits, the longest first, each with the bits that x**length has as a remainder."""
    foldings, size, done, remainder = [], _LEAST_FOLDED_BYTES, 0, _ONE
    for _ in range(_FOLDINGS):
        remainder = _by_table(b"\0" * (size - done), remainder)
        done = size
        foldings.append((size * 8, tuple(bit for bit in range(32) if remainder >> bit & 1)))
        size = 2 * size - 4
    return tuple(reversed(foldings))


_FOLDED = _make_foldings()
_MOST_FOLDED_BYTES = _FOLDED[0][0] // 4 - 4


def crc32c(data, value=0):
    """The checksum of ``data``, going on from ``value`` (the checksum of what came before it)."""
    state = value ^ 0xFFFFFFFF
    for start in range(0, len(data), _MOST_FOLDED_BYTES):
        piece = data[start : start + _MOST_FOLDED_BYTES]
        if len(piece) > _LEAST_FOLDED_BYTES:
            piece, state = _fold(piece, state), 0
        state = _by_table(piece, state)
    return state ^ 0xFFFFFFFF


def _fold(piece, state):
    number, length = _to_integer(piece) ^ state, len(piece) * 8
    for folded, bits in _FOLDED:
        if length > folded:
            first_length = length - folded
            first = number & (1 << first_length) - 1
            number >>= first_length
            shift = folded - first_length - 31
            for bit in bits:
                number ^= first << shift + bit
            length = folded
    return _to_bytes(number, length // 8)


if six.PY2:

    def _to_integer(data):
        return int(binascii.hexlify(data[::-1]), 16)

    def _to_bytes(number, size):
        return binascii.unhexlify("%0*x" % (2 * size, number))[::-1]

else:

    def _to_integer(data):
        return int.from_bytes(data, "little")

    def _to_bytes(number, size):
        return number.to_bytes(size, "little")
