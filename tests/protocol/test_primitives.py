import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiel.exc import ProtocolError
from kiel.protocol import primitives
from kiel.protocol.primitives import (
    Array,
    Boolean,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Nullable,
    Records,
    Span,
    String,
    UInt16,
    UInt32,
    Uuid,
)
from tests.support.messages import VALUES


def write(kind, value, compact=False, nullable=False):
    out = []
    kind.writer(compact, nullable, "field")(out, value)
    return b"".join(out)


def read(kind, data, compact=False, nullable=False, at=0):
    return kind.reader(compact, nullable)(data, at, len(data))


KNOWN = [
    (Boolean, True, b"\x01", b"\x01"),
    (Boolean, False, b"\x00", b"\x00"),
    (Int8, -2, b"\xfe", b"\xfe"),
    (Int16, -2, b"\xff\xfe", b"\xff\xfe"),
    (UInt16, 65534, b"\xff\xfe", b"\xff\xfe"),
    (Int32, 1, b"\x00\x00\x00\x01", b"\x00\x00\x00\x01"),
    (UInt32, 4294967295, b"\xff\xff\xff\xff", b"\xff\xff\xff\xff"),
    (Int64, -1, b"\xff" * 8, b"\xff" * 8),
    (Float64, 1.0, b"\x3f\xf0" + b"\0" * 6, b"\x3f\xf0" + b"\0" * 6),
    (Uuid, b"0123456789abcdef", b"0123456789abcdef", b"0123456789abcdef"),
    (String, u"", b"\x00\x00", b"\x01"),
    (String, u"\u00e9\u20ac", b"\x00\x05\xc3\xa9\xe2\x82\xac", b"\x06\xc3\xa9\xe2\x82\xac"),
    (String, u"a" * 200, b"\x00\xc8" + b"a" * 200, b"\xc9\x01" + b"a" * 200),
    (Bytes, b"\x00\xff", b"\x00\x00\x00\x02\x00\xff", b"\x03\x00\xff"),
    (Records, b"\x00\xff", b"\x00\x00\x00\x02\x00\xff", b"\x03\x00\xff"),
]


@pytest.mark.parametrize("kind, value, fixed, compact", KNOWN, ids=lambda part: repr(part)[:20])
def test_each_type_has_its_bytes(kind, value, fixed, compact):
    assert write(kind, value) == fixed
    assert write(kind, value, compact=True) == compact
    assert read(kind, fixed) == (value, len(fixed))
    assert read(kind, compact, compact=True) == (value, len(compact))
    assert type(read(kind, fixed)[0]) is (Span if kind is Records else type(value))


@pytest.mark.parametrize("kind, fixed", [(String, b"\xff\xff"), (Bytes, b"\xff" * 4), (Records, b"\xff" * 4)])
def test_null_is_a_length_of_minus_one_and_only_where_it_may_be(kind, fixed):
    assert write(kind, None, nullable=True) == fixed
    assert write(kind, None, compact=True, nullable=True) == b"\x00"
    assert read(kind, fixed, nullable=True) == (None, len(fixed))
    assert read(kind, b"\x00", compact=True, nullable=True) == (None, 1)
    for data, compact in ((fixed, False), (b"\x00", True)):
        with pytest.raises(ProtocolError, match="null"):
            read(kind, data, compact)
        with pytest.raises(ProtocolError, match="field is to be .*, not NoneType"):
            write(kind, None, compact)


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("kind", sorted(VALUES, key=repr), ids=repr)
@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_what_is_written_is_read_again(kind, compact, data):
    """Invariant: for every type, reading what was written gives an equal value and ends where that ended; it
    takes no fewer bytes than the type says is the least."""
    value = data.draw(VALUES[kind])
    before, after = data.draw(st.binary(max_size=3)), data.draw(st.binary(max_size=3))
    written = write(kind, value, compact)
    assert len(written) >= kind.least(compact)
    start, end = len(before), len(before) + len(written)
    assert read(kind, before + written + after, compact, at=start) == (value, end)


@pytest.mark.parametrize("kind, value, fixed, compact", KNOWN, ids=lambda part: repr(part)[:20])
def test_what_is_cut_off_says_where(kind, value, fixed, compact):
    for written, is_compact in ((fixed, False), (compact, True)):
        for length in range(len(written)):
            with pytest.raises(ProtocolError) as caught:
                read(kind, b"zz" + written[:length], is_compact, at=2)
            assert 2 <= caught.value.position <= 2 + length


