"""SingleConsumer against scripted brokers: what lies in the log, what the cluster does, and what reaches the user."""
import datetime
import time

import pytest
from tornado import gen

from kiel import SingleConsumer
from kiel.exc import (
    AuthorizationError,
    BrokerError,
    ClosedError,
    ConfigurationError,
    CorruptRecordError,
    DeserializationError,
    InvalidTopicError,
    KielError,
    NoOffsetsError,
    UnknownTopicError,
    UsageError,
)
from tests.support import scripted
from tests.support.batches import (
    ABORT,
    APPEND_TIME,
    COMMIT,
    TRANSACTIONAL,
    batch,
    batch_of,
    changed,
    empty,
    flipped,
    marker,
)
from tests.support.loop import on_loop
from tests.support.scripted import Error, HangUp, Late, Never, ScriptedBroker, ScriptedCluster
from tests.support.waiting import failure, until

BEGINNING, END = SingleConsumer.BEGINNING, SingleConsumer.END
LEVELS = ("read_uncommitted", "read_committed")


@gen.coroutine
def consumer_of(kafka, **options):
    settings = dict(
        deserializer=bytes,
        max_wait_time=200,
        request_timeout_ms=1000,
        connect_timeout_ms=1000,
        api_timeout_ms=2000,
        reconnect_backoff_ms=20,
        reconnect_backoff_max_ms=100,
        retry_backoff_ms=20,
        retry_backoff_max_ms=100,
    )
    settings.update(options)
    consumer = SingleConsumer(getattr(kafka, "addresses", None) or kafka.address, **settings)
    yield consumer.connect()
    raise gen.Return(consumer)


@gen.coroutine
def consume(consumer, count, topic="t", start=BEGINNING, seconds=5):
    """The next `count` values, or a few more; in no more than `seconds`."""
    values, end = [], time.time() + seconds
    while len(values) < count:
        assert time.time() < end, "only %r came" % (values,)
        values += yield consumer.consume(topic, start=start)
    raise gen.Return(values)


@gen.coroutine
def next_error(consumer, topic="t", start=BEGINNING, seconds=3):
    """(the values until consume() raises, its error)."""
    values, end = [], time.time() + seconds
    while time.time() < end:
        try:
            values += yield consumer.consume(topic, start=start)
        except KielError as error:
            raise gen.Return((values, error))
    raise AssertionError("no error, but %r" % (values,))


def fetches(kafka, topic="t"):
    """[(time, {partition: offset})] of the fetches that asked for the topic."""
    found = []
    for call in kafka.seen("fetch"):
        offsets = {
            part.partition: part.fetch_offset
            for asked in call.body.topics if asked.topic == topic
            for part in asked.partitions
        }
        if offsets:
            found.append((call.time, offsets))
    return found


# -- what lies in the log


@on_loop()
def test_batches_of_a_partition_in_order():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        for number in range(5):
            broker.cluster.append("t", 0, batch([b"%d-%d" % (number, which) for which in range(3)]))
        consumer = yield consumer_of(broker)
        values = yield consume(consumer, 15)
        assert values == [b"%d-%d" % (number, which) for number in range(5) for which in range(3)]
        assert consumer.position("t", 0) == 15
        yield consumer.close()


@on_loop()
def test_a_fetch_begins_in_the_middle_of_a_batch():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.cluster.append("t", 0, batch([b"%d" % number for number in range(10)], codec=1))
        consumer = yield consumer_of(broker)
        yield consume(consumer, 10)
        consumer.seek("t", 0, 7)
        values = yield consume(consumer, 3)
        assert values == [b"7", b"8", b"9"]
        yield consumer.close()


@on_loop()
def test_keys_and_values_of_each_kind_come_back_different():
    kinds = (None, b"", b"x")
    pairs = [(key, value) for key in kinds for value in kinds]
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.cluster.append("t", 0, batch_of([(5, key, value, None) for key, value in pairs]))
        consumer = yield consumer_of(broker)
        records = yield consumer.consume_records("t", start=BEGINNING)
        assert [(record.key, record.value) for record in records] == pairs
        yield consumer.close()


@on_loop()
def test_records_say_all_there_is_to_say():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {3: 1}}
        headers = [("a", b"1"), ("a", None), (u"\u2603", b"")]
        broker.cluster.append("t", 3, batch_of([(1000, b"k", b"v", headers), (900, None, None, None)]))
        consumer = yield consumer_of(broker)
        first, second = yield consumer.consume_records("t", start=BEGINNING)
        assert first == ("t", 3, 0, 1000, "create", b"k", b"v", headers)
        assert second == ("t", 3, 1, 900, "create", None, None, [])
        yield consumer.close()


