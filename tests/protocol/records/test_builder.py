import struct

import pytest

from kiel import exc
from kiel.protocol import records
from tests.protocol.records import craft


def test_a_batch_of_nothing():
    with pytest.raises(exc.ProtocolError):
        records.BatchBuilder().build()


@pytest.mark.parametrize("codec", [0, 1])
def test_fields(codec):
    builder = records.BatchBuilder(codec)
    for timestamp in (1000, 5000, -1, 4000):
        builder.append(timestamp, b"key", b"value")
    batch = craft.only(builder.build())
    assert (batch.base_offset, batch.last_offset, batch.count, batch.leader_epoch) == (0, 3, 4, -1)
    assert (batch.base_timestamp, batch.max_timestamp, batch.timestamp_type) == (1000, 5000, 0)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert (batch.codec, batch.is_transactional, batch.is_control) == (codec, False, False)
    assert [row[1] for row in craft.rows(builder.build())] == [1000, 5000, -1, 4000]


def test_building_again_for_another_producer():
    builder = records.BatchBuilder(1, compression_level=9)
    builder.append(1, None, b"value" * 100)
    first, second = builder.build(), builder.build(70, 2, 500, transactional=True)
    batch = craft.only(second)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (70, 2, 500)
    assert batch.is_transactional
    assert craft.rows(first) == craft.rows(second) == [(0, 1, None, b"value" * 100, ())]
    builder.append(2, None, b"more")
    assert [row[3] for row in craft.rows(builder.build())] == [b"value" * 100, b"more"]


def test_size_is_that_of_the_uncompressed_batch():
    builder = records.BatchBuilder()
    assert builder.size == 61
    for number in range(3000):
        builder.append(number * 1000, b"k" if number % 3 else None, b"v" * number)
    assert builder.size == len(builder.build())
    assert builder.count == 3000


@pytest.mark.parametrize(
    "key, value, headers",
    [
        (None, None, None),
        (b"", b"", []),
        (b"key", b"v" * 20000, [(u"n\xe4me" * 40, b"x" * 100), (u"", None)]),
        (b"k" * 70, None, [(u"", None)] * 200),
    ],
)
def test_record_size_is_an_upper_bound(key, value, headers):
    builder = records.BatchBuilder()
    for timestamp in (0, 2**62, 5):
        before = builder.size
        builder.append(timestamp, key, value, headers)
        assert 0 < builder.size - before <= records.record_size(key, value, headers)


WRONG = [
    (5, u"text", None, None),
    (5, None, u"text", None),
    (5, None, bytearray(b"no"), None),
    (5, 7, None, None),
    (5, None, 7, None),
    (5, None, b"v", [(u"name", u"text")]),
    (5, None, b"v", [(u"name", 1)]),
    (5, None, b"v", [(None, b"v")]),
    (5, None, b"v", [(5, b"v")]),
    (5, None, b"v", [(u"name",)]),
    (5, None, b"v", [u"ab"]),
    (5, None, b"v", {u"ab": b"c"}),
    (5, None, b"v", 7),
]
WRONG_TIMES = [(when, None, b"v", None) for when in (None, 1.5, "5", -2, 2**63)]


@pytest.mark.parametrize("wrong", WRONG + WRONG_TIMES)
def test_what_cannot_be_written_is_refused_and_leaves_the_batch_alone(wrong):
    builder = records.BatchBuilder()
    with pytest.raises(exc.ProtocolError):
        builder.append(*wrong)
    builder.append(100, None, b"first")
    with pytest.raises(exc.ProtocolError):
        builder.append(*wrong)
    builder.append(101, None, b"second")
    assert builder.size == len(builder.build())
    assert craft.rows(builder.build()) == [(0, 100, None, b"first", ()), (1, 101, None, b"second", ())]
    assert craft.only(builder.build()).max_timestamp == 101


@pytest.mark.parametrize("wrong", WRONG)
def test_record_size_refuses_the_same(wrong):
    with pytest.raises(exc.ProtocolError):
        records.record_size(*wrong[1:])


@pytest.mark.parametrize(
    "options",
    [{"producer_id": 2**63}, {"producer_epoch": 2**15}, {"base_sequence": 2**31}, {"producer_id": "7"}],
)
def test_header_fields_out_of_range(options):
    builder = records.BatchBuilder()
    builder.append(1, None, b"")
    with pytest.raises(exc.ProtocolError):
        builder.build(**options)


def test_codecs_and_levels_are_checked_at_once():
    for codec in (2, 3, 4, 5, -1):
        with pytest.raises(exc.UnsupportedCodecError):
            records.BatchBuilder(codec)
    for codec, level in ((1, 10), (1, 0), (1, "fast"), (0, 5)):
        with pytest.raises(exc.ConfigurationError):
            records.BatchBuilder(codec, compression_level=level)


def test_gzip_is_smaller():
    plain, packed = records.BatchBuilder(), records.BatchBuilder(1)
    for builder in (plain, packed):
        for number in range(100):
            builder.append(number, None, b"the same again and again")
    assert plain.size == packed.size == len(plain.build())
    assert len(packed.build()) < len(plain.build()) // 4
    # A batch's length is that of what is sent, not of what it was.
    assert struct.unpack_from(">i", packed.build(), 8)[0] == len(packed.build()) - 12


def test_names_of_headers_are_text_when_read():
    builder = records.BatchBuilder()
    builder.append(1, None, None, [("name", b"value")])
    ((name, value),) = craft.rows(builder.build())[0][4]
    assert (name, value, type(name)) == (u"name", b"value", type(u""))


@pytest.mark.parametrize("codec", [0, 1])
def test_compressing_is_done_in_short_steps_for_who_wants_them(codec):
    builder = records.BatchBuilder(codec)
    for number in range(1000):
        builder.append(number, None, b"%d" % number * 300)
    steps = len(list(builder.prepare()))
    assert steps == 1 if codec == 0 else steps > builder.size // 65536
    assert list(builder.prepare()) == []
    assert len(craft.rows(builder.build())) == 1000
