"""SingleConsumer on the embedded cluster: what BaseConsumer promises."""
import time

import pytest
from tornado import gen

from kiel import Record, SingleConsumer
from kiel.exc import (
    ClosedError,
    ConfigurationError,
    DeserializationError,
    NoBrokersError,
    UnknownTopicError,
    UsageError,
)
from tests.support.consuming import QUICK, consumer_of, gathered, open_files
from tests.support.loop import on_loop
from tests.support.waiting import failure, until

pytestmark = pytest.mark.embedded

BEGINNING, END = SingleConsumer.BEGINNING, SingleConsumer.END


# Where it starts


@on_loop()
def test_from_the_beginning(cluster, writer):
    writer.write("events", [1, 2, 3])
    writer.write("events", [4], codec=1)
    consumer = yield consumer_of(cluster)
    assert (yield gathered(consumer, "events", 4, BEGINNING)) == [1, 2, 3, 4]
    writer.write("events", [5])
    assert (yield gathered(consumer, "events", 1, BEGINNING)) == [5]
    yield consumer.close()


@pytest.mark.parametrize("start", [{}, {"start": END}, {"start": None}])
@on_loop()
def test_from_the_end(cluster, writer, start):
    writer.write("events", [1, 2, 3])
    consumer = yield consumer_of(cluster)
    assert (yield consumer.consume("events", **start)) == []
    writer.write("events", [4])
    assert (yield consumer.consume("events", **start)) == [4]
    yield consumer.close()


@on_loop()
def test_start_counts_the_first_time(cluster, writer):
    writer.write("events", [1, 2])
    consumer = yield consumer_of(cluster)
    assert (yield consumer.consume("events", start=BEGINNING, max_records=1)) == [1]
    assert (yield consumer.consume("events", start=END)) == [2]
    yield consumer.close()


@on_loop()
def test_a_topic_that_is_made_later_is_read_from_its_beginning(cluster, writer):
    consumer = yield consumer_of(cluster)
    error = yield failure(consumer.consume("later"))
    assert isinstance(error, UnknownTopicError) and "later" in str(error)
    # It is told once; from then on the topic is waited for.
    assert (yield consumer.consume("later")) == []
    waiting = gathered(consumer, "later", 3)
    cluster.create_topic("later", 2)
    writer.write("later", [1, 2])
    writer.write("later", [3], partition=1)
    assert sorted((yield waiting)) == [1, 2, 3]
    yield consumer.close()


# What it hands out


@on_loop()
def test_max_records(cluster, writer):
    writer.write("events", list(range(10)))
    consumer = yield consumer_of(cluster)
    sizes, values = [], []
    for most in (1, 3, 100):
        batch = yield consumer.consume("events", start=BEGINNING, max_records=most)
        sizes.append(len(batch))
        values += batch
    assert (sizes, values) == ([1, 3, 6], list(range(10)))
    for bad in (0, -1, 1.5, "1", True):
        with pytest.raises(ConfigurationError, match="max_records"):
            consumer.consume("events", max_records=bad)
    yield consumer.close()


@on_loop()
def test_records(cluster, writer):
    writer.write("events", [{"a": 1}, None])
    consumer = yield consumer_of(cluster)
    records = yield gathered(consumer, "events", 2, records=True)
    assert records == [
        Record("events", 0, 0, 1000, "create", None, {"a": 1}, []),
        Record("events", 0, 1, 1000, "create", None, None, []),
    ]
    yield consumer.close()


@on_loop()
def test_bytes(cluster, writer):
    writer.write("events", [b"\xff", b"", None])
    consumer = yield consumer_of(cluster, deserializer=bytes)
    assert (yield gathered(consumer, "events", 3)) == [b"\xff", b"", None]
    yield consumer.close()


@on_loop()
def test_partitions_take_turns(cluster, writer):
    for partition in (0, 1):
        writer.write("parts", [partition] * 100, partition=partition)
    consumer = yield consumer_of(cluster)
    yield consumer.consume("parts", start=BEGINNING, max_records=1)
    yield until(lambda: consumer.lag("parts") in ({0: 99, 1: 100}, {0: 100, 1: 99}))
    values = []
    for _ in range(20):
        values += yield consumer.consume("parts", max_records=1)
    assert sorted(values) == [0] * 10 + [1] * 10
    yield consumer.close()