@on_loop()
def test_log_append_time_is_every_records_time():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.cluster.append("t", 0, batch([b"a", b"b", b"c"], attributes=APPEND_TIME, max_timestamp=77777))
        consumer = yield consumer_of(broker)
        records = yield consumer.consume_records("t", start=BEGINNING)
        assert [(record.timestamp, record.timestamp_type) for record in records] == [(77777, "append")] * 3
        yield consumer.close()


@on_loop()
def test_records_and_batches_that_compaction_has_removed():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        log = broker.cluster.log("t", 0)
        broker.cluster.append("t", 0, batch([b"a", b"b"], last_offset_delta=9))
        broker.cluster.append("t", 0, empty(last_offset_delta=4))
        # Offsets 15 to 29 are gone with their batches.
        log.end = 30
        broker.cluster.append("t", 0, batch([b"c"], last_offset_delta=5))
        consumer = yield consumer_of(broker)
        assert (yield consume(consumer, 3)) == [b"a", b"b", b"c"]
        assert (yield consumer.consume("t")) == []
        assert consumer.position("t", 0) == 36
        assert consumer.lag("t") == {0: 0}
        yield consumer.close()


@pytest.mark.parametrize("level", LEVELS)
@on_loop()
def test_a_log_of_nothing_but_an_abort_marker(level):
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.cluster.append("t", 0, marker(ABORT, 7))
        consumer = yield consumer_of(broker, isolation_level=level)
        assert (yield consumer.consume("t", start=BEGINNING)) == []
        assert consumer.position("t", 0) == 1
        yield until(lambda: fetches(broker)[-1][1] == {0: 1})
        broker.cluster.append("t", 0, batch([b"after"]))
        assert (yield consume(consumer, 1)) == [b"after"]
        yield consumer.close()


@pytest.mark.parametrize("level", LEVELS)
@on_loop()
def test_aborted_and_then_committed_data(level):
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        log = broker.cluster.log("t", 0)
        log.aborted = [(7, 0)]
        for data in (
            batch([b"aborted 0", b"aborted 1"], attributes=TRANSACTIONAL, producer_id=7),
            batch([b"plain"]),
            batch([b"other's"], attributes=TRANSACTIONAL, producer_id=8),
            marker(ABORT, 7),
            batch([b"committed"], attributes=TRANSACTIONAL, producer_id=7),
            marker(COMMIT, 8),
            marker(COMMIT, 7),
        ):
            log.put(scripted.at_offset(data, log.end), last_offset=log.end + (1 if b"aborted" in data else 0))
        consumer = yield consumer_of(broker, isolation_level=level)
        expected = [b"plain", b"other's", b"committed"]
        if level == "read_uncommitted":
            expected = [b"aborted 0", b"aborted 1"] + expected
        assert (yield consume(consumer, len(expected))) == expected
        assert (yield consumer.consume("t")) == []
        assert consumer.position("t", 0) == log.end == 8
        yield consumer.close()


@pytest.mark.parametrize("level", LEVELS)
@on_loop()
def test_markers_that_no_list_of_aborted_transactions_names(level):
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        for data in (marker(ABORT, 5), batch([b"a"]), marker(COMMIT, 6), marker(17, 6), batch([b"b"])):
            broker.cluster.append("t", 0, data)
        consumer = yield consumer_of(broker, isolation_level=level)
        assert (yield consume(consumer, 2)) == [b"a", b"b"]
        assert consumer.position("t", 0) == 5
        yield consumer.close()


@on_loop()
def test_what_isnt_committed_yet_waits():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        log = broker.cluster.log("t", 0)
        broker.cluster.append("t", 0, batch([b"a"]))
        broker.cluster.append("t", 0, batch([b"open"], attributes=TRANSACTIONAL))
        log.stable = 1
        consumer = yield consumer_of(broker, isolation_level="read_committed")
        assert (yield consume(consumer, 1)) == [b"a"]
        assert (yield consumer.consume("t")) == []
        assert consumer.position("t", 0) == 1 and consumer.lag("t") == {0: 0}
        broker.cluster.append("t", 0, marker(COMMIT, -1))
        log.stable = None
        assert (yield consume(consumer, 1)) == [b"open"]
        yield consumer.close()


@on_loop()
def test_a_record_larger_than_the_fetch_limit_is_delivered():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.cluster.append("t", 0, batch([b"x" * 5000]))
        broker.cluster.append("t", 0, batch([b"small"]))
        consumer = yield consumer_of(broker, max_bytes=1000)
        values = yield consume(consumer, 2)
        assert [len(value) for value in values] == [5000, 5]
        yield consumer.close()


