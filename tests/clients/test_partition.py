"""PartitionReader by itself: bytes of a fetch in, records and a position out."""
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiel import compression
from kiel.clients.partition import WORKING, Chunk, PartitionReader
from kiel.exc import CorruptRecordError, RecordTooLargeError
from kiel.protocol import records
from kiel.protocol.list_offsets import EARLIEST
from kiel.protocol.primitives import Span
from kiel.protocol.records import varints
from tests.protocol.records import craft

TRANSACTIONAL, CONTROL = 0x10, 0x20
ABORT, COMMIT = 0, 1
LEVELS = ("uncommitted", "committed")


def at(base, data):
    """A batch of base offset 0, moved to `base`."""
    return struct.pack(">q", base) + data[8:]


def batch(base, *values, **options):
    builder = records.BatchBuilder(codec=options.pop("codec", 0))
    for value in values:
        builder.append(1000, None, value)
    return at(base, builder.build(**options))


def in_transaction(base, producer_id, *values):
    return batch(base, *values, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def marker(base, producer_id, kind):
    key = b"\x08" + struct.pack(">hh", 0, kind)
    value = b"\x0c" + struct.pack(">hi", 0, 0)
    return craft.batch(
        craft.record(key=key, value=value),
        base_offset=base,
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=producer_id,
    )


def empty(base, last, producer_id=-1):
    """What compaction leaves of a batch of which nothing but the producer's last sequence number is
    needed."""
    return craft.batch(base_offset=base, last_offset_delta=last - base, count=0, producer_id=producer_id)


def reader_at(offset, level="uncommitted"):
    reader = PartitionReader("events", 3, read_committed=level == "committed")
    reader.seek(offset)
    return reader


def fed(reader, data, aborted=()):
    """Give `data` to the reader as one fetch's; the error, or None."""
    chunk = Chunk(Span(b"<" + data + b">", 1, 1 + len(data)), list(aborted))
    for _ in chunk.measure():
        pass
    return reader.add(chunk)


def taken(reader, count=None):
    """[(offset, value)] of up to `count` records, all there are by default."""
    found = []
    while count is None or len(found) < count:
        piece = reader.peek()
        if piece is None:
            break
        if piece is not WORKING:
            many = len(piece) if count is None else min(len(piece), count - len(found))
            here = slice(piece.start, piece.start + many)
            found += zip(piece.columns.offsets[here], piece.columns.values[here])
            reader.take(many)
    return found


def test_records_in_order_and_the_position_behind_them():
    reader = reader_at(0)
    assert (reader.position, reader.fetch_offset, reader.peek()) == (0, 0, None)
    assert fed(reader, batch(0, b"a", b"b") + batch(2, b"c", codec=1)) is None
    assert (reader.position, reader.fetch_offset) == (0, 3)
    assert reader.buffered > 0
    assert taken(reader) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert (reader.position, reader.fetch_offset, reader.buffered) == (3, 3, 0)


def test_taking_one_by_one_moves_the_position():
    reader = reader_at(0)
    fed(reader, batch(0, b"a", b"b") + batch(2, b"c"))
    seen = []
    for _ in range(3):
        seen += taken(reader, 1)
        assert reader.position == len(seen)
    assert seen == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_peeking_takes_nothing():
    reader = reader_at(0)
    fed(reader, batch(0, b"a", b"b"))
    assert reader.peek() is reader.peek()
    assert reader.position == 0
    assert taken(reader) == [(0, b"a"), (1, b"b")]


def test_what_comes_before_the_position_is_left_out():
    reader = reader_at(4)
    fed(reader, batch(0, b"a", b"b") + batch(2, b"c", b"d", b"e", b"f"))
    assert taken(reader) == [(4, b"e"), (5, b"f")]
    assert reader.position == 6


def test_gaps_that_compaction_left():
    reader = reader_at(0)
    inside = craft.batch(
        craft.record(offset_delta=1) + craft.record(offset_delta=4), base_offset=10, last_offset_delta=9, count=2
    )
    fed(reader, batch(3, b"a") + inside)
    assert [offset for offset, _ in taken(reader)] == [3, 11, 14]
    assert (reader.position, reader.fetch_offset) == (20, 20)


def test_the_position_passes_a_batch_of_no_records():
    reader = reader_at(0)
    fed(reader, empty(0, 6) + batch(7, b"a") + empty(8, 9))
    assert taken(reader) == [(7, b"a")]
    assert (reader.position, reader.buffered) == (10, 0)


def test_nothing_but_empty_batches():
    reader = reader_at(0)
    fed(reader, empty(0, 6))
    assert taken(reader) == []
    assert (reader.position, reader.fetch_offset, reader.buffered) == (7, 7, 0)


@pytest.mark.parametrize("level", LEVELS)
def test_markers_are_not_handed_out(level):
    reader = reader_at(0, level)
    fed(reader, in_transaction(0, 7, b"a", b"b") + marker(2, 7, COMMIT) + batch(3, b"c"))
    assert taken(reader) == [(0, b"a"), (1, b"b"), (3, b"c")]
    assert reader.position == 4


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("aborted", [[], [(7, 0)]])
def test_a_log_with_nothing_but_an_abort_marker(level, aborted):
    reader = reader_at(0, level)
    fed(reader, marker(0, 7, ABORT), aborted)
    assert taken(reader) == []
    assert (reader.position, reader.fetch_offset, reader.buffered) == (1, 1, 0)


ABORTED_THEN_COMMITTED = (
    in_transaction(0, 7, b"bad", b"worse") + marker(2, 7, ABORT) + in_transaction(3, 7, b"good") + marker(4, 7, COMMIT)
)


def test_aborted_records_are_left_out_of_read_committed_alone():
    reader = reader_at(0, "committed")
    fed(reader, ABORTED_THEN_COMMITTED, [(7, 0)])
    assert taken(reader) == [(3, b"good")]
    assert reader.position == 5
    reader = reader_at(0)
    fed(reader, ABORTED_THEN_COMMITTED)
    assert taken(reader) == [(0, b"bad"), (1, b"worse"), (3, b"good")]
    assert reader.position == 5


def test_an_unlisted_abort_marker_hides_nothing():
    reader = reader_at(0, "committed")
    fed(reader, in_transaction(0, 8, b"a") + marker(1, 7, ABORT) + in_transaction(2, 7, b"b") + marker(3, 7, COMMIT))
    assert taken(reader) == [(0, b"a"), (2, b"b")]
    assert reader.position == 4


def test_transactions_side_by_side():
    data = (
        in_transaction(0, 7, b"7 aborts")
        + in_transaction(1, 8, b"8 commits")
        + batch(2, b"none")
        + marker(3, 8, COMMIT)
        + in_transaction(4, 7, b"7 still aborts")
        + in_transaction(5, 9, b"9 aborts")
        + marker(6, 7, ABORT)
        + marker(7, 9, ABORT)
        + in_transaction(8, 9, b"9 commits")
        + marker(9, 9, COMMIT)
    )
    reader = reader_at(0, "committed")
    fed(reader, data, [(9, 5), (7, 0)])
    assert taken(reader) == [(1, b"8 commits"), (2, b"none"), (8, b"9 commits")]
    assert reader.position == 10


def test_an_aborted_transaction_over_two_fetches():
    reader = reader_at(0, "committed")
    fed(reader, in_transaction(0, 7, b"a"), [(7, 0)])
    fed(reader, in_transaction(1, 7, b"b") + marker(2, 7, ABORT) + in_transaction(3, 7, b"c"), [(7, 0)])
    assert taken(reader) == [(3, b"c")]
    assert reader.position == 4


def test_starting_in_the_middle_of_an_aborted_transaction():
    reader = reader_at(1, "committed")
    fed(reader, in_transaction(0, 7, b"a", b"b") + marker(2, 7, ABORT) + in_transaction(3, 7, b"c"), [(7, 0)])
    assert taken(reader) == [(3, b"c")]


def test_starting_behind_the_data_of_an_aborted_transaction():
    """The marker lies before the position, too, but is in the batches that the broker sent."""
    reader = reader_at(3, "committed")
    fed(reader, in_transaction(0, 7, b"a", b"b") + marker(2, 7, ABORT) + in_transaction(3, 7, b"c"), [(7, 0)])
    assert taken(reader) == [(3, b"c")]


@pytest.mark.parametrize("level", LEVELS)
def test_a_marker_of_an_unknown_kind_is_passed_over(level):
    reader = reader_at(0, level)
    fed(reader, marker(0, 7, 9) + batch(1, b"a"))
    assert taken(reader) == [(1, b"a")]


def test_the_end_is_the_last_stable_offset_with_read_committed():
    for level, end in zip(LEVELS, (9, 5)):
        reader = reader_at(0, level)
        assert reader.end is None
        reader.high_watermark, reader.last_stable_offset = 9, 5
        assert reader.end == end


def damaged(data):
    return data[:-1] + struct.pack("B", struct.unpack("B", data[-1:])[0] ^ 1)


@pytest.mark.parametrize("codec", [0, 1])
def test_a_damaged_batch_behind_good_ones(codec):
    reader = reader_at(0)
    assert fed(reader, batch(0, b"a", b"b") + damaged(batch(2, b"c", codec=codec)) + batch(3, b"d")) is None
    assert taken(reader) == [(0, b"a"), (1, b"b")]
    error = reader.error
    assert isinstance(error, CorruptRecordError)
    assert (error.topic, error.partition, error.offset) == ("events", 3, 2)
    assert "checksum" in str(error.cause)
    # It stays there, to be fetched again.
    assert (reader.position, reader.fetch_offset, reader.buffered, reader.peek()) == (2, 2, 0, None)


def test_what_was_fetched_behind_a_damaged_batch_is_dropped_with_it():
    reader = reader_at(0)
    fed(reader, damaged(batch(0, b"a")))
    fed(reader, batch(1, b"b"))
    assert taken(reader) == []
    assert reader.error.offset == 0
    fed(reader, batch(0, b"a") + batch(1, b"b"))
    assert taken(reader) == [(0, b"a"), (1, b"b")]


def test_a_codec_that_is_not_known():
    reader = reader_at(0)
    fed(reader, batch(0, b"a") + craft.batch(b"????", base_offset=1, attributes=7))
    assert taken(reader) == [(0, b"a")]
    assert reader.error.offset == 1
    assert "codec 7" in str(reader.error)


def test_bytes_that_are_no_batch_behind_good_ones():
    """The good ones are kept, and the error comes when the rest is fetched by itself."""
    reader, nonsense = reader_at(0), craft.batch(base_offset=1, magic=9)
    assert fed(reader, batch(0, b"a") + nonsense) is None
    assert reader.fetch_offset == 1
    assert taken(reader) == [(0, b"a")]
    error = fed(reader, nonsense)
    assert isinstance(error, CorruptRecordError)
    assert (error.topic, error.partition, error.offset) == ("events", 3, 1)
    assert "magic 9" in str(error)
    assert (reader.position, reader.buffered) == (1, 0)


def test_the_old_message_format_is_told_of():
    error = fed(reader_at(5), struct.pack(">qiIbb", 5, 14, 0, 1, 0) + b"\xff" * 8)
    assert error.offset == 5
    assert "Kafka 0.11" in str(error)


def test_nothing_but_batches_before_the_position():
    reader = reader_at(5)
    error = fed(reader, batch(0, b"a", b"b"))
    assert isinstance(error, CorruptRecordError) and error.offset == 5
    assert (reader.fetch_offset, reader.buffered) == (5, 0)


def test_a_part_of_a_batch():
    reader, data = reader_at(0), batch(0, b"a" * 100)
    error = fed(reader, data[:50])
    assert isinstance(error, RecordTooLargeError)
    for part in ("events[3]", "offset 0", "%d bytes" % len(data), "but 50", "max_bytes"):
        assert part in str(error)
    assert fed(reader, data + batch(1, b"b")[:50]) is None
    assert taken(reader) == [(0, b"a" * 100)]
    assert reader.fetch_offset == 1


def test_seek_drops_what_was_fetched_and_the_error():
    reader = reader_at(0)
    fed(reader, batch(0, b"a", b"b", b"c"))
    taken(reader, 1)
    reader.error, reader.failures, reader.not_before = ValueError(), 3, 1e12
    moves = reader.moves
    reader.seek(7)
    assert (reader.position, reader.fetch_offset, reader.buffered, reader.peek()) == (7, 7, 0, None)
    assert (reader.error, reader.failures, reader.not_before, reader.moves) == (None, 0, 0, moves + 1)
    fed(reader, batch(6, b"g", b"h"))
    assert taken(reader) == [(7, b"h")]


def test_seek_in_the_middle_of_a_batch_that_is_being_taken():
    reader, data = reader_at(0), batch(0, b"a", b"b", b"c")
    fed(reader, data)
    assert taken(reader, 2) == [(0, b"a"), (1, b"b")]
    reader.seek(1)
    assert reader.peek() is None
    fed(reader, data)
    assert taken(reader) == [(1, b"b"), (2, b"c")]


def test_seek_by_leaves_no_position():
    reader = reader_at(0)
    fed(reader, batch(0, b"a"))
    reader.seek_by(EARLIEST)
    assert (reader.position, reader.fetch_offset, reader.buffered, reader.reset) == (None, None, 0, EARLIEST)
    assert reader.peek() is None
    reader.seek(3)
    assert reader.reset is None


def test_hidden_batches_are_passed_one_at_a_time():
    """Whoever peeks gets to look at the clock, however many there are."""
    reader = reader_at(0, "committed")
    fed(reader, b"".join(in_transaction(n, 7, b"no") for n in range(50)), [(7, 0)])
    for passed in range(1, 51):
        assert reader.peek() is WORKING
        assert reader.position == passed
    assert reader.peek() is None


def test_a_chunk_does_not_keep_a_large_response():
    data = batch(0, b"a")
    response = b"?" * 10000 + data + b"?" * 10000
    chunk = Chunk(Span(response, 10000, 10000 + len(data)), [])
    list(chunk.measure())
    assert len(chunk.span.data) == len(data)
    large = Chunk(Span(data, 0, len(data)), [])
    list(large.measure())
    assert large.span.data is data


def test_measuring_gives_way():
    chunk = Chunk(craft.span(b"".join(batch(n, b"") for n in range(2000))), [])
    assert len(list(chunk.measure())) >= 3
    assert chunk.next_offset == 2000


# Any log, read by fetches cut anywhere: every record that is to be seen is handed out once, in order, in any
# portions.


@st.composite
def logs(draw):
    """(bytes of the batches, [(offset, value)] to be seen with read_committed, [(producer, first offset)]
    aborted)."""
    batches, seen, aborted, open_since, offset = [], [], [], {}, draw(st.integers(0, 5))
    pending = {}
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from("plain plain gzip transaction transaction commit abort empty".split()))
        offset += draw(st.sampled_from([0, 0, 0, 1, 5]))
        producer = draw(st.integers(1, 3))
        if kind in ("plain", "gzip", "transaction"):
            deltas = sorted(draw(st.sets(st.integers(0, 6), min_size=1, max_size=4)))
            last = draw(st.integers(deltas[-1], 7))
            rows = [(offset + delta, b"%d" % (offset + delta)) for delta in deltas]
            payload = b"".join(craft.record(offset_delta=d, value=_wire(b"%d" % (offset + d))) for d in deltas)
            fields = dict(base_offset=offset, last_offset_delta=last, count=len(deltas))
            if kind == "gzip":
                fields["attributes"] = 1
                payload = compression.compress(compression.GZIP, payload)
            if kind == "transaction":
                fields.update(attributes=TRANSACTIONAL, producer_id=producer)
                open_since.setdefault(producer, offset)
                pending.setdefault(producer, []).extend(rows)
            else:
                seen += rows
            batches.append(craft.batch(payload, **fields))
            offset += last + 1
        elif kind == "empty":
            last = draw(st.integers(0, 3))
            batches.append(empty(offset, offset + last))
            offset += last + 1
        elif kind == "commit":
            seen += pending.pop(producer, [])
            open_since.pop(producer, None)
            batches.append(marker(offset, producer, COMMIT))
            offset += 1
        else:
            if producer in open_since:
                aborted.append((producer, open_since.pop(producer), offset))
                pending.pop(producer)
            batches.append(marker(offset, producer, ABORT))
            offset += 1
    for producer in list(pending):
        seen += pending.pop(producer)
        batches.append(marker(offset, producer, COMMIT))
        offset += 1
    return batches, sorted(seen), aborted