@on_loop()
def test_partitions_take_turns_where_two_topics_alternate(cluster, writer):
    cluster.create_topic("others", 2)
    consumer = yield consumer_of(cluster)
    for topic in ("parts", "others"):
        for partition in (0, 1):
            writer.write(topic, [partition] * 100, partition=partition)
        yield consumer.consume(topic, start=BEGINNING, max_records=1)
        yield until(lambda: all(consumer.lag(topic).values()))
    values = {"parts": [], "others": []}
    for _ in range(10):
        for topic in sorted(values):
            values[topic] += yield consumer.consume(topic, max_records=1)
    assert [sorted(found) for found in values.values()] == [[0] * 5 + [1] * 5] * 2
    yield consumer.close()


@on_loop()
def test_nothing_is_said_after_max_wait_time_and_no_sooner(cluster):
    consumer = yield consumer_of(cluster, max_wait_time=300)
    yield consumer.consume("events")
    cluster.track_requests()
    for _ in range(3):
        began = time.time()
        assert (yield consumer.consume("events")) == []
        assert 0.295 <= time.time() - began < 0.6
    # Half of max_wait_time each; it doesn't spin.
    assert 4 <= len(cluster.requests("fetch")) <= 8
    assert len(cluster.requests("offset")) == 0
    assert len(cluster.requests("metadata")) == 0
    yield consumer.close()


@on_loop()
def test_paused_alone_it_waits_too(cluster, writer):
    """With nothing to fetch nothing is asked for, and consume() still keeps to its time."""
    consumer = yield consumer_of(cluster)
    writer.write("events", [1])
    yield gathered(consumer, "events", 1)
    consumer.pause("events")
    yield consumer.consume("events")
    cluster.track_requests()
    began = time.time()
    assert (yield consumer.consume("events")) == []
    assert time.time() - began >= 0.195
    assert cluster.requests("fetch") == []
    yield consumer.close()


# Values that can't be deserialized


BAD = [1, b"{", 2]


@on_loop()
def test_skip_is_the_default(cluster, writer, logbook):
    writer.write("events", BAD)
    consumer = yield consumer_of(cluster)
    assert (yield gathered(consumer, "events", 2)) == [1, 2]
    assert consumer.skipped == {"events": 1}
    assert consumer.position("events", 0) == 3
    (line,) = logbook.expect("skipped")
    assert "events[0] at offset 1" in line
    yield consumer.close()


@on_loop()
def test_nothing_but_a_bad_value(cluster, writer, logbook):
    """It is told of once, and passed."""
    writer.write("events", [b"{"])
    consumer = yield consumer_of(cluster)
    for _ in range(2):
        assert (yield consumer.consume("events", start=BEGINNING)) == []
    assert len(logbook.expect("skipped")) == 1
    assert consumer.acknowledged == {"events": {0: 1}}
    yield consumer.close()


@on_loop()
def test_raise(cluster, writer):
    writer.write("events", BAD)
    consumer = yield consumer_of(cluster, on_error="raise")
    assert (yield consumer.consume("events", start=BEGINNING)) == [1]
    error = yield failure(consumer.consume("events"))
    assert isinstance(error, DeserializationError)
    assert (error.record.topic, error.record.offset, error.record.value) == ("events", 1, b"{")
    assert "events[0] at offset 1" in str(error)
    assert consumer.acknowledged == {"events": {0: 1}}
    assert (yield consumer.consume("events")) == [2]
    assert consumer.acknowledged == {"events": {0: 2}}
    yield consumer.close()


@gen.coroutine
def slowly(letters, record, error):
    yield gen.sleep(0.01)
    letters.append((record.offset, record.value, type(error)))


@pytest.mark.parametrize(
    "on_error",
    [
        lambda letters: lambda record, error: letters.append((record.offset, record.value, type(error))),
        lambda letters: lambda record, error: slowly(letters, record, error),
    ],
    ids=["function", "coroutine"],
)
@on_loop()
def test_dead_letters(cluster, writer, on_error):
    letters = []
    writer.write("events", BAD)
    consumer = yield consumer_of(cluster, on_error=on_error(letters))
    assert (yield gathered(consumer, "events", 2)) == [1, 2]
    assert letters == [(1, b"{", DeserializationError)]
    yield consumer.close()


