"""SingleConsumer on the embedded cluster: how it keeps supplied, and what it does when brokers fail."""
import json
import struct
import time

import pytest
from tornado import gen

from kiel import SingleConsumer
from kiel.exc import AuthorizationError, BrokerError, DeadlineError, NoOffsetsError, UnknownTopicError
from tests.support.consuming import FineTicker, Writer, consumer_of, gathered
from tests.support.embedded import embedded_cluster
from tests.support.loop import on_loop
from tests.support.scripted import ScriptedBroker
from tests.support.waiting import failure, until
from tests.testing.wire import batch_of

pytestmark = pytest.mark.embedded

BEGINNING = SingleConsumer.BEGINNING


@pytest.fixture
def three():
    """Brokers 1, 2 and 3; partition 0 of "parts" is led by 1, partition 1 by 2."""
    with embedded_cluster(brokers=3) as cluster:
        cluster.create_topic("parts", 2, replication=3)
        for partition in (0, 1):
            cluster.set_leader("parts", partition, partition + 1)
        yield cluster


@pytest.fixture
def writer(request):
    """Writes to the cluster that the test uses."""
    name = "three" if "three" in request.fixturenames else "cluster"
    with Writer(request.getfixturevalue(name)) as writer:
        yield writer


def of_size(number, size):
    return json.dumps(number).encode() + b" " * size


# Prefetching


@on_loop()
def test_fetching_goes_on_while_the_application_is_busy_and_is_bounded(cluster, writer, logbook):
    for number in range(40):
        writer.write("events", [of_size(number, 20000)])
    consumer = yield consumer_of(cluster, max_bytes=200000, prefetch_bytes=300000, max_wait_time=100)
    cluster.track_requests()
    assert (yield consumer.consume("events", start=BEGINNING, max_records=1)) == [0]
    yield gen.sleep(0.3)
    # The embedded cluster gives one batch a fetch: 200,000 bytes are ten of them.
    assert 9 <= len(cluster.requests("fetch")) <= 12
    cluster.clear_requests()
    yield gen.sleep(0.3)
    assert cluster.requests("fetch") == []
    # What is there is handed out without any broker.
    cluster.broker_down()
    values = yield gathered(consumer, "events", 9)
    assert values == list(range(1, 1 + len(values))) and len(values) <= 12
    cluster.broker_up()
    values += yield gathered(consumer, "events", 39 - len(values))
    assert values == list(range(1, 40))
    logbook.allow("no broker could be reached")
    yield consumer.close()


@on_loop()
def test_prefetch_bytes_bounds_all_partitions_together(cluster, writer):
    cluster.create_topic("many", 10)
    for partition in range(10):
        for number in range(5):
            writer.write("many", [of_size(number, 20000)], partition)
    consumer = yield consumer_of(cluster, max_bytes=60000, prefetch_bytes=150000)
    cluster.track_requests()
    values = yield consumer.consume("many", start=BEGINNING, max_records=1)
    yield gen.sleep(0.2)
    cluster.clear_requests()
    yield gen.sleep(0.2)
    assert cluster.requests("fetch") == []
    cluster.broker_down()
    # Requests of up to 60,000 bytes are made while there is any room.
    values += yield gathered(consumer, "many", 6)
    values += yield consumer.consume("many")
    assert 7 <= len(values) <= 12
    cluster.broker_up()
    values += yield gathered(consumer, "many", 50 - len(values))
    assert sorted(values) == sorted(list(range(5)) * 10)
    yield consumer.close()


@on_loop()
def test_a_hot_partition_beside_an_idle_one(cluster, writer):
    """The idle one would have the broker wait for a second each time."""
    for number in range(30):
        writer.write("parts", [of_size(number, 20000)])
    consumer = yield consumer_of(cluster, max_bytes=40000, max_wait_time=2000)
    began = time.time()
    assert (yield gathered(consumer, "parts", 30)) == list(range(30))
    assert time.time() - began < 1
    yield consumer.close()


@on_loop()
def test_a_full_partition_is_fetched_again_as_soon_as_there_is_room(cluster, writer):
    """Meanwhile the broker isn't left to wait for the idle one."""
    for number in range(6):
        writer.write("parts", [of_size(number, 20000)])
    consumer = yield consumer_of(cluster, max_bytes=40000, max_wait_time=4000)
    values = yield consumer.consume("parts", start=BEGINNING, max_records=1)
    while len(values) < 6:
        yield gen.sleep(0.15)
        began = time.time()
        values += yield consumer.consume("parts")
        assert time.time() - began < 0.5
    assert values == list(range(6))
    yield consumer.close()