@on_loop()
def test_large_records_in_each_of_eight_partitions():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {number: 1 for number in range(8)}}
        for number in range(8):
            broker.cluster.append("t", number, batch([b"%d" % number + b"x" * 600000]))
            broker.cluster.append("t", number, batch([b"%d" % number]))
        consumer = yield consumer_of(broker)
        values = yield consume(consumer, 16, seconds=10)
        assert sorted(value[:1] for value in values) == sorted([b"%d" % number for number in range(8)] * 2)
        assert sorted(map(len, values)) == [1] * 8 + [600001] * 8
        yield consumer.close()


# -- what is wrong in the log

WRONG = {
    "a flipped byte": (flipped(batch([b"bad"])), "checksum"),
    "an unknown codec": (changed(batch([b"bad"]), attributes=7), "7"),
    "a codec that isn't there": (changed(batch([b"bad"]), attributes=4), "zstd"),
    "compressed nonsense": (changed(batch([b"bad"]), attributes=1), "gzip"),
    "more records than bytes": (changed(batch([b"bad"]), count=1000), "1000"),
    "the old message format": (changed(batch([b"bad"]), magic=1), "0.11"),
    "an unknown format": (changed(batch([b"bad"]), magic=9), "magic 9"),
}


@pytest.mark.parametrize("name", sorted(WRONG))
@on_loop()
def test_a_batch_that_cant_be_read_is_told_and_not_passed_over(name):
    data, hint = WRONG[name]
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}, "other": {0: 1}}
        log = broker.cluster.log("t", 0)
        broker.cluster.append("t", 0, batch([b"a", b"b"]))
        log.put(scripted.at_offset(data, 2))
        broker.cluster.append("t", 0, batch([b"after"]))
        broker.cluster.append("other", 0, batch([b"fine"]))
        consumer = yield consumer_of(broker)
        began = time.time()
        values, error = yield next_error(consumer)
        assert time.time() - began < 2
        assert values == [b"a", b"b"]
        assert isinstance(error, CorruptRecordError)
        assert (error.topic, error.partition, error.offset) == ("t", 0, 2)
        assert "t[0] at offset 2" in str(error) and hint in str(error)
        assert (yield consume(consumer, 1, topic="other")) == [b"fine"]
        assert consumer.position("t", 0) == 2
        consumer.seek("t", 0, 3)
        assert (yield consume(consumer, 1)) == [b"after"]
        yield consumer.close()


@on_loop()
def test_a_corrupt_batch_is_told_again_without_haste_as_long_as_it_is_there():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        log = broker.cluster.log("t", 0)
        log.put(flipped(batch([b"x"])))
        broker.cluster.append("t", 0, batch([b"after"]))
        consumer = yield consumer_of(broker)
        began = time.time()
        for _ in range(3):
            values, error = yield next_error(consumer)
            assert values == [] and isinstance(error, CorruptRecordError) and error.offset == 0
        assert len(fetches(broker)) <= 2 * (time.time() - began) + 1
        # Once it is repaired, the next fetch gets it.
        log.batches.pop(0)
        log.batches.insert(0, log.batches[0]._replace(base_offset=0, last_offset=0, data=batch([b"x"])))
        assert (yield consume(consumer, 2)) == [b"x", b"after"]
        yield consumer.close()


@on_loop()
def test_other_partitions_of_the_topic_go_on_past_a_corrupt_one():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1, 1: 1}}
        broker.cluster.log("t", 0).put(flipped(batch([b"bad"])))
        broker.cluster.append("t", 1, batch([b"good"]))
        consumer = yield consumer_of(broker)
        values, errors = [], []
        began = time.time()
        while time.time() < began + 1.5:
            try:
                values += yield consumer.consume("t", start=BEGINNING)
            except CorruptRecordError as error:
                errors.append(error.offset)
            if values == [b"good"] and errors:
                broker.cluster.append("t", 1, batch([b"more"]))
        assert values[:2] == [b"good", b"more"] and set(errors) == {0}
        assert 1 <= len(errors) <= 3
        assert consumer.offsets == {"t": {0: 0, 1: len(values)}}
        corrupt_fetches = [at for at, offsets in fetches(broker) if 0 in offsets]
        assert len(corrupt_fetches) <= 2 * (time.time() - began) + 1
        yield consumer.close()


# -- values that can't be deserialized


def strict(value):
    if value.startswith(b"bad"):
        raise ValueError("no good")
    return value.decode("ascii")


@on_loop()
def test_the_newest_record_cant_be_deserialized(logbook):
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.cluster.append("t", 0, batch([b"a", b"bad"]))
        consumer = yield consumer_of(broker, deserializer=strict)
        assert (yield consume(consumer, 1)) == ["a"]
        assert (yield consumer.consume("t")) == []
        assert len(logbook.expect("t[0] at offset 1")) == 1
        assert consumer.skipped == {"t": 1} and consumer.position("t", 0) == 2
        assert fetches(broker)[-1][1] == {0: 2}
        yield consumer.close()