def _wire(value):
    return varints.encode(len(value)) + value


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_visible_record_is_handed_out_once_and_in_order(data):
    batches, seen, aborted = data.draw(logs())
    read_committed = data.draw(st.booleans())
    whole = [list(records.batches(craft.span(each)))[0] for each in batches]
    if not read_committed:
        seen = sorted(
            (offset, value)
            for one in whole
            if not one.is_control
            for columns in one.columns()
            if columns is not None
            for offset, value in zip(columns.offsets, columns.values)
        )
    start = data.draw(st.integers(0, whole[-1].next_offset))
    reader = reader_at(start, "committed" if read_committed else "uncommitted")
    handed_out = []
    while reader.fetch_offset < whole[-1].next_offset:
        first = [each.next_offset > reader.fetch_offset for each in whole].index(True)
        rest = batches[first:]
        size = sum(map(len, rest))
        cut = data.draw(st.one_of(st.just(size), st.integers(len(rest[0]), size)), label="bytes that the fetch brings")
        listed = [(producer, since) for producer, since, end in aborted if end >= reader.fetch_offset]
        assert fed(reader, b"".join(rest)[:cut], listed if read_committed else ()) is None
        handed_out += taken(reader, data.draw(st.integers(0, 10), label="records taken"))
        if data.draw(st.booleans(), label="seek to where it is"):
            reader.seek(reader.position)
    handed_out += taken(reader)
    assert handed_out == [row for row in seen if row[0] >= start]
    assert reader.position == max(start, whole[-1].next_offset)
    assert (reader.buffered, reader.error) == (0, None)