@on_loop()
def test_what_comes_in_while_a_bad_value_is_handled(cluster, writer):
    """Partitions that had nothing when they were looked at have something now: it is handed out in the same
    call."""
    cluster.create_topic("three", 3)

    @gen.coroutine
    def on_error(record, error):
        for partition in (1, 2):
            writer.write("three", [partition], partition)
        yield until(lambda: consumer.lag("three") == {0: 1, 1: 1, 2: 1})

    consumer = yield consumer_of(cluster, on_error=on_error, max_wait_time=1000, deserializer=int)
    assert (yield consumer.consume("three", start=BEGINNING)) == []
    # Of three partitions that take turns, each comes last at least once.
    for _ in range(3):
        writer.write("three", [b"bad"])
        began = time.time()
        assert sorted((yield consumer.consume("three"))) == [1, 2]
        # Half of max_wait_time is the embedded cluster's; the rest would be lost if it was waited for more.
        assert time.time() - began < 0.85
    yield consumer.close()


@pytest.mark.parametrize("paused", [True, False])
@on_loop()
def test_what_nobody_asks_for_starves_nothing(cluster, writer, paused):
    """A topic's prefetched records that are paused, or that no consume() asks for, may take all the room
    there is."""
    for number in range(10):
        writer.write("events", [of_size(number, 20000)])
        writer.write("parts", [of_size(number, 20000)], number % 2)
    consumer = yield consumer_of(cluster, max_bytes=50000, prefetch_bytes=50000)
    assert (yield consumer.consume("events", start=BEGINNING, max_records=1)) == [0]
    yield gen.sleep(0.1)
    if paused:
        consumer.pause("events")
    assert sorted((yield gathered(consumer, "parts", 10))) == list(range(10))
    if paused:
        consumer.resume("events")
    assert (yield gathered(consumer, "events", 9)) == list(range(1, 10))
    yield consumer.close()


@on_loop()
def test_a_partition_that_is_full_does_not_starve_another(cluster, writer):
    """Though the application takes a record of it every few milliseconds."""
    writer.write("parts", [of_size(number, 1000) for number in range(300)])
    consumer = yield consumer_of(cluster, max_bytes=20000)
    yield consumer.consume("parts", start=BEGINNING, max_records=1)
    yield gen.sleep(0.05)
    cluster.track_requests()
    writer.write("parts", [1000], partition=1)
    began, values = time.time(), []
    while 1000 not in values:
        values += yield consumer.consume("parts", max_records=1)
        assert time.time() - began < 1, values
        yield gen.sleep(0.003)
    assert len(values) < 290
    # At most ten a second are asked for nothing; the last one brought something.
    assert len(cluster.requests("fetch")) <= 2 + 10 * (time.time() - began)
    yield consumer.close()