@on_loop()
def test_a_record_that_cant_be_deserialized_raises_once_and_in_its_place():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.cluster.append("t", 0, batch([b"a", b"bad", b"b"]))
        consumer = yield consumer_of(broker, deserializer=strict, on_error="raise")
        values, error = yield next_error(consumer)
        assert values == ["a"]
        assert isinstance(error, DeserializationError) and isinstance(error.cause, ValueError)
        assert error.record.offset == 1 and error.record.value == b"bad"
        assert (yield consume(consumer, 1)) == ["b"]
        yield consumer.close()


@on_loop()
def test_a_dead_letter_function_gets_the_record():
    dead = []

    @gen.coroutine
    def bury(record, error):
        yield gen.moment
        dead.append((record.offset, record.value, type(error)))

    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.cluster.append("t", 0, batch([b"a", b"bad", b"b"]))
        consumer = yield consumer_of(broker, deserializer=strict, on_error=bury)
        assert (yield consume(consumer, 2)) == ["a", "b"]
        assert dead == [(1, b"bad", DeserializationError)]
        yield consumer.close()


# -- offsets


@on_loop()
def test_where_to_start():
    begin = datetime.datetime(2020, 1, 1)
    milliseconds = 1577836800000
    with ScriptedBroker() as broker:
        broker.topics = {name: {0: 1} for name in ("beginning", "end", "default", "time", "never", "ago")}
        now = int(time.time() * 1000)
        for name in broker.topics:
            broker.cluster.append(name, 0, batch([b"0", b"1", b"2"], timestamp=milliseconds))
            broker.cluster.append(name, 0, batch([b"3", b"4"], timestamp=now - 1000))
        consumer = yield consumer_of(broker)
        starts = {
            "beginning": BEGINNING,
            "end": END,
            "default": None,
            "time": begin + datetime.timedelta(milliseconds=1),
            "never": datetime.datetime(2199, 1, 1),
            "ago": datetime.timedelta(minutes=1),
        }
        for name, start in starts.items():
            yield consumer.determine_offsets(name, start)
        positions = {name: consumer.position(name, 0) for name in starts}
        assert positions == {"beginning": 0, "end": 5, "default": 5, "time": 1, "never": 5, "ago": 3}
        yield consumer.close()


@on_loop()
def test_an_aware_datetime_to_start_at():
    class East(datetime.tzinfo):
        def utcoffset(self, when):
            return datetime.timedelta(hours=5)

        def dst(self, when):
            return datetime.timedelta(0)

    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.cluster.append("t", 0, batch([b"0", b"1"], timestamp=1577836800000))
        consumer = yield consumer_of(broker)
        start = datetime.datetime(2020, 1, 1, 5, 0, 0, 1000, East())
        assert (yield consume(consumer, 1, start=start)) == [b"1"]
        yield consumer.close()


@pytest.mark.parametrize("start", ["earliest", 0, 3.5, datetime.date(2020, 1, 1)])
@on_loop()
def test_a_start_that_cant_be_right(start):
    with ScriptedBroker() as broker:
        consumer = yield consumer_of(broker)
        with pytest.raises(ConfigurationError):
            yield consumer.consume("t", start=start)
        yield consumer.close()


@pytest.mark.parametrize("policy, values", [("earliest", [b"5", b"6"]), ("latest", [b"new"])])
@on_loop()
def test_an_offset_out_of_range_is_reset_for_that_partition_alone(policy, values, logbook):
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1, 1: 1}}
        for number in range(7):
            broker.cluster.append("t", 0, batch([b"%d" % number]))
        broker.cluster.append("t", 1, batch([b"other"]))
        consumer = yield consumer_of(broker, auto_offset_reset=policy)
        yield consume(consumer, 8)
        broker.cluster.log("t", 0).truncate(5)
        consumer.seek("t", 0, 2)
        yield until(lambda: consumer.position("t", 0) in (5, 7))
        broker.cluster.append("t", 0, batch([b"new"]))
        assert (yield consume(consumer, len(values)))[:2] == values
        assert consumer.position("t", 1) == 1
        assert len(logbook.expect("t[0]: offset 2 is out of range")) == 1
        yield consumer.close()


@on_loop()
def test_an_offset_out_of_range_without_a_reset():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1, 1: 1}}
        broker.cluster.append("t", 0, batch([b"a", b"b"]))
        consumer = yield consumer_of(broker, auto_offset_reset="none")
        yield consume(consumer, 2)
        consumer.seek("t", 0, 99)
        _, error = yield next_error(consumer)
        assert isinstance(error, NoOffsetsError)
        assert "t[0]" in str(error) and "99" in str(error)
        broker.cluster.append("t", 1, batch([b"other"]))
        assert (yield consume(consumer, 1)) == [b"other"]
        consumer.seek("t", 0, 1)
        assert (yield consume(consumer, 1)) == [b"b"]
        yield consumer.close()


