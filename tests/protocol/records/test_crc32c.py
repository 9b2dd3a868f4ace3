import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiel.protocol.records import crc32c, crc32c_pure

both = pytest.mark.parametrize("checksum", [crc32c.crc32c, crc32c_pure.crc32c], ids=["chosen", "pure"])


@both
@pytest.mark.parametrize(
    "data, expected",
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        # RFC 3720 (iSCSI), B.4
        (b"\x00" * 32, 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(bytearray(range(32))), 0x46DD794E),
        (bytes(bytearray(reversed(range(32)))), 0x113FDB5C),
    ],
)
def test_known_vectors(checksum, data, expected):
    assert checksum(data) == expected


# Around each length at which the pure one folds once more, and past its longest piece.
FOLDS = [length + more for length in (36, 68, 132, 260, 1028, 8196, 16388, 32776) for more in (-1, 0, 1, 5)]


@pytest.mark.parametrize("length", FOLDS)
def test_folding_is_the_table(length):
    data = bytes(bytearray((index * 7 + (index >> 8)) & 255 for index in range(length)))
    expected = crc32c_pure._by_table(data, 0xFFFFFFFF) ^ 0xFFFFFFFF
    assert crc32c_pure.crc32c(data) == expected
    assert crc32c.crc32c(data) == expected


# Invariant: a checksum in pieces is the checksum of the whole, in either implementation.
@given(st.lists(st.binary(max_size=200), max_size=5))
def test_pieces(pieces):
    whole = crc32c_pure.crc32c(b"".join(pieces))
    for checksum in (crc32c.crc32c, crc32c_pure.crc32c):
        value = 0
        for piece in pieces:
            value = checksum(piece, value)
        assert value == whole
