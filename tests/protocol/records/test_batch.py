import struct
import zlib

import pytest

from kiel import exc
from kiel.protocol import records
from kiel.protocol.primitives import Span
from kiel.protocol.records import varints
from tests.protocol.records import craft


def gzipped(payload):
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    return compressor.compress(payload) + compressor.flush()


def refused(data, text, **options):
    with pytest.raises(exc.ProtocolError) as caught:
        craft.rows(data, **options)
    assert text in str(caught.value)
    return caught.value


def test_no_records():
    assert craft.rows(b"") == []
    assert list(records.batches(None)) == []


def test_a_span_inside_of_more_bytes():
    data = craft.batch(craft.record(value=b"\x02a"))
    inside = Span(b"before" + data + data + b"after", 6, 6 + len(data))
    assert craft.rows(inside) == [(0, 1000, None, b"a", ())]


@pytest.mark.parametrize("codec", [0, 1])
def test_a_partial_batch_at_the_end_is_left_out(codec):
    builder = records.BatchBuilder(codec)
    builder.append(5, b"key", b"value")
    data = builder.build()
    for cut in range(len(data)):
        assert craft.rows(data + data[:cut]) == [(0, 5, b"key", b"value", ())]


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats(magic):
    message = struct.pack(">qiIbb", 7, 14, 0, magic, 0) + b"\xff" * 8
    for data in (message, message[:17]):
        with pytest.raises(exc.UnsupportedVersionError) as caught:
            craft.rows(data)
        assert "old message format" in str(caught.value) and "Kafka 0.11" in str(caught.value)


@pytest.mark.parametrize(
    "fields, text",
    [
        ({"magic": 3}, "magic 3"),
        ({"magic": -1}, "magic -1"),
        ({"length": -1}, "length -1"),
        ({"length": -(2**31)}, "length -2147483648"),
        ({"length": 48}, "length 48"),
        ({"count": -1}, "-1 records"),
        ({"count": 2}, "2 records can't be in 7 bytes"),
        ({"count": 2**31 - 1}, "2147483647 records can't be in 7 bytes"),
        ({"base_offset": -1}, "offsets can't be -1 to -1"),
        ({"last_offset_delta": -1}, "offsets can't be 0 to -1"),
        ({"base_offset": 2**63 - 1}, "offsets can't be"),
        ({"base_offset": 2**63 - 10, "last_offset_delta": 10}, "offsets can't be"),
    ],
)
def test_impossible_headers(fields, text):
    refused(craft.batch(craft.record(), **fields), text)


def test_an_error_says_where_the_batch_begins():
    good = craft.batch(craft.record())
    assert refused(good + craft.batch(craft.record(), count=-1), "offset 0").position == len(good)


def test_ends():
    first, second = craft.batch(craft.record(), last_offset_delta=4), craft.batch(b"damaged", base_offset=9)
    assert list(records.ends(Span(b"??" + first + second + first[:-1], 2, 2 + 2 * len(first) + len(second) - 1))) == [
        (len(first), 5),
        (len(first) + len(second), 10),
    ]
    assert list(records.ends(craft.span(first[:-1]))) == []


def test_first_size():
    data = craft.batch(craft.record(value=b"\x10" + b"v" * 8))
    assert [records.first_size(Span(data, 0, cut)) for cut in (0, 16, 17, len(data))] == [None, None] + 2 * [len(data)]


@pytest.mark.parametrize(
    "fields",
    [
        {"magic": 3},
        {"length": 48},
        {"base_offset": -1},
        {"last_offset_delta": -1},
        {"base_offset": 2**63 - 10, "last_offset_delta": 10},
    ],
)
def test_ends_and_batches_refuse_the_same(fields):
    good = craft.batch(craft.record())
    span, caught, found = craft.span(good + craft.batch(craft.record(), **fields)), [], []
    for read in (records.batches, records.ends):
        with pytest.raises(exc.ProtocolError) as error:
            for each in read(span):
                found.append(each)
        caught.append((str(error.value), error.value.position))
    assert caught[0] == caught[1] and len(found) == 2 and caught[0][1] == len(good)