@on_loop()
def test_what_was_fetched_before_the_log_was_cut_is_still_handed_out(logbook):
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.cluster.append("t", 0, batch([b"a", b"b", b"c"]))
        consumer = yield consumer_of(broker)
        assert (yield consumer.consume("t", start=BEGINNING, max_records=1)) == [b"a"]
        broker.cluster.log("t", 0).truncate(10)
        yield gen.sleep(0.3)
        broker.cluster.append("t", 0, batch([b"d"]))
        assert (yield consume(consumer, 3)) == [b"b", b"c", b"d"]
        logbook.allow("out of range")
        yield consumer.close()


@on_loop()
def test_offsets_for_times():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1, 1: 1}}
        broker.cluster.append("t", 0, batch([b"0", b"1"], timestamp=5000))
        consumer = yield consumer_of(broker)
        found = yield consumer.offsets_for_times({"t": {0: 5001, 1: 0}})
        assert found == {"t": {0: (1, 5001), 1: None}}
        yield consumer.close()


@on_loop()
def test_offsets_are_asked_for_again_while_the_leader_is_away():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.cluster.append("t", 0, batch([b"a"]))
        broker.on("offset", [Error(6), Error(78), HangUp()])
        consumer = yield consumer_of(broker)
        assert (yield consume(consumer, 1)) == [b"a"]
        assert len(broker.seen("offset")) == 4
        yield consumer.close()


# -- consume()


@on_loop()
def test_nothing_to_read_takes_as_long_as_max_wait_time():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        consumer = yield consumer_of(broker, max_wait_time=200)
        yield consumer.consume("t")
        for _ in range(3):
            began = time.time()
            assert (yield consumer.consume("t")) == []
            assert 0.19 < time.time() - began < 0.5
        assert len(fetches(broker)) < 15
        yield consumer.close()


@on_loop()
def test_a_record_is_handed_out_as_soon_as_it_is_there():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        consumer = yield consumer_of(broker, max_wait_time=5000)
        yield consumer.determine_offsets("t")
        asked = consumer.consume("t")
        yield gen.sleep(0.1)
        began = time.time()
        broker.cluster.append("t", 0, batch([b"now"]))
        assert (yield asked) == [b"now"]
        assert time.time() - began < 0.3
        yield consumer.close()


@on_loop()
def test_max_records():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1, 1: 1}}
        for number in range(2):
            broker.cluster.append("t", number, batch([b"%d-%d" % (number, which) for which in range(10)]))
        consumer = yield consumer_of(broker)
        seen = []
        while len(seen) < 20:
            some = yield consumer.consume("t", start=BEGINNING, max_records=3)
            assert 0 < len(some) <= 3
            seen += some
        for number in range(2):
            own = [value for value in seen if value.startswith(b"%d-" % number)]
            assert own == [b"%d-%d" % (number, which) for which in range(10)]
        yield consumer.close()


@on_loop()
def test_asking_for_the_next_batch_acknowledges_the_one_before():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.cluster.append("t", 0, batch([b"a", b"b", b"c"]))
        consumer = yield consumer_of(broker)
        yield consumer.consume("t", start=BEGINNING, max_records=2)
        assert consumer.acknowledged == {}
        yield consumer.consume("t", max_records=1)
        assert consumer.acknowledged == {"t": {0: 2}}
        consumer.acknowledge()
        assert consumer.acknowledged == {"t": {0: 3}}
        yield consumer.close()


@on_loop()
def test_two_calls_for_one_topic_at_once():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}, "u": {0: 1}}
        consumer = yield consumer_of(broker)
        first = consumer.consume("t")
        other = consumer.consume("u")
        with pytest.raises(UsageError):
            yield consumer.consume("t")
        assert (yield first) == [] and (yield other) == []
        yield consumer.close()


@on_loop()
def test_pause_and_resume():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1, 1: 1}}
        consumer = yield consumer_of(broker)
        yield consumer.consume("t")
        consumer.pause("t", [0])
        assert consumer.paused("t") == [0]
        for number in range(2):
            broker.cluster.append("t", number, batch([b"%d" % number]))
        assert (yield consume(consumer, 1)) == [b"1"]
        assert (yield consumer.consume("t")) == []
        consumer.resume("t")
        assert (yield consume(consumer, 1)) == [b"0"]
        yield consumer.close()


