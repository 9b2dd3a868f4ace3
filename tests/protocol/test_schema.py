import pytest

from kiel.exc import ProtocolError
from kiel.protocol.primitives import Array, Boolean, Bytes, Int8, Int16, Int32, Int64, Nullable, String, Uuid
from kiel.protocol.schema import Field, Message, Struct


class Inner(Struct):
    parts = (
        Field("id", Int32, default=-1),
        Field("name", String),
    )


class Outer(Message):
    """Has a field of each kind of change: versions 2 and 3 are flexible."""

    api, versions, flexible_from = "outer", (0, 3), 2
    parts = (
        Field("flag", Boolean, until=1),
        Field("number", Int16),
        Field("label", String, nullable_since=1),
        Field("count", Int64, since=1, default=7),
        Field("hint", Nullable(String), since=1, ignorable=True),
        Field("numbers", Array(Int8)),
        Field("inners", Array(Inner), nullable_since=1),
        Field("ids", Array(Uuid), since=3),
        Field("extra", Int32, since=2, tag=0, default=5),
        Field("more", Array(String), since=2, tag=1),
        Field("inner", Inner, since=1, tag=3, tagged_since=3),
        Field("maybe", Nullable(Inner), since=3),
    )


def test_values_not_given_are_the_defaults():
    outer = Outer(number=3)
    assert (outer.flag, outer.number, outer.label, outer.count, outer.hint) == (False, 3, u"", 7, None)
    assert (outer.numbers, outer.inners, outer.extra, outer.inner, outer.maybe) == ([], [], 5, Inner(), None)


def test_defaults_are_not_shared():
    one, other = Outer(), Outer()
    one.numbers.append(1)
    one.inner.name = u"changed"
    assert other.numbers == [] and other.inner == Inner()
    data = Outer().encode(0)
    Outer.decode(data, 0).more.append(u"changed")
    assert Outer.decode(data, 0).more == []


def test_an_unknown_name_is_refused():
    with pytest.raises(TypeError, match="Inner has no field nmae"):
        Inner(id=1, nmae=u"x")


def test_equality_and_representation():
    assert Inner(id=1) == Inner(id=1)
    assert Inner(id=1) != Inner(id=2)
    assert Inner() != Outer() and Inner() != 1
    assert repr(Inner(id=3)) == "Inner(id=3)"
    assert repr(Outer(numbers=[1] * 9, maybe=Inner(id=2))) == "Outer(numbers=<9>, maybe=Inner(id=2))"


def test_a_representation_does_not_show_bytes():
    class Secret(Struct):
        parts = (Field("auth_bytes", Bytes), Field("token", Nullable(Bytes)))

    assert repr(Secret(auth_bytes=b"pass", token=b"word")) == "Secret(auth_bytes=<4 bytes>, token=<4 bytes>)"
    assert repr(Secret(auth_bytes=None)) == "Secret(auth_bytes=None)"


FULL = dict(number=1, label=u"ab", numbers=[-1, 2], inners=[Inner(id=3, name=u"c")])
KNOWN = {
    0: b"\x01" b"\x00\x01" b"\x00\x02ab" b"\x00\x00\x00\x02\xff\x02"
       b"\x00\x00\x00\x01\x00\x00\x00\x03\x00\x01c",
    1: b"\x01" b"\x00\x01" b"\x00\x02ab" b"\0\0\0\0\0\0\0\x09" b"\xff\xff" b"\x00\x00\x00\x02\xff\x02"
       b"\x00\x00\x00\x01\x00\x00\x00\x03\x00\x01c" b"\xff\xff\xff\xff\x00\x00",
    2: b"\x00\x01" b"\x03ab" b"\0\0\0\0\0\0\0\x09" b"\x00" b"\x03\xff\x02" b"\x02\x00\x00\x00\x03\x02c\x00"
       b"\x00\x00\x00\x08\x01\x00" b"\x01\x00\x04\x00\x00\x00\x06",
    3: b"\x00\x01" b"\x03ab" b"\0\0\0\0\0\0\0\x09" b"\x00" b"\x03\xff\x02" b"\x02\x00\x00\x00\x03\x02c\x00"
       b"\x02" + b"i" * 16 + b"\x01\x00\x00\x00\x04\x01\x00" b"\x02" b"\x01\x04\x03\x02x\x01"
       b"\x03\x06\x00\x00\x00\x08\x01\x00",
}
AT_VERSION = {
    0: dict(flag=True),
    1: dict(flag=True, count=9),
    2: dict(count=9, extra=6, inner=Inner(id=8)),
    3: dict(count=9, more=[u"x", u""], ids=[b"i" * 16], maybe=Inner(id=4), inner=Inner(id=8)),
}


@pytest.mark.parametrize("version", sorted(KNOWN))
def test_each_version_has_its_bytes(version):
    outer = Outer(**dict(FULL, **AT_VERSION[version]))
    assert outer.encode(version) == KNOWN[version]
    assert Outer.decode(KNOWN[version], version) == outer
    assert Outer.decode(b"header" + KNOWN[version], version, 6) == outer


@pytest.mark.parametrize("version", sorted(KNOWN))
def test_every_way_of_cutting_it_off_is_noticed(version):
    data = KNOWN[version]
    for length in range(len(data)):
        with pytest.raises(ProtocolError) as caught:
            Outer.decode(data[:length], version)
        error = caught.value
        assert (error.api, error.version) == ("outer", version) and 0 <= error.position <= length


