"""One call's Delivery, on readers that are filled by hand."""
import time

import pytest
from tornado import gen, ioloop

from kiel import Record
from kiel.clients.delivery import Delivery, as_records, as_values
from kiel.exc import DeserializationError
from kiel.protocol import records
from tests.clients.test_partition import ABORT, batch, damaged, fed, in_transaction, marker, reader_at
from tests.protocol.records import craft
from tests.support.consuming import worked
from tests.support.loop import on_loop


def delivery(deserializer=int, on_error="skip", form=as_values, max_records=None, max_bytes=2 ** 20, **others):
    skipped, clock = others.get("skipped", {}), others.get("clock", time.time)
    return Delivery(deserializer, on_error, form, max_records, max_bytes, skipped, clock)


def filled(*values, **options):
    """A reader at 0 with a batch of these values, and more batches behind it (`behind`)."""
    reader = reader_at(options.pop("position", 0), options.pop("level", "uncommitted"))
    data = batch(0, *values) + options.pop("behind", b"")
    assert fed(reader, data, options.pop("aborted", ())) is None
    return reader


def gather(one, *readers, **options):
    return one.gather(list(readers), options.get("stopped", lambda: False))


@on_loop()
def test_values_of_several_readers_in_turn():
    first, second = filled(b"1", b"2"), filled(b"3")
    second.partition = 4
    one = delivery()
    yield gather(one, second, first)
    assert one.values == [3, 1, 2]
    assert one.handed_out() == {3: (2, 2), 4: (1, 1)}
    assert first.position == 2


@on_loop()
def test_as_records():
    builder = records.BatchBuilder()
    builder.append(5, b"key", b"1", [("name", b"value"), ("name", None)])
    builder.append(7, None, None)
    reader = reader_at(0)
    fed(reader, builder.build() + batch(2, b"3"))
    one = delivery(form=as_records)
    yield gather(one, reader)
    assert one.values == [
        Record("events", 3, 0, 5, "create", b"key", 1, [("name", b"value"), ("name", None)]),
        Record("events", 3, 1, 7, "create", None, None, []),
        Record("events", 3, 2, 1000, "create", None, 3, []),
    ]


@on_loop()
def test_the_brokers_time():
    reader = reader_at(0)
    fed(reader, craft.batch(craft.record(timestamp_delta=9), attributes=0x08, max_timestamp=77))
    one = delivery(form=as_records)
    yield gather(one, reader)
    assert [(record.timestamp, record.timestamp_type) for record in one.values] == [(77, "append")]


@on_loop()
def test_null_is_not_deserialized():
    seen = []
    one = delivery(deserializer=seen.append)
    yield gather(one, filled(None, b"", b"x"))
    assert one.values == [None, None, None]
    assert seen == [b"", b"x"]


@on_loop()
def test_bytes_are_handed_out_as_they_are():
    one = delivery(deserializer=bytes)
    yield gather(one, filled(None, b"", b"\xff"))
    assert one.values == [None, b"", b"\xff"]


@pytest.mark.parametrize("most", [1, 2, 3, 4, 7])
@on_loop()
def test_max_records(most):
    reader, other = filled(b"1", b"2", behind=batch(2, b"3")), filled(b"4")
    one = delivery(max_records=most)
    yield gather(one, reader, other)
    assert one.values == [1, 2, 3, 4][:most]
    again = delivery()
    yield gather(again, reader, other)
    assert one.values + again.values == [1, 2, 3, 4]


@on_loop()
def test_max_bytes_is_about_what_is_handed_out():
    values = [b"%04d" % number + b" " * 1000 for number in range(100)]
    reader = reader_at(0)
    fed(reader, b"".join(batch(10 * n, *values[10 * n : 10 * n + 10]) for n in range(10)))
    one = delivery(max_bytes=20000)
    yield gather(one, reader)
    assert one.values == list(range(len(one.values)))
    assert 20 <= len(one.values) <= 21


@on_loop()
def test_one_record_is_handed_out_however_large():
    reader = filled(b"1" + b" " * 5000, b"2" + b" " * 5000)
    for expected in (1, 2):
        one = delivery(max_bytes=10)
        yield gather(one, reader)
        assert one.values == [expected]


@on_loop()
def test_positions_that_passed_what_nobody_sees_count_as_handed_out():
    reader = filled(b"1", behind=in_transaction(1, 7, b"2") + marker(2, 7, ABORT), level="committed", aborted=[(7, 1)])
    one = delivery()
    yield gather(one, reader)
    assert one.values == [1]
    assert one.handed_out() == {3: (3, 1)}
    fed(reader, marker(3, 7, ABORT))
    one = delivery()
    yield gather(one, reader)
    assert one.handed_out() == {3: (4, 0)}
    one = delivery()
    yield gather(one, reader)
    assert one.handed_out() == {}


@on_loop()
def test_paused_readers_are_left_alone():
    reader = filled(b"1")
    reader.paused = True
    one = delivery()
    yield gather(one, reader)
    assert (one.values, reader.position) == ([], 0)


@on_loop()
def test_a_damaged_batch_ends_the_readers_turn_and_no_others():
    bad, good = filled(b"1", behind=damaged(batch(1, b"2"))), filled(b"3")
    one = delivery()
    yield gather(one, bad, good)
    assert one.values == [1, 3]
    assert (bad.position, bad.error.offset) == (1, 1)


# on_error


@on_loop()
def test_skip(logbook):
    skipped, reader = {"events": 4}, filled(b"1", b"x", b"2")
    one = delivery(skipped=skipped)
    yield gather(one, reader)
    assert one.values == [1, 2]
    assert skipped == {"events": 5}
    assert (reader.position, one.handed_out()) == (3, {3: (3, 3)})
    (line,) = logbook.expect("skipped")
    assert "events[3] at offset 1" in line and "ValueError" in line