@on_loop()
def test_lag():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.cluster.append("t", 0, batch([b"a", b"b", b"c"]))
        consumer = yield consumer_of(broker)
        yield consumer.consume("t", start=BEGINNING, max_records=1)
        assert consumer.lag("t") == {0: 2}
        yield consumer.close()


@on_loop()
def test_what_is_fetched_ahead_is_bounded():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {number: 1 for number in range(4)}}
        for number in range(4):
            for _ in range(50):
                broker.cluster.append("t", number, batch([b"x" * 1000]))
        consumer = yield consumer_of(broker, max_bytes=4000, prefetch_bytes=10000)
        handed_out = yield consumer.consume("t", start=BEGINNING)
        yield gen.sleep(0.4)
        # What came and isn't handed out yet is no more than the bound, but for the last batch.
        assert broker.cluster.served_bytes <= len(handed_out) * 1100 + 10000 + 1100
        assert len((yield consume(consumer, 200 - len(handed_out)))) == 200 - len(handed_out)
        yield consumer.close()


@pytest.mark.parametrize("max_bytes, asked_for", [(2 ** 20, 2 ** 21), (2 ** 22, 2 ** 22)])
@on_loop()
def test_responses_are_not_so_large_that_reading_one_holds_the_loop(max_bytes, asked_for):
    with ScriptedBroker() as broker:
        broker.topics = {"t": {number: 1 for number in range(32)}}
        consumer = yield consumer_of(broker, max_bytes=max_bytes)
        yield consumer.consume("t", start=BEGINNING)
        assert {call.body.max_bytes for call in broker.seen("fetch")} == {asked_for}
        yield consumer.close()


@on_loop()
def test_one_fetch_at_a_time_for_each_broker():
    with ScriptedCluster(brokers=2) as kafka:
        kafka.topics = {"t": {number: 1 + number % 2 for number in range(6)}, "u": {0: 1, 1: 2}}
        for broker in kafka.brokers:
            broker.on("fetch", Late(0.05))
        consumer = yield consumer_of(kafka)
        for _ in range(3):
            yield [consumer.consume("t"), consumer.consume("u")]
        assert [broker.most_waiting["fetch"] for broker in kafka.brokers] == [1, 1]
        yield consumer.close()


@on_loop()
def test_several_brokers_are_fetched_from_at_once():
    with ScriptedCluster(brokers=2) as kafka:
        kafka.topics = {"t": {0: 1, 1: 2}}
        kafka.append("t", 1, batch([b"fast"]))
        kafka.brokers[0].on("fetch", Never())
        consumer = yield consumer_of(kafka)
        began = time.time()
        assert (yield consume(consumer, 1)) == [b"fast"]
        assert time.time() - began < 0.6
        yield consumer.close()


# -- the cluster moves


@on_loop()
def test_a_leader_that_moves_is_followed():
    with ScriptedCluster(brokers=2) as kafka:
        kafka.topics = {"t": {0: 1}}
        kafka.append("t", 0, batch([b"a"]))
        consumer = yield consumer_of(kafka)
        assert (yield consume(consumer, 1)) == [b"a"]
        kafka.move("t", 0, 2)
        kafka.append("t", 0, batch([b"b"]))
        assert (yield consume(consumer, 1)) == [b"b"]
        assert kafka.brokers[1].seen("fetch")
        yield consumer.close()


@on_loop()
def test_a_partition_without_a_leader_is_waited_for():
    with ScriptedCluster(brokers=2) as kafka:
        kafka.topics = {"t": {0: 1, 1: 2}}
        consumer = yield consumer_of(kafka)
        yield consumer.consume("t")
        kafka.topics["t"][0] = None
        kafka.append("t", 1, batch([b"other"]))
        assert (yield consume(consumer, 1)) == [b"other"]
        began, count = time.time(), len(kafka.seen("metadata"))
        yield gen.sleep(0.5)
        assert 1 <= len(kafka.seen("metadata")) - count <= 10 * (time.time() - began) + 10
        kafka.move("t", 0, 2)
        kafka.append("t", 0, batch([b"back"]))
        assert (yield consume(consumer, 1)) == [b"back"]
        yield consumer.close()


@on_loop()
def test_one_of_two_brokers_refuses_and_the_others_partitions_work():
    with ScriptedCluster(brokers=2) as kafka:
        kafka.topics = {"t": {0: 1, 1: 2}}
        consumer = yield consumer_of(kafka)
        yield consumer.consume("t")
        kafka.brokers[0].down()
        for number in range(3):
            kafka.append("t", 1, batch([b"%d" % number]))
            assert (yield consume(consumer, 1)) == [b"%d" % number]
        kafka.append("t", 0, batch([b"waited"]))
        kafka.brokers[0].up()
        assert (yield consume(consumer, 1)) == [b"waited"]
        yield consumer.close()