@pytest.mark.parametrize(
    "kind, value",
    [
        (Boolean, 1), (Boolean, None), (Boolean, u"x"),
        (Int8, 128), (Int8, -129), (Int16, 32768), (UInt16, -1), (UInt32, -1),
        (Int32, 2 ** 31), (Int64, 2 ** 63), (Int32, 2 ** 200),
        (Int32, u"1"), (Int32, None), (Int32, 1.5), (Int32, b"1"),
        (Float64, u"1"), (Float64, None),
        (Uuid, b"short"), (Uuid, u"0123456789abcdef"), (Uuid, None),
        (String, b"\xff\xfe"), (String, 1), (String, u"a" * 32768),
        (Bytes, u"text"), (Bytes, 1), (Bytes, [b"x"]),
        (Records, u"text"), (Records, [u"text"]), (Records, 1),
    ],
    ids=lambda part: repr(part)[:20],
)
def test_a_value_that_cannot_be_written_is_refused_by_name(kind, value):
    for compact in (False, True):
        with pytest.raises(ProtocolError, match="^field "):
            write(kind, value, compact)


def test_a_refusal_does_not_show_the_value_but_a_number():
    with pytest.raises(ProtocolError) as caught:
        write(Bytes, u"secret")
    assert "secret" not in str(caught.value)
    with pytest.raises(ProtocolError, match="field is out of range for Int8: 200"):
        write(Int8, 200)


@pytest.mark.parametrize(
    "kind, data, compact",
    [
        (String, b"\xff\xfe", False),
        (String, b"\x80\x00", False),
        (Bytes, b"\xff\xff\xff\xfe", False),
        (Bytes, b"\x80\x00\x00\x00", False),
        (Bytes, b"\x7f\xff\xff\xff", False),
        (Bytes, b"\xff\xff\xff\xff\x0f", True),
        (Records, b"\x7f\xff\xff\xffabc", False),
    ],
)
def test_lengths_that_cannot_be(kind, data, compact):
    with pytest.raises(ProtocolError):
        read(kind, data, compact, nullable=True)


def test_text_that_is_not_utf8_says_where():
    with pytest.raises(ProtocolError, match="UTF-8") as caught:
        read(String, b"\x00\x04ab\xffd")
    assert caught.value.position == 4


def test_a_native_string_is_text():
    assert write(String, "plain") == b"\x00\x05plain"


VARINTS = [
    (0, b"\x00"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02"), (2 ** 32 - 1, b"\xff" * 4 + b"\x0f")
]


@pytest.mark.parametrize("value, encoded", VARINTS)
def test_varints(value, encoded):
    assert primitives.uvarint(value) == encoded
    assert primitives.read_uvarint(b"x" + encoded + b"y", 1, len(encoded) + 2) == (value, len(encoded) + 1)
    for length in range(len(encoded)):
        with pytest.raises(ProtocolError, match="cut off"):
            primitives.read_uvarint(encoded, 0, length)


@pytest.mark.parametrize("encoded", [b"\xff" * 4 + b"\x10", b"\x80" * 5 + b"\x01", b"\xff" * 20])
def test_varints_over_32_bits(encoded):
    with pytest.raises(ProtocolError, match="32 bits"):
        primitives.read_uvarint(encoded, 0, len(encoded))


def test_records_are_a_span_of_the_data_itself():
    data = b"\x00\x00\x00\x03abc"
    span, _ = read(Records, data)
    assert span.data is data
    assert (span.start, span.end, len(span), span.tobytes()) == (4, 7, 3, b"abc")
    assert span == b"abc" and span == Span(b"xabcx", 1, 4) and span != b"abd" and span != Span(b"ab", 0, 2)
    assert span != u"abc"
    assert repr(span) == "<Span of 3 bytes>"


@pytest.mark.parametrize(
    "value", [b"abc", bytearray(b"abc"), memoryview(b"abc"), Span(b"xabc", 1, 4), [b"a", b"bc"], []]
)
def test_records_are_written_from_all_that_holds_bytes(value):
    assert write(Records, value) == (b"\x00\x00\x00\x03abc" if value else b"\x00\x00\x00\x00")


@pytest.mark.parametrize("kind", [Int32, Boolean, Uuid, Nullable(String)])
def test_numbers_cannot_be_null(kind):
    with pytest.raises(TypeError):
        Nullable(kind)


def test_types_have_names():
    assert repr(Array(Int32)) == "Array(Int32)"
    assert repr(Nullable(String)) == "Nullable(String)"