@on_loop()
def test_dead_letters_that_fail(cluster, writer, logbook):
    working = []

    def on_error(record, error):
        if not working:
            raise RuntimeError("no such topic")

    writer.write("events", BAD)
    consumer = yield consumer_of(cluster, on_error=on_error)
    assert (yield consumer.consume("events", start=BEGINNING)) == [1]
    for _ in range(2):
        assert isinstance((yield failure(consumer.consume("events"))), RuntimeError)
        assert consumer.position("events", 0) == 1
    working.append(True)
    assert (yield consumer.consume("events")) == [2]
    logbook.expect("on_error failed")
    yield consumer.close()


# Acknowledging


@on_loop()
def test_asking_for_more_acknowledges(cluster, writer):
    writer.write("events", [1, 2])
    writer.write("events", [3])
    consumer = yield consumer_of(cluster)
    yield consumer.consume("events", start=BEGINNING, max_records=2)
    assert consumer.acknowledged == {}
    yield consumer.consume("events", max_records=1)
    assert consumer.acknowledged == {"events": {0: 2}}
    consumer.acknowledge("parts")
    assert consumer.acknowledged == {"events": {0: 2}}
    consumer.acknowledge()
    assert consumer.acknowledged == {"events": {0: 3}}
    yield consumer.close()


@pytest.mark.parametrize("acknowledge", [False, True])
@on_loop()
def test_closing_does_not_acknowledge_unless_told(cluster, writer, acknowledge, caplog):
    caplog.set_level("INFO", "kiel")
    writer.write("events", [1, 2])
    consumer = yield consumer_of(cluster)
    yield gathered(consumer, "events", 2)
    yield consumer.close(acknowledge=acknowledge)
    lines = [record.getMessage() for record in caplog.records if "come again" in record.getMessage()]
    if acknowledge:
        assert (consumer.acknowledged, lines) == ({"events": {0: 2}}, [])
    else:
        assert (consumer.acknowledged, len(lines)) == ({}, 1)
        assert "2 records of events" in lines[0] and "acknowledge" in lines[0]


# Moving about


@on_loop()
def test_seek_and_position(cluster, writer):
    writer.write("events", list(range(10)))
    consumer = yield consumer_of(cluster)
    yield gathered(consumer, "events", 10)
    assert consumer.position("events", 0) == 10
    for offset in (3, 9, 0):
        consumer.seek("events", 0, offset)
        assert consumer.position("events", 0) == offset
        assert (yield consumer.consume("events")) == list(range(offset, 10))
    assert consumer.offsets == {"events": {0: 10}}
    assert consumer.allocation == {"events": [0]}
    yield consumer.close()


@on_loop()
def test_seek_while_consume_waits(cluster, writer):
    writer.write("events", [0, 1, 2])
    consumer = yield consumer_of(cluster)
    yield gathered(consumer, "events", 3)
    waiting = consumer.consume("events")
    yield gen.sleep(0.02)
    consumer.seek("events", 0, 1)
    assert (yield waiting) == [1, 2]
    yield consumer.close()


@on_loop()
def test_seek_while_a_fetch_is_under_way(cluster, writer):
    """What the fetch brings is of another place, and dropped."""
    writer.write("events", [0, 1, 2])
    writer.write("events", [3])
    consumer = yield consumer_of(cluster)
    yield consumer.consume("events", start=BEGINNING)
    cluster.set_rtt(1, 50)
    cluster.track_requests()
    for _ in range(3):
        consumer.seek("events", 0, 3)
        cluster.clear_requests()
        # The fetch that comes in now is of offset 3, and is answered 50 ms later.
        yield until(lambda: cluster.requests("fetch"))
        consumer.seek("events", 0, 1)
        assert (yield gathered(consumer, "events", 3)) == [1, 2, 3]
    yield consumer.close()


@on_loop()
def test_moving_where_nothing_is_allocated(cluster):
    consumer = yield consumer_of(cluster)
    yield consumer.consume("events")
    for call in (
        lambda: consumer.seek("events", 1, 0),
        lambda: consumer.position("parts", 0),
        lambda: consumer.pause("events", [0, 1]),
        lambda: consumer.resume("parts", [0]),
    ):
        with pytest.raises(UsageError, match="isn't allocated"):
            call()
    for offset in (-1, 1.5, None):
        with pytest.raises(ConfigurationError, match="offset"):
            consumer.seek("events", 0, offset)
    assert consumer.paused("events") == []
    yield consumer.close()