@on_loop()
def test_all_brokers_are_away_for_a_while(logbook):
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.cluster.append("t", 0, batch([b"a"]))
        consumer = yield consumer_of(broker)
        assert (yield consume(consumer, 1)) == [b"a"]
        broker.down()
        began = time.time()
        for _ in range(3):
            assert (yield consumer.consume("t")) == []
        assert 0.55 < time.time() - began < 1.5
        broker.cluster.append("t", 0, batch([b"b"]))
        broker.up()
        assert (yield consume(consumer, 1)) == [b"b"]
        assert len(logbook.expect("no broker could be reached")) == 1
        yield consumer.close()


@on_loop()
def test_idle_sockets_that_the_broker_closes_go_unnoticed():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        consumer = yield consumer_of(broker)
        yield consumer.consume("t")
        broker.disconnect()
        broker.cluster.append("t", 0, batch([b"a"]))
        assert (yield consume(consumer, 1)) == [b"a"]
        assert (yield consumer.consume("t")) == []
        yield consumer.close()


@on_loop()
def test_a_half_open_socket_is_found_by_the_request_time_out():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        consumer = yield consumer_of(broker, request_timeout_ms=300)
        yield consumer.consume("t")
        broker.on("fetch", [Never()])
        yield until(lambda: broker.scripted_left("fetch") == 0)
        broker.cluster.append("t", 0, batch([b"a"]))
        assert (yield consume(consumer, 1)) == [b"a"]
        yield consumer.close()


@on_loop()
def test_partitions_that_are_added_are_read_from_their_beginning():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.cluster.append("t", 0, batch([b"old"]))
        consumer = yield consumer_of(broker, metadata_max_age_ms=1000)
        assert (yield consumer.consume("t")) == []
        broker.topics["t"].update({1: 1, 2: 1})
        for number in range(3):
            broker.cluster.append("t", number, batch([b"%d" % number]))
        values = yield consume(consumer, 3)
        assert sorted(values) == [b"0", b"1", b"2"]
        assert consumer.allocation == {"t": [0, 1, 2]}
        yield consumer.close()


@on_loop()
def test_a_topic_is_deleted_while_others_flow_and_then_made_again():
    with ScriptedBroker() as broker:
        broker.cluster.auto_create = 1
        broker.topics = {"gone": {0: 1}, "kept": {0: 1}}
        broker.cluster.append("gone", 0, batch([b"before"]))
        consumer = yield consumer_of(broker)
        assert (yield consume(consumer, 1, topic="gone")) == [b"before"]
        assert (yield consumer.consume("kept")) == []
        broker.cluster.delete("gone")
        errors, end = [], time.time() + 4
        while time.time() < end:
            try:
                assert (yield consumer.consume("gone")) == []
            except KielError as error:
                errors.append(error)
                if len(errors) == 1:
                    end = time.time() + 1
            broker.cluster.append("kept", 0, batch([b"flows"]))
            assert (yield consume(consumer, 1, topic="kept"))[:1] == [b"flows"]
        assert [type(error) for error in errors] == [UnknownTopicError] and "gone" in str(errors[0])
        assert set(broker.topics) == {"kept"}
        broker.topics["gone"] = {0: 1}
        broker.cluster.append("gone", 0, batch([b"%d" % number for number in range(10)]))
        values = yield consume(consumer, 10, topic="gone", start=None)
        assert values == [b"%d" % number for number in range(10)]
        yield consumer.close()


@on_loop()
def test_a_topic_is_deleted_and_made_again_at_once(logbook):
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.cluster.append("t", 0, batch([b"old"] * 20))
        consumer = yield consumer_of(broker, metadata_max_age_ms=1000)
        yield consume(consumer, 20)
        broker.cluster.delete("t")
        broker.topics["t"] = {0: 1}
        broker.cluster.append("t", 0, batch([b"%d" % number for number in range(10)]))
        values = yield consume(consumer, 10)
        assert values == [b"%d" % number for number in range(10)]
        # It depends on what comes first, the new metadata or a fetch at an offset that the new log hasn't got.
        logbook.allow("t[0]: offset 20 is out of range")
        yield consumer.close()


@pytest.mark.parametrize("code, kind", [(17, InvalidTopicError), (29, AuthorizationError)])
@on_loop()
def test_a_topic_that_is_refused_fails_in_time_and_alone(code, kind):
    with ScriptedBroker() as broker:
        broker.topics = {"good": {0: 1}}
        broker.cluster.topic_errors = {"bad": code}
        broker.cluster.append("good", 0, batch([b"a"]))
        consumer = yield consumer_of(broker)
        began = time.time()
        error = yield failure(consumer.consume("bad"))
        assert time.time() - began < 2
        assert type(error) is kind and error.code == code and "bad" in str(error)
        assert len(broker.seen("metadata")) <= 1 + 3
        assert (yield consume(consumer, 1, topic="good")) == [b"a"]
        yield consumer.close()