def test_headers_are_read_without_the_records():
    (batch,) = records.batches(craft.span(craft.batch(b"nonsense", crc=5, base_offset=3)))
    assert batch.base_offset == 3


def test_a_wrong_checksum_says_both():
    data = craft.batch(craft.record(), crc=0x1234)
    right = "0x%08x" % craft.only(craft.batch(craft.record())).crc
    assert right in str(refused(data, "0x00001234"))


def test_each_flipped_bit_under_the_checksum_is_found():
    data = craft.batch(craft.record(value=b"\x02a"))
    for position in range(17, len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 0x10
        with pytest.raises(exc.ProtocolError):
            craft.rows(bytes(flipped))


@pytest.mark.parametrize("codec", [2, 3, 4, 5, 6, 7])
def test_codecs_that_cannot_be_read(codec):
    with pytest.raises(exc.UnsupportedCodecError) as caught:
        craft.rows(craft.batch(craft.record(), attributes=codec))
    assert "codec %d" % codec in str(caught.value)


def test_offsets_with_gaps():
    payload = craft.record(offset_delta=0) + craft.record(offset_delta=3) + craft.record(offset_delta=200)
    data = craft.batch(payload, base_offset=10, last_offset_delta=299, count=3)
    assert [row[0] for row in craft.rows(data)] == [10, 13, 210]
    assert craft.only(data).next_offset == 310


@pytest.mark.parametrize("delta", [-1, 5, 10000])
def test_an_offset_outside_of_the_batch(delta):
    refused(craft.batch(craft.record(offset_delta=delta), last_offset_delta=4), "offset is outside")


def test_delete_horizon():
    batch = craft.only(craft.batch(craft.record(timestamp_delta=-400), attributes=0x40, base_timestamp=5000))
    assert batch.delete_horizon == 5000
    assert next(columns for columns in batch.columns() if columns).timestamps == [4600]


def test_an_empty_compressed_batch():
    assert craft.rows(craft.batch(attributes=1, count=0)) == []


@pytest.mark.parametrize(
    "payload, text",
    [
        (craft.record(key=b"\x03"), "key's length is negative"),
        (craft.record(key=b"\xff\x01"), "key's length is negative"),
        (craft.record(key=b"\xff\xff\xff\xff\x0f"), "key's length is negative"),
        (craft.record(value=b"\x05"), "value's length is negative"),
        (craft.record(value=b"\xfe\xff\xff\xff\x0f"), "goes on behind the end"),
        (craft.record(key=b"\xff" * 5), "varint"),
        (b"\x0b" + craft.record()[1:], "length isn't that of its fields"),
        (b"\x0a" + craft.record()[1:], "length isn't that of its fields"),
        (b"\xfe\xff\xff\xff\x0f" + craft.record()[1:], "length isn't that of its fields"),
        (craft.record() + b"\0", "1 bytes follow"),
        (craft.record(value=b"\x02"), "a record"),
        (craft.record(headers=b"\x01"), "-1 headers"),
        (craft.record(headers=b"\x06\0\0"), "3 headers can't be in 2 bytes"),
        (craft.record(headers=b"\xfe\xff\xff\xff\x0f"), "2147483647 headers"),
        (craft.record(headers=b"\x02\x01\x01"), "name is null"),
        (craft.record(headers=b"\x02\x02\xff\x01"), "UTF-8"),
        (craft.record(headers=b"\x02\x00\x03"), "header's length is -2"),
        (craft.record(headers=b"\x02\x00\x10"), "header's length is 8 where 0 bytes"),
        (craft.record(headers=b"\x02\x08\x00"), "header's length is 4 where 1 bytes"),
    ],
)
@pytest.mark.parametrize("codec", [0, 1])
def test_impossible_records(payload, text, codec):
    refused(craft.batch(gzipped(payload) if codec else payload, attributes=codec), text)
    # The same with another batch behind it, whose bytes must not be taken for this one's.
    data = craft.batch(gzipped(payload) if codec else payload, attributes=codec)
    refused(data + craft.batch(craft.record()), text)


def test_record_lengths_of_many_bytes():
    value = b"v" * 20000
    payload = craft.record(timestamp_delta=2**40, value=b"\xc0\xb8\x02" + value)
    assert craft.rows(craft.batch(payload)) == [(0, 1000 + 2**40, None, value, ())]


def test_numbers_longer_than_need_be():
    # Twelve bytes of body, each number with a byte or two too many; Java's client reads such ones too.
    payload = b"\x98\x00" + b"\0" + b"\x80\x00" + b"\x80\x80\x00" + b"\x81\x00" + b"\x81\x00" + b"\x80\x00"
    assert craft.rows(craft.batch(payload)) == [(0, 1000, None, None, ())]


@pytest.mark.parametrize("step", [1, 2, 3, 7, 500])
def test_steps(step):
    builder = records.BatchBuilder()
    for number in range(7):
        builder.append(number, None, b"%d" % number, [(u"h", b"1")] if number == 4 else None)
    batch = craft.only(builder.build())
    sizes, headers = [], []
    for columns in batch.columns(step):
        if columns is not None:
            sizes.append(len(columns.offsets))
            headers.append(columns.headers)
    assert sizes == [min(step, 7 - done) for done in range(0, 7, step)]
    # Headers only where the records of these columns have any.
    assert [have is not None for have in headers] == [done <= 4 < done + step for done in range(0, 7, step)]


def test_many_headers_make_a_step_shorter():
    builder = records.BatchBuilder()
    for number in range(10):
        builder.append(number, None, None, [(u"h", None)] * 40)
    batch = craft.only(builder.build())
    found = [columns for columns in batch.columns(100) if columns is not None]
    assert [len(columns.offsets) for columns in found] == [3, 3, 3, 1]
    assert [len(columns.headers) for columns in found] == [3, 3, 3, 1]
    assert [row[0] for row in craft.rows(builder.build(), 100)] == list(range(10))


def test_headers_without_end():
    headers = varints.encode(1000001) + b"\0\0" * 1000001
    data = craft.batch(gzipped(craft.record(headers=headers)), attributes=1)
    assert len(data) < 5000
    refused(data, "more than the limit of 1000000")


def test_a_step_of_nothing():
    with pytest.raises(exc.UsageError):
        list(craft.only(craft.batch(craft.record())).columns(0))


def test_long_work_is_cut_in_pieces():
    builder = records.BatchBuilder()
    builder.append(0, None, b"\0" * (3 * 1024 * 1024))
    assert [columns is None for columns in craft.only(builder.build()).columns()].count(True) >= 2
    builder = records.BatchBuilder(1)
    builder.append(0, None, b"\0" * (3 * 1024 * 1024))
    assert [columns is None for columns in craft.only(builder.build()).columns()].count(True) >= 10


def test_decompression_is_bounded():
    data = craft.batch(gzipped(b"\0" * 5000000), attributes=1)
    refused(data, "limit of 1000000 bytes", max_decompressed_bytes=1000000)


def test_the_count_of_a_compressed_batch_is_checked():
    data = craft.batch(gzipped(craft.record()), attributes=1, count=2**31 - 1)
    refused(data, "2147483647 records can't be in 7 bytes")


@pytest.mark.parametrize(
    "key, kind",
    [
        (b"\x08\0\0\0\0", "abort"),
        (b"\x08\0\0\0\1", "commit"),
        (b"\x0c\0\1\0\1..", "commit"),
        (b"\x08\0\0\0\2", None),
        (b"\x08\0\0\xff\xff", None),
    ],
)
def test_control_types(key, kind):
    assert craft.only(craft.batch(craft.record(key=key), attributes=0x20)).control_type() == kind


def test_control_batches_that_say_nothing():
    assert craft.only(craft.batch(count=0, attributes=0x20)).control_type() is None
    assert craft.only(craft.batch(craft.record(key=b"\x08\0\0\0\1"))).control_type() is None
    for key in (b"\x01", b"\x00", b"\x06\0\0\0"):
        with pytest.raises(exc.ProtocolError):
            craft.only(craft.batch(craft.record(key=key), attributes=0x20)).control_type()