@on_loop()
def test_pause_and_resume(cluster, writer):
    consumer = yield consumer_of(cluster)
    yield consumer.consume("parts", start=BEGINNING)
    consumer.pause("parts", [1])
    assert consumer.paused("parts") == [1]
    for value in range(3):
        for partition in (0, 1):
            writer.write("parts", [10 * partition + value], partition=partition)
        assert (yield gathered(consumer, "parts", 1)) == [value]
    consumer.resume("parts")
    assert consumer.paused("parts") == []
    assert (yield gathered(consumer, "parts", 3)) == [10, 11, 12]
    yield consumer.close()


@on_loop()
def test_pausing_what_is_fetched_already(cluster, writer):
    for partition in (0, 1):
        writer.write("parts", [partition] * 3, partition=partition)
    consumer = yield consumer_of(cluster)
    first = yield consumer.consume("parts", start=BEGINNING, max_records=1)
    yield until(lambda: all(consumer.lag("parts").values()))
    consumer.pause("parts", [0])
    assert first + (yield gathered(consumer, "parts", 3 - first[0])) in ([0, 1, 1, 1], [1, 1, 1])
    assert (yield consumer.consume("parts")) == []
    consumer.resume("parts", [0])
    assert len((yield gathered(consumer, "parts", 2 + first[0]))) == 2 + first[0]
    assert consumer.offsets == {"parts": {0: 3, 1: 3}}
    yield consumer.close()


@on_loop()
def test_resuming_wakes_who_waits(cluster, writer):
    writer.write("events", [1, 2])
    consumer = yield consumer_of(cluster, max_wait_time=3000)
    yield consumer.consume("events", start=BEGINNING, max_records=1)
    consumer.pause("events")
    waiting = consumer.consume("events")
    yield gen.sleep(0.05)
    assert not waiting.done()
    began = time.time()
    consumer.resume("events")
    assert (yield waiting) == [2]
    assert time.time() - began < 1
    yield consumer.close()


@on_loop()
def test_lag(cluster, writer):
    writer.write("parts", [1, 2, 3])
    consumer = yield consumer_of(cluster)
    assert consumer.lag("parts") == {}
    yield consumer.consume("parts", start=BEGINNING, max_records=1)
    yield until(lambda: consumer.lag("parts") == {0: 2, 1: 0})
    yield gathered(consumer, "parts", 2)
    assert consumer.lag("parts") == {0: 0, 1: 0}
    yield consumer.close()


# More than one at a time


@on_loop()
def test_two_topics_in_two_coroutines(cluster, writer):
    consumer = yield consumer_of(cluster)
    both = [gathered(consumer, "events", 20), gathered(consumer, "parts", 20)]
    for value in range(20):
        writer.write("events", [value])
        writer.write("parts", [100 + value], partition=value % 2)
        yield gen.sleep(0.005)
    events, parts = yield both
    assert events == list(range(20))
    assert sorted(parts) == list(range(100, 120))
    yield consumer.close()


@on_loop()
def test_two_calls_for_one_topic(cluster, writer):
    consumer = yield consumer_of(cluster)
    waiting = consumer.consume("events", start=BEGINNING)
    with pytest.raises(UsageError, match="events"):
        consumer.consume("events")
    with pytest.raises(UsageError, match="events"):
        consumer.consume_records("events")
    writer.write("events", [1])
    values = yield waiting
    assert values + (yield gathered(consumer, "events", 1 - len(values))) == [1]
    yield consumer.close()


# Closing


@on_loop()
def test_close_while_consume_waits(cluster):
    consumer = yield consumer_of(cluster, max_wait_time=5000)
    waiting = consumer.consume("events")
    yield gen.sleep(0.1)
    assert not waiting.done()
    began = time.time()
    closing = consumer.close()
    assert isinstance((yield failure(waiting)), ClosedError)
    yield closing
    assert time.time() - began < 1
    for call in (
        lambda: consumer.consume("events"),
        lambda: consumer.seek("events", 0, 0),
        lambda: consumer.lag("events"),
    ):
        with pytest.raises(ClosedError):
            call()
    yield consumer.close()


