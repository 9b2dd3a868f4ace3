import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiel import compression, exc

GZIP = compression.GZIP
LIMIT = 1000000


# Invariant: what is compressed comes back, at any level, also in several members.
@settings(deadline=None)
@given(st.lists(st.binary(max_size=2000), min_size=1, max_size=4), st.sampled_from([None, -1, 1, 6, 9]))
def test_round_trip(members, level):
    data = b"".join(compression.compress(GZIP, member, level) for member in members)
    assert compression.decompress(GZIP, data, LIMIT) == b"".join(members)


def test_members_of_every_length_around_a_chunk():
    noise = os.urandom(16384)
    for length in list(range(16340, 16384)) + [0, 1]:
        data = compression.compress(GZIP, noise[:length]) + compression.compress(GZIP, b"next")
        assert compression.decompress(GZIP, data, LIMIT) == noise[:length] + b"next"


@pytest.mark.parametrize("plain", [b"", b"a", b"abc" * 1000, os.urandom(40000), b"\0" * 600000])
def test_cut_short_anywhere(plain):
    data = compression.compress(GZIP, plain)
    assert compression.decompress(GZIP, data, LIMIT) == plain
    for end in list(range(min(40, len(data)))) + list(range(max(len(data) - 40, 0), len(data))):
        with pytest.raises(exc.ProtocolError):
            compression.decompress(GZIP, data[:end], LIMIT)
        with pytest.raises(exc.ProtocolError):
            compression.decompress(GZIP, data + data[:end] if end else b"", LIMIT)


@pytest.mark.parametrize("garbage", [b"\0", b"\x1f", b"garbage", b"\0" * 100, b"\x1f\x8b\x08"])
def test_trailing_garbage(garbage):
    with pytest.raises(exc.ProtocolError):
        compression.decompress(GZIP, compression.compress(GZIP, b"plain") + garbage, LIMIT)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_plain_bytes_or_a_protocol_error(data):
    for packed in (data, b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + data):
        try:
            assert type(compression.decompress(GZIP, packed, LIMIT)) is bytes
        except exc.ProtocolError:
            pass


def test_part_of_the_data():
    packed = compression.compress(GZIP, b"plain")
    pieces = compression.pieces(GZIP, b"before" + packed + b"after", LIMIT, 6, 6 + len(packed))
    assert b"".join(pieces) == b"plain"


def test_the_limit_is_exact():
    data = compression.compress(GZIP, b"\0" * 700000)
    assert len(compression.decompress(GZIP, data, 700000)) == 700000
    with pytest.raises(exc.ProtocolError) as caught:
        compression.decompress(GZIP, data, 699999)
    assert "limit of 699999 bytes" in str(caught.value)


def test_a_bomb_is_stopped_at_the_limit():
    member = compression.compress(GZIP, b"\0" * 10000000, 9)
    seen = []
    with pytest.raises(exc.ProtocolError):
        for piece in compression.pieces(GZIP, member * 1000, LIMIT):
            seen.append(len(piece))
    assert sum(seen) <= LIMIT
    assert max(seen) <= 256 * 1024


@pytest.mark.parametrize("level", [0, 10, -2, 1.0, "9", b"9"])
def test_levels_that_do_not_exist(level):
    with pytest.raises(exc.ConfigurationError) as caught:
        compression.check(GZIP, level)
    assert "compression_level" in str(caught.value)
    with pytest.raises(exc.ConfigurationError):
        compression.compress(GZIP, b"", level)


def test_levels_matter():
    plain = b"".join(b"%d of a few thousand different lines\n" % number for number in range(5000))
    assert len(compression.compress(GZIP, plain, 9)) < len(compression.compress(GZIP, plain, 1))