def test_bytes_left_over_are_an_error():
    with pytest.raises(ProtocolError, match="outer, version 0, byte 24: 2 bytes are left over"):
        Outer.decode(KNOWN[0] + b"zz", 0)


@pytest.mark.parametrize(
    "version, values, name",
    [
        (0, dict(count=8), "Outer.count"),
        (2, dict(flag=True), "Outer.flag"),
        (1, dict(ids=[b"i" * 16]), "Outer.ids"),
        (0, dict(inner=Inner(id=1)), "Outer.inner"),
        (1, dict(extra=6), "Outer.extra"),
        (2, dict(maybe=Inner()), "Outer.maybe"),
    ],
)
def test_a_value_that_the_version_cannot_carry_is_refused(version, values, name):
    with pytest.raises(ProtocolError, match="outer, version %d: %s can't be carried" % (version, name)):
        Outer(**values).encode(version)


def test_an_ignorable_value_is_left_out():
    assert Outer(hint=u"x").encode(0) == Outer().encode(0)
    assert Outer.decode(Outer(hint=u"x").encode(1), 1).hint == u"x"


def test_null_only_where_the_version_allows_it():
    for values in (dict(label=None), dict(inners=None)):
        for version in (1, 2, 3):
            outer = Outer(**values)
            assert Outer.decode(outer.encode(version), version) == outer
        with pytest.raises(ProtocolError, match="Outer.%s is to be" % list(values)[0]):
            Outer(**values).encode(0)


@pytest.mark.parametrize(
    "values, message",
    [
        (dict(number=u"x"), "Outer.number is to be Int16, not "),
        (dict(number=40000), "Outer.number is out of range for Int16: 40000"),
        (dict(flag=1), "Outer.flag is to be Boolean"),
        (dict(numbers=[1, 300]), "Outer.numbers is out of range for Int8: 300"),
        (dict(numbers=5), "Outer.numbers is to be a list, not int"),
        (dict(inners=[Outer()]), "Outer.inners is to be Inner, not Outer"),
        (dict(inners=[Inner(name=5)]), "Inner.name is to be String, not int"),
        (dict(inners=[Inner(id=None)]), "Inner.id is to be Int32, not NoneType"),
    ],
)
def test_a_wrong_value_is_refused_by_name(values, message):
    with pytest.raises(ProtocolError, match="outer, version 0: " + message):
        Outer(**values).encode(0)


def test_versions_that_are_not_spoken():
    for version in (-1, 4):
        with pytest.raises(ProtocolError, match=r"outer, version -?\d: .*\(0 to 3\)"):
            Outer().encode(version)
        with pytest.raises(ProtocolError, match=r"\(0 to 3\)"):
            Outer.decode(b"", version)


def with_tags(tags):
    """A version 2 message with these tagged fields at its end."""
    data = Outer().encode(2)
    assert data.endswith(b"\x00")
    return data[:-1] + tags


def test_unknown_tagged_fields_are_skipped():
    tags = b"\x03" b"\x00\x04\x00\x00\x00\x06" b"\x02\x03abc" b"\xff\x01\x00"
    assert Outer.decode(with_tags(tags), 2) == Outer(extra=6)


@pytest.mark.parametrize(
    "tags, reason",
    [
        (b"\x01\x00\x05\x00\x00\x00\x06\x00", "tagged field 0 has 1 bytes left over"),
        (b"\x01\x00\x03\x00\x00\x06", "takes 4 bytes, 3 are left"),
        (b"\x01\x02\x05abc", "tagged field 2 takes 5 bytes, 3 are left"),
        (b"\x7f\x02\x01a", "127 tagged fields can't be in 3 bytes"),
        (b"\xff\xff\xff\xff\xff", "32 bits"),
    ],
)
def test_tagged_fields_that_cannot_be(tags, reason):
    with pytest.raises(ProtocolError, match=reason):
        Outer.decode(with_tags(tags), 2)


def test_tagged_fields_are_written_by_tag_and_only_where_they_differ():
    assert Outer(inner=Inner(id=1), extra=1, more=[u"x"]).encode(3).endswith(
        b"\x03" b"\x00\x04\x00\x00\x00\x01" b"\x01\x03\x02\x02x" b"\x03\x06\x00\x00\x00\x01\x01\x00"
    )
    no_tags = b"\x01\x01\x01\xff\x00"  # after three empty arrays and a null
    assert Outer(inner=Inner(), extra=5, more=[]).encode(3).endswith(no_tags)


@pytest.mark.parametrize(
    "count", [b"\x7f\xff\xff\xff", b"\x00\x00\x00\x10", b"\xff\xff\xff\xfe", b"\xff\xff\xff\xff"]
)
@pytest.mark.parametrize("before", [b"", b"\x00\x00\x00\x00"], ids=["numbers", "inners"])
def test_a_count_that_the_data_cannot_hold_allocates_nothing(before, count):
    with pytest.raises(ProtocolError, match="outer, version 0, byte %d: an array" % (5 + len(before))):
        Outer.decode(b"\x00\x00\x01\x00\x00" + before + count + b"12345", 0)
