import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiel import exc
from kiel.protocol.records import varints


@pytest.mark.parametrize(
    "number, encoded",
    [
        (0, b"\x00"),
        (-1, b"\x01"),
        (1, b"\x02"),
        (63, b"\x7e"),
        (-64, b"\x7f"),
        (64, b"\x80\x01"),
        (8191, b"\xfe\x7f"),
        (8192, b"\x80\x80\x01"),
        (2**31 - 1, b"\xfe\xff\xff\xff\x0f"),
        (-(2**31), b"\xff\xff\xff\xff\x0f"),
        (2**63 - 1, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        (-(2**63), b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
    ],
)
def test_known_encodings(number, encoded):
    assert varints.encode(number) == encoded
    assert varints.decode(bytearray(encoded), 0, varints.INT64_BYTES) == (number, len(encoded))


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3))
def test_every_integer_of_64_bits_comes_back(number, before):
    octets = bytearray(before + varints.encode(number) + b"\xff")
    assert varints.decode(octets, len(before), varints.INT64_BYTES) == (number, len(octets) - 1)


@pytest.mark.parametrize(
    "encoded, most",
    [
        (b"\xff" * 5, varints.INT32_BYTES),
        (b"\xff\xff\xff\xff\x10", varints.INT32_BYTES),
        (b"\xff" * 10, varints.INT64_BYTES),
        (b"\xff" * 9 + b"\x02", varints.INT64_BYTES),
    ],
)
def test_too_long_is_an_error(encoded, most):
    with pytest.raises(exc.ProtocolError):
        varints.decode(bytearray(encoded + b"\0" * 10), 0, most)


def test_the_end_of_the_bytes_is_an_index_error():
    with pytest.raises(IndexError):
        varints.decode(bytearray(b"\x80"), 0)