@on_loop()
def test_close_gives_back_every_socket(cluster, writer):
    writer.write("events", [1])
    before = open_files()
    for _ in range(2):
        consumer = yield consumer_of(cluster)
        yield gathered(consumer, "events", 1)
        assert open_files() > before
        yield consumer.close(acknowledge=True)
    # The broker's ends are of this process, too, and close a moment later.
    yield until(lambda: open_files() <= before)


@pytest.mark.parametrize("steps", list(range(0, 40, 3)))
@on_loop()
def test_close_at_any_moment(cluster, writer, steps):
    writer.write("parts", list(range(1000)))
    writer.write("parts", list(range(1000)), partition=1)
    before = open_files()
    consumer = yield consumer_of(cluster)
    waiting = consumer.consume("parts", start=BEGINNING)
    for _ in range(steps):
        yield gen.moment
        yield gen.sleep(0.0005)
    yield consumer.close(timeout_ms=2000)
    try:
        yield gen.with_timeout(consumer.loop.time() + 1, waiting)
    except ClosedError:
        pass
    yield until(lambda: open_files() <= before)


@on_loop()
def test_close_from_within_on_error(cluster, writer):
    closed = []

    @gen.coroutine
    def on_error(record, error):
        yield consumer.close()
        closed.append(True)

    writer.write("events", [b"{"])
    consumer = yield consumer_of(cluster, on_error=on_error)
    assert isinstance((yield failure(consumer.consume("events", start=BEGINNING))), ClosedError)
    assert closed


@on_loop()
def test_close_before_connect_and_while_connecting(cluster):
    consumer = SingleConsumer(cluster.brokers, **QUICK)
    yield consumer.close()
    with pytest.raises(ClosedError):
        consumer.consume("events")
    consumer = SingleConsumer(cluster.brokers, **QUICK)
    connecting = consumer.connect()
    yield consumer.close()
    yield failure(connecting)
    with pytest.raises(ClosedError):
        consumer.consume("events")


@on_loop()
def test_before_connect(cluster, logbook):
    consumer = SingleConsumer(cluster.brokers)
    for call in (
        lambda: consumer.consume("events"),
        lambda: consumer.seek("events", 0, 0),
        lambda: consumer.lag("events"),
    ):
        with pytest.raises(UsageError, match="connect"):
            call()
    cluster.broker_down()
    consumer = SingleConsumer(cluster.brokers, **QUICK)
    assert isinstance((yield failure(consumer.connect())), NoBrokersError)
    logbook.expect("no broker could be reached")
    yield consumer.close()


# Settings


@pytest.mark.parametrize(
    "name, bad",
    [
        ("deserializer", "json"),
        ("max_wait_time", 0),
        ("max_wait_time", "1000"),
        ("min_bytes", 0),
        ("max_bytes", 0),
        ("max_bytes", 1.5),
        ("max_bytes", 2 ** 31),
        ("prefetch_bytes", 1000),
        ("on_error", "ignore"),
        ("on_error", None),
        ("auto_offset_reset", "beginning"),
        ("isolation_level", "serializable"),
        ("request_timeout_ms", 0),
        ("brokers", ""),
    ],
)
def test_settings_that_can_not_be(name, bad):
    with pytest.raises(ConfigurationError, match=name):
        SingleConsumer(**dict({"brokers": "localhost"}, **{name: bad}))


def test_a_setting_that_is_not_one():
    with pytest.raises(TypeError):
        SingleConsumer("localhost", group="mine")


@on_loop()
def test_arguments_that_can_not_be(cluster, writer):
    consumer = yield consumer_of(cluster)
    for topic in (None, b"", u"", 7, "t" * 250, ["events"]):
        with pytest.raises(ConfigurationError, match="topic"):
            consumer.consume(topic)
    for start in ("beginning", 0, 1357017300000, 1.5, True):
        with pytest.raises(ConfigurationError, match="start"):
            consumer.consume("events", start=start)
    writer.write("events", [1])
    assert (yield gathered(consumer, "events", 1)) == [1]
    yield consumer.close()