@on_loop()
def test_the_loop_is_free_while_much_is_consumed(cluster, writer):
    def slowish(value):
        end = time.time() + 0.0002
        while time.time() < end:
            pass
        return int(value)

    for base in range(0, 4000, 1000):
        writer.write("parts", list(range(base, base + 1000)), base // 1000 % 2)
    consumer = yield consumer_of(cluster, deserializer=slowish)
    ticker = FineTicker()
    assert sorted((yield gathered(consumer, "parts", 4000))) == list(range(4000))
    ticker.stop()
    gaps = sorted(ticker.gaps)
    # 4,000 records of 0.2 ms in slices of 5 ms; a timer that falls due in one slice may have to wait for the
    # next, too.
    assert len(gaps) > 60
    assert gaps[int(len(gaps) * 0.9)] < 0.012
    yield consumer.close()


@on_loop()
def test_the_loop_is_free_while_small_batches_come_in():
    """Thousands of batches of one record in one response take longer to look through than a slice is."""
    one, count = batch_of(b"1"), 100000
    small = b"".join(struct.pack(">q", offset) + one[8:] for offset in range(count))
    with ScriptedBroker() as broker:
        broker.topics = {"small": {0: 1}}
        broker.cluster.log("small").put(small, 0, count - 1)
        consumer = SingleConsumer(broker.address)
        yield consumer.connect()
        ticker = FineTicker()
        assert (yield gathered(consumer, "small", 1, max_records=1)) == [1]
        ticker.stop()
        # The longest gap is the broker's own, which counts its batches in one go.
        assert sorted(ticker.gaps)[-2] < 0.03
        assert len((yield gathered(consumer, "small", 1000, max_records=1000))) == 1000
        yield consumer.close()


# Brokers and leaders


@on_loop()
def test_a_broker_goes_and_comes_back(cluster, writer, logbook):
    writer.write("events", [1, 2])
    consumer = yield consumer_of(cluster)
    assert (yield gathered(consumer, "events", 2)) == [1, 2]
    cluster.broker_down()
    for _ in range(3):
        assert (yield consumer.consume("events")) == []
    logbook.expect("no broker could be reached")
    cluster.broker_up()
    with Writer(cluster) as again:
        again.write("events", [3])
    assert (yield gathered(consumer, "events", 1)) == [3]
    assert consumer.position("events", 0) == 3
    yield consumer.close()


@on_loop()
def test_leaders_move_while_there_is_data_in_flight(three, writer):
    consumer = yield consumer_of(three)
    for partition in (0, 1):
        writer.write("parts", [[partition, 0]], partition)
    values = yield gathered(consumer, "parts", 2)
    for number in range(1, 25):
        for partition in (0, 1):
            writer.write("parts", [[partition, number]], partition)
        if number % 3 == 0:
            three.set_leader("parts", number % 2, 1 + number // 3 % 3)
        values += yield consumer.consume("parts")
    values += yield gathered(consumer, "parts", 50 - len(values))
    for partition in (0, 1):
        assert [number for where, number in values if where == partition] == list(range(25))
    assert len(values) == 50
    yield consumer.close()


@on_loop()
def test_a_partition_without_a_leader_for_a_while(cluster, writer):
    writer.write("parts", [1])
    writer.write("parts", [2], partition=1)
    consumer = yield consumer_of(cluster)
    assert sorted((yield gathered(consumer, "parts", 2))) == [1, 2]
    cluster.set_leader("parts", 0, None)
    writer.write("parts", [3], partition=1)
    assert (yield gathered(consumer, "parts", 1)) == [3]
    cluster.set_leader("parts", 0, 1)
    writer.write("parts", [4])
    assert (yield gathered(consumer, "parts", 1)) == [4]
    yield consumer.close()


@on_loop()
def test_a_broker_that_can_not_be_reached_leaves_the_others_partitions(three, writer):
    writer.write("parts", [1])
    writer.write("parts", [2], partition=1)
    three.broker_down(2)
    consumer = yield consumer_of(three)
    began = time.time()
    assert (yield gathered(consumer, "parts", 1)) == [1]
    assert time.time() - began < 2
    assert consumer.offsets == {"parts": {0: 1}}
    assert consumer.lag("parts")[1] is None
    three.broker_up(2)
    assert (yield gathered(consumer, "parts", 1)) == [2]
    yield consumer.close()


@on_loop()
def test_a_slow_broker_holds_up_its_own_partitions_alone(three, writer, logbook):
    for partition in (0, 1):
        writer.write("parts", list(range(10)), partition)
    consumer = yield consumer_of(three)
    yield gathered(consumer, "parts", 20)
    three.set_rtt(2, 3000)
    yield consumer.consume("parts")
    three.delete_records("parts", 0, 5)
    consumer.seek("parts", 0, 0)
    began = time.time()
    assert (yield gathered(consumer, "parts", 5)) == list(range(5, 10))
    assert time.time() - began < 2
    logbook.expect("out of range")
    three.set_rtt(2, 0)
    yield consumer.close()


# Errors from brokers

PASSING = [
    "NOT_LEADER_OR_FOLLOWER",
    "LEADER_NOT_AVAILABLE",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "REPLICA_NOT_AVAILABLE",
    "KAFKA_STORAGE_ERROR",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "OFFSET_NOT_AVAILABLE",
    "UNKNOWN_TOPIC_ID",
    "CORRUPT_MESSAGE",
]


@pytest.mark.parametrize("error", PASSING)
@pytest.mark.parametrize("api", ["fetch", "offset"])
@on_loop()
def test_errors_that_pass(cluster, writer, api, error):
    writer.write("events", [1, 2])
    consumer = yield consumer_of(cluster)
    cluster.push_errors(api, [error] * 3)
    assert (yield gathered(consumer, "events", 2)) == [1, 2]
    cluster.push_errors("fetch", [error] * 2)
    writer.write("events", [3])
    assert (yield gathered(consumer, "events", 1)) == [3]
    yield consumer.close()


@pytest.mark.parametrize("api", ["fetch", "offset"])
@on_loop()
def test_a_connection_that_is_closed_in_place_of_an_answer(cluster, writer, api):
    writer.write("events", [1, 2])
    consumer = yield consumer_of(cluster)
    cluster.push_errors(api, [cluster.DISCONNECT] * 3)
    assert (yield gathered(consumer, "events", 2)) == [1, 2]
    yield consumer.close()


@on_loop()
def test_a_broker_that_always_hangs_up_is_not_asked_again_at_once(cluster, writer):
    writer.write("events", [1])
    consumer = yield consumer_of(cluster, retry_backoff_ms=100, retry_backoff_max_ms=1000)
    assert (yield gathered(consumer, "events", 1)) == [1]
    cluster.push_errors("fetch", [cluster.DISCONNECT] * 1000)
    cluster.track_requests()
    yield gen.sleep(1)
    assert 3 <= len(cluster.requests("fetch")) <= 7
    cluster.clear_errors("fetch")
    with Writer(cluster) as again:
        again.write("events", [2])
    assert (yield gathered(consumer, "events", 1)) == [2]
    yield consumer.close()


@on_loop()
def test_an_error_that_stays_is_asked_about_no_more_than_a_few_times_a_second(cluster, writer):
    writer.write("events", [1])
    consumer = yield consumer_of(cluster, retry_backoff_ms=100, retry_backoff_max_ms=1000)
    assert (yield gathered(consumer, "events", 1)) == [1]
    cluster.push_errors("fetch", ["NOT_LEADER_OR_FOLLOWER"] * 1000)
    cluster.track_requests()
    end = time.time() + 1.5
    while time.time() < end:
        assert (yield consumer.consume("events")) == []
    assert 2 <= len(cluster.requests("fetch")) <= 12
    assert 2 <= len(cluster.requests("metadata")) <= 12
    cluster.clear_errors("fetch")
    writer.write("events", [2])
    assert (yield gathered(consumer, "events", 1)) == [2]
    yield consumer.close()


@pytest.mark.parametrize(
    "error, kind, code",
    [
        ("TOPIC_AUTHORIZATION_FAILED", AuthorizationError, 29),
        ("UNKNOWN_SERVER_ERROR", BrokerError, -1),
        (999, BrokerError, 999),
    ],
)
@on_loop()
def test_errors_that_the_application_hears_of(cluster, writer, error, kind, code):
    cluster.create_topic("others")
    for partition in (0, 1):
        writer.write("parts", [partition], partition)
    consumer = yield consumer_of(cluster)
    yield gathered(consumer, "parts", 2)
    # One fetch for both partitions: the error stands for each of them, and is told once.
    cluster.push_errors("fetch", [error])
    began = time.time()
    found = yield failure(gathered(consumer, "parts", 1))
    assert isinstance(found, kind)
    assert found.code == code and "parts[" in str(found)
    assert time.time() - began < 2
    assert (yield consumer.consume("parts")) == []
    writer.write("parts", [3])
    assert (yield gathered(consumer, "parts", 1)) == [3]
    yield consumer.close()


@on_loop()
def test_a_refused_topic_is_told_of_soon_and_leaves_others_alone(cluster, writer):
    writer.write("parts", [1])
    consumer = yield consumer_of(cluster)
    cluster.topic_error("events", "TOPIC_AUTHORIZATION_FAILED")
    cluster.track_requests()
    began = time.time()
    error = yield failure(consumer.consume("events"))
    assert isinstance(error, AuthorizationError) and "events" in str(error)
    assert time.time() - began < 2
    assert len(cluster.requests("metadata")) <= 3
    assert (yield gathered(consumer, "parts", 1)) == [1]
    cluster.topic_error("events", 0)
    writer.write("events", [2])
    assert (yield gathered(consumer, "events", 1)) == [2]
    yield consumer.close()


@on_loop()
def test_a_refused_topic_at_looking_its_offsets_up(cluster, writer):
    consumer = yield consumer_of(cluster)
    cluster.push_errors("offset", ["TOPIC_AUTHORIZATION_FAILED"])
    cluster.track_requests()
    assert isinstance((yield failure(consumer.consume("events"))), AuthorizationError)
    assert len(cluster.requests("offset")) == 1
    writer.write("events", [1])
    assert (yield gathered(consumer, "events", 1)) == [1]
    yield consumer.close()


@on_loop()
def test_offsets_that_are_not_found_in_time(cluster):
    consumer = yield consumer_of(cluster, api_timeout_ms=300)
    cluster.push_errors("offset", ["OFFSET_NOT_AVAILABLE"] * 100)
    began = time.time()
    error = yield failure(consumer.consume("events"))
    assert isinstance(error, DeadlineError)
    assert error.cause.name == "OFFSET_NOT_AVAILABLE"
    assert time.time() - began < 1
    yield consumer.close()


# Offsets out of range


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
@on_loop()
def test_records_were_deleted(cluster, writer, logbook, reset):
    writer.write("parts", [0])
    for number in range(5):
        writer.write("parts", [number], partition=1)
    consumer = yield consumer_of(cluster, auto_offset_reset=reset)
    assert len((yield gathered(consumer, "parts", 6))) == 6
    cluster.delete_records("parts", 1, 3)
    consumer.seek("parts", 1, 1)
    if reset == "none":
        error = yield failure(gathered(consumer, "parts", 1))
        assert isinstance(error, NoOffsetsError)
        assert "parts[1]" in str(error) and "offset 1 " in str(error)
        assert consumer.position("parts", 1) == 1
        # It is that partition's alone.
        writer.write("parts", [7])
        assert (yield gathered(consumer, "parts", 1)) == [7]
        consumer.seek("parts", 1, 3)
        assert (yield gathered(consumer, "parts", 2)) == [3, 4]
    else:
        if reset == "earliest":
            assert (yield gathered(consumer, "parts", 2)) == [3, 4]
        else:
            yield until(lambda: consumer.position("parts", 1) == 5)
            writer.write("parts", [8], partition=1)
            assert (yield gathered(consumer, "parts", 1)) == [8]
        (line,) = logbook.expect("out of range")
        assert "parts[1]: offset 1 " in line and reset in line
        assert consumer.position("parts", 0) == 1
    yield consumer.close()


@on_loop()
def test_the_default_is_to_go_on_at_the_earliest(cluster, writer, logbook):
    writer.write("events", [0, 1])
    consumer = yield consumer_of(cluster)
    yield gathered(consumer, "events", 2)
    cluster.push_errors("fetch", ["OFFSET_OUT_OF_RANGE"])
    assert (yield gathered(consumer, "events", 2)) == [0, 1]
    logbook.expect("out of range")
    yield consumer.close()


# Topics that go


@on_loop()
def test_a_topic_is_deleted_while_another_is_consumed(cluster, writer):
    writer.write("events", [0])
    writer.write("parts", [0])
    consumer = yield consumer_of(cluster)
    for topic in ("events", "parts"):
        assert (yield gathered(consumer, topic, 1)) == [0]
    cluster.delete_topic("events")
    others, errors = [], []
    end = time.time() + 3
    while not errors:
        assert time.time() < end
        writer.write("parts", [len(others) + 1])
        others += yield gathered(consumer, "parts", 1)
        try:
            assert (yield consumer.consume("events")) == []
        except UnknownTopicError as error:
            errors.append(error)
    assert "events" in str(errors[0])
    assert others == list(range(1, len(others) + 1))
    # It is told once, and nothing that kiel asks brings the topic back.
    for _ in range(3):
        assert (yield consumer.consume("events")) == []
    assert consumer.allocation == {"parts": [0, 1]}
    cluster.create_topic("events")
    writer.write("events", list(range(10)))
    assert (yield gathered(consumer, "events", 10)) == list(range(10))
    yield consumer.close()


@on_loop()
def test_what_was_acknowledged_of_a_deleted_topic_is_forgotten(cluster, writer):
    writer.write("events", [0, 1])
    consumer = yield consumer_of(cluster)
    yield gathered(consumer, "events", 2)
    consumer.acknowledge()
    assert consumer.acknowledged == {"events": {0: 2}}
    cluster.delete_topic("events")
    found = yield failure(gathered(consumer, "events", 1))
    assert isinstance(found, UnknownTopicError)
    assert consumer.acknowledged == {}
    yield until(lambda: "events" not in consumer.allocation)
    yield consumer.close()