@on_loop()
def test_an_authorization_that_is_withdrawn():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}, "other": {0: 1}}
        consumer = yield consumer_of(broker)
        yield [consumer.consume("t"), consumer.consume("other")]
        broker.on("fetch", Error(29, about=["t"]))
        _, error = yield next_error(consumer)
        assert isinstance(error, AuthorizationError) and "t[0]" in str(error)
        broker.cluster.append("other", 0, batch([b"flows"]))
        assert (yield consume(consumer, 1, topic="other")) == [b"flows"]
        broker.on("fetch", None)
        broker.cluster.append("t", 0, batch([b"allowed again"]))
        assert (yield consume(consumer, 1)) == [b"allowed again"]
        yield consumer.close()


@on_loop()
def test_a_topic_that_doesnt_exist_yet():
    with ScriptedBroker() as broker:
        consumer = yield consumer_of(broker)
        assert isinstance((yield failure(consumer.consume("t"))), UnknownTopicError)
        broker.topics = {"t": {0: 1}}
        broker.cluster.append("t", 0, batch([b"a"]))
        assert (yield consume(consumer, 1, start=None)) == [b"a"]
        yield consumer.close()


@pytest.mark.parametrize("code", [3, 5, 6, 9, 74, 75, 78, 56, 7])
@on_loop()
def test_errors_that_pass_are_waited_out_without_haste(code):
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.cluster.append("t", 0, batch([b"a"]))
        broker.on("fetch", Error(code))
        consumer = yield consumer_of(broker, max_wait_time=100, retry_backoff_ms=50, retry_backoff_max_ms=100)
        began = time.time()
        for _ in range(2):
            assert (yield consumer.consume("t", start=BEGINNING)) == []
        assert len(fetches(broker)) <= 40 * (time.time() - began) + 2
        assert len(broker.seen("metadata")) <= 10 * (time.time() - began) + 10
        broker.on("fetch", None)
        assert (yield consume(consumer, 1)) == [b"a"]
        yield consumer.close()


# zstd asked for in a version that can't carry it, a broken broker, and a number that no table knows.
@pytest.mark.parametrize(
    "code, name", [(76, "UNSUPPORTED_COMPRESSION_TYPE"), (-1, "UNKNOWN_SERVER_ERROR"), (12345, "UNKNOWN_CODE")]
)
@on_loop()
def test_errors_that_do_not_pass_are_told(code, name):
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}, "other": {0: 1}}
        broker.cluster.append("other", 0, batch([b"flows"]))
        broker.on("fetch", Error(code, about=["t"]))
        consumer = yield consumer_of(broker)
        began = time.time()
        values, error = yield next_error(consumer)
        assert time.time() - began < 2
        assert isinstance(error, BrokerError) and error.code == code and values == []
        assert name in str(error) and "t[0]" in str(error)
        assert (yield consume(consumer, 1, topic="other")) == [b"flows"]
        assert consumer.position("t", 0) == 0
        yield consumer.close()


# -- closing


@on_loop()
def test_close_ends_a_consume_that_waits():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        consumer = yield consumer_of(broker, max_wait_time=20000)
        yield consumer.determine_offsets("t")
        asked = consumer.consume("t")
        yield until(lambda: broker.seen("fetch"))
        began = time.time()
        yield consumer.close()
        assert isinstance((yield failure(asked)), ClosedError)
        assert time.time() - began < 0.5
        yield until(lambda: broker.open_connections == 0)
        assert isinstance((yield failure(gen.maybe_future(call_of(consumer)))), ClosedError)


@gen.coroutine
def call_of(consumer):
    yield consumer.consume("t")


@on_loop()
def test_close_while_no_broker_answers():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        consumer = yield consumer_of(broker, request_timeout_ms=20000)
        yield consumer.consume("t")
        for api in ("fetch", "metadata", "offset"):
            broker.on(api, Never())
        yield consumer.consume("t")
        began = time.time()
        yield consumer.close()
        assert time.time() - began < 1
        yield until(lambda: broker.open_connections == 0)


@on_loop()
def test_a_close_says_what_will_come_again(caplog):
    caplog.set_level("INFO", "kiel")
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.cluster.append("t", 0, batch([b"a", b"b"]))
        consumer = yield consumer_of(broker)
        yield consume(consumer, 2)
        yield consumer.close()
        lines = [record.getMessage() for record in caplog.records if "come again" in record.getMessage()]
        assert len(lines) == 1
        for part in ("2 records", " t ", "acknowledge"):
            assert part in lines[0]