@on_loop()
def test_raise_hands_out_what_came_before_first():
    reader = filled(b"1", b"x", b"2")
    one = delivery(on_error="raise")
    yield gather(one, reader)
    assert (one.values, reader.position) == ([1], 1)
    one = delivery(on_error="raise")
    yield gather(one, reader)
    assert one.values == []
    error = one.error
    assert isinstance(error, DeserializationError) and isinstance(error.cause, ValueError)
    assert error.record == Record("events", 3, 1, 1000, "create", None, b"x", [])
    # It counts as handed out: the next call goes on behind it.
    assert (reader.position, one.handed_out()) == (2, {3: (2, 1)})
    one = delivery(on_error="raise")
    yield gather(one, reader)
    assert (one.values, one.error) == ([2], None)


@gen.coroutine
def later(calls, record, error):
    yield gen.moment
    calls.append((record.value, type(error.cause)))


@pytest.mark.parametrize(
    "on_error",
    [
        lambda calls: lambda record, error: calls.append((record.value, type(error.cause))),
        lambda calls: lambda record, error: later(calls, record, error),
    ],
    ids=["function", "coroutine"],
)
@on_loop()
def test_a_function_of_the_applications(on_error):
    calls, reader = [], filled(b"1", b"x", b"2", b"y")
    one = delivery(on_error=on_error(calls))
    yield gather(one, reader)
    assert one.values == [1, 2]
    assert calls == [(b"x", ValueError), (b"y", ValueError)]
    assert reader.position == 4


def fails_at_once(record, error):
    raise KeyError("no dead letters")


@gen.coroutine
def fails_later(record, error):
    yield gen.moment
    raise KeyError("no dead letters")


@pytest.mark.parametrize("on_error", [fails_at_once, fails_later])
@on_loop()
def test_a_function_that_fails_has_the_record_come_again(on_error, logbook):
    reader = filled(b"1", b"x", b"2")
    one = delivery(on_error=on_error)
    yield gather(one, reader)
    assert (one.values, reader.position) == ([1], 1)
    for _ in range(2):
        one = delivery(on_error=on_error)
        yield gather(one, reader)
        assert (one.values, reader.position) == ([], 1)
        assert isinstance(one.error, KeyError)
        assert one.handed_out() == {}
    assert len(logbook.expect("on_error failed, so the record comes again: events[3] at offset 1")) == 3


@on_loop()
def test_a_seek_while_the_application_handles_a_bad_record():
    reader = filled(b"1", b"x", b"2")

    @gen.coroutine
    def on_error(record, error):
        yield gen.moment
        reader.seek(0)

    one = delivery(on_error=on_error)
    yield gather(one, reader)
    assert one.values == [1]
    assert reader.position == 0
    assert one.handed_out() == {}


# putting back


@on_loop()
def test_rewind():
    reader, untouched = filled(b"1", b"2", b"3"), reader_at(0)
    one = delivery(max_records=2)
    yield gather(one, reader, untouched)
    one.rewind()
    assert reader.position == reader.fetch_offset == 0
    assert untouched.moves == 1


@on_loop()
def test_rewind_leaves_what_was_moved_since():
    reader = filled(b"1", b"2", b"3")
    one = delivery()
    yield gather(one, reader)
    reader.seek(1)
    one.rewind()
    assert reader.position == 1
    assert one.handed_out() == {}


# slices


def slow(value):
    end = time.time() + 0.001
    while time.time() < end:
        pass
    return int(value)


@on_loop()
def test_the_loop_is_free_every_few_milliseconds():
    reader = filled(*[b"%d" % number for number in range(150)])
    one, held, running = delivery(deserializer=slow), [], [True]

    @gen.coroutine
    def beside():
        while running:
            began = worked()
            yield gen.moment
            held.append(worked() - began)

    beside()
    yield gather(one, reader)
    running.pop()
    yield gen.moment
    assert one.values == list(range(150))
    assert len(held) >= 20
    assert sorted(held)[int(len(held) * 0.9)] < 0.008


@on_loop()
def test_slices_are_of_5_ms_whatever_came_before():
    """Cheap values say nothing of those behind them: no slice goes on past 5 ms, but for the record that is
    at work."""
    now, slice_ends = [100.0], []

    def costing(value):
        now[0] += int(value) / 1000.0
        return int(value)

    def stopped():
        slice_ends.append(now[0])
        return False

    one = delivery(deserializer=costing, clock=lambda: now[0])
    yield gather(one, filled(*[b"0"] * 300 + [b"2"] * 20 + [b"9"]), stopped=stopped)
    assert one.values == [0] * 300 + [2] * 20 + [9]
    lengths = [round(1000 * (end - began)) for began, end in zip([100.0] + slice_ends, slice_ends)]
    assert lengths == [6] * 6 + [4 + 9]


@on_loop()
def test_stopping_between_slices():
    reader, asked = filled(*[b"%d" % number for number in range(100)]), []

    def stopped():
        asked.append(reader.position)
        return len(asked) == 2

    one = delivery(deserializer=slow)
    yield gather(one, reader, stopped=stopped)
    assert len(asked) == 2
    assert 0 < asked[0] < asked[1] == reader.position < 100


@on_loop()
def test_a_reader_that_is_paused_between_slices_gives_no_more():
    reader = filled(*[b"%d" % number for number in range(100)])

    def pause():
        reader.paused = True

    ioloop.IOLoop.current().add_callback(pause)
    one = delivery(deserializer=slow)
    yield gather(one, reader)
    assert 0 < len(one.values) == reader.position < 100
