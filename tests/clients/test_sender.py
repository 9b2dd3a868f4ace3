"""What becomes of records when brokers misbehave; the Producer of test_producer.py, in bad weather."""
import pytest
from tornado import gen

from kiel import exc
from kiel.clients.producer import Producer
from kiel.protocol import produce as api
from tests.support.logs import numbers_in, values_in
from tests.support.loop import on_loop
from tests.support.scripted import KAFKA_4_4, Body, Error, HangUp, Late, Never, ScriptedCluster
from tests.support.waiting import failure, until

REQUEST_TIMED_OUT, NOT_LEADER, CLUSTER_REFUSED, OUT_OF_ORDER, UNKNOWN_PRODUCER_ID = 7, 6, 31, 45, 59
TOPIC_REFUSED, COORDINATOR_LOADING, NOT_ENOUGH_REPLICAS_AFTER_APPEND = 29, 14, 20


@gen.coroutine
def connected(cluster, **options):
    options.setdefault("serializer", lambda message: message)
    made = Producer(cluster.addresses, **options)
    yield made.connect()
    raise gen.Return(made)


def one_topic(partitions=1, brokers=1, **more):
    cluster = ScriptedCluster(brokers=brokers, **more)
    cluster.topics = {"t": {number: number % brokers + 1 for number in range(partitions)}}
    return cluster


def appended_and(answer):
    """The broker appends the batch, but `answer` is what the client gets."""

    def act(call):
        for topic in call.body.topic_data:
            for part in topic.partition_data:
                act.cluster.append(topic.name, part.index, part.records)
        return answer

    return act


@pytest.mark.parametrize("answer", [HangUp(), Error(REQUEST_TIMED_OUT), Error(NOT_ENOUGH_REPLICAS_AFTER_APPEND),
                                    Body(b"\0\0\0\1 this is no response")])  # fmt: skip
@on_loop(timeout=10)
def test_a_record_whose_answer_was_lost_is_in_the_log_once(answer, logbook):
    with one_topic() as cluster:
        producer = yield connected(cluster)
        lost = appended_and(answer)
        lost.cluster = cluster
        cluster.brokers[0].on("produce", [None, lost])
        yield producer.produce("t", b"0")
        futures = [producer.produce("t", b"%d" % number) for number in range(1, 4)]
        yield until(lambda: len(cluster.seen("produce")) == 2)
        futures += [producer.produce("t", b"%d" % number) for number in range(4, 6)]
        results = yield futures
        assert [each.offset for each in results] == [1, 2, 3, 4, 5]
        assert values_in(cluster.log("t")) == [b"%d" % number for number in range(6)]
        assert [each[2:] for each in numbers_in(cluster.log("t"))] == [(0, 1), (1, 3), (4, 2)]
        assert len(cluster.seen("init_producer_id")) == 1
        if isinstance(answer, Body):
            logbook.expect("an array is null")
        yield producer.close()


@on_loop(timeout=10)
def test_a_record_whose_request_was_lost_is_sent_again_before_later_ones():
    with one_topic() as cluster:
        producer = yield connected(cluster, batch_size=1)
        cluster.brokers[0].on("produce", [HangUp()] * 3)
        results = yield [producer.produce("t", b"%d" % number) for number in range(5)]
        assert [each.offset for each in results] == [0, 1, 2, 3, 4]
        assert values_in(cluster.log("t")) == [b"%d" % number for number in range(5)]
        yield producer.close()


@on_loop(timeout=10)
def test_an_answer_that_is_overdue_is_not_waited_for():
    with one_topic() as cluster:
        producer = yield connected(cluster, request_timeout_ms=200)
        cluster.brokers[0].on("produce", [Never()])
        started = producer.loop.time()
        assert (yield producer.produce("t", b"x")).offset == 0
        assert 0.2 <= producer.loop.time() - started < 1
        yield producer.close()


@on_loop(timeout=10)
def test_a_partition_that_has_moved_is_followed_at_once():
    with one_topic(brokers=2) as cluster:
        producer = yield connected(cluster, retry_backoff_ms=1000)
        yield producer.produce("t", b"0")
        cluster.move("t", 0, 2)
        started = producer.loop.time()
        results = yield [producer.produce("t", b"%d" % number) for number in range(1, 4)]
        assert producer.loop.time() - started < 0.4
        assert [each.offset for each in results] == [1, 2, 3]
        assert values_in(cluster.log("t")) == [b"%d" % number for number in range(4)]
        yield producer.close()


@on_loop(timeout=10)
def test_a_broker_that_dies_is_left_when_there_is_a_new_leader():
    with one_topic(brokers=3, partitions=3) as cluster:
        producer = yield connected(cluster)
        yield [producer.produce("t", b"x", partition=number) for number in range(3)]
        cluster.brokers[1].down()
        futures = [producer.produce("t", b"y", partition=number) for number in range(3)]
        yield [futures[0], futures[2]]
        yield gen.sleep(1.5)
        assert not futures[1].done()
        cluster.move("t", 1, 3)
        moved = producer.loop.time()
        yield futures[1]
        assert producer.loop.time() - moved < 1.2
        assert values_in(cluster.log("t", 1)) == [b"x", b"y"]
        yield producer.close()


@on_loop(timeout=10)
def test_a_partition_without_a_leader_is_waited_for_and_holds_nobody_up():
    with one_topic(partitions=2) as cluster:
        producer = yield connected(cluster)
        yield [producer.produce("t", b"0", partition=number) for number in range(2)]
        cluster.topics["t"][0] = None
        yield producer.cluster.refresh()
        future = producer.produce("t", b"1", partition=0)
        for _ in range(5):
            yield producer.produce("t", b"1", partition=1)
        yield gen.sleep(0.6)
        asked = len(cluster.seen("metadata"))
        assert not future.done() and asked < 12
        cluster.topics["t"][0] = 1
        assert (yield future).offset == 1
        yield producer.close()


@on_loop(timeout=10)
def test_one_partition_that_is_slow_to_be_accepted_does_not_hold_up_another():
    with one_topic(partitions=2) as cluster:
        producer = yield connected(cluster)
        cluster.brokers[0].on("produce", [Error(NOT_LEADER, {("t", 0)})] * 3)
        results = yield [producer.produce("t", b"x", partition=number % 2) for number in range(10)]
        assert [each.offset for each in results] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
        yield producer.close()


@on_loop(timeout=10)
def test_a_partition_that_the_response_leaves_out_is_sent_again():
    with one_topic() as cluster:
        producer = yield connected(cluster)
        cluster.brokers[0].on("produce", [lambda call: api.ProduceResponse(responses=[])])
        assert (yield producer.produce("t", b"x")).offset == 0
        assert values_in(cluster.log("t")) == [b"x"]
        yield producer.close()


@on_loop(timeout=10)
def test_a_batch_is_given_up_after_the_delivery_time_out_and_the_sequence_starts_anew(logbook):
    with one_topic() as cluster:
        producer = yield connected(cluster, delivery_timeout_ms=500, ack_timeout=100)
        yield producer.produce("t", b"0")
        cluster.brokers[0].on("produce", [Error(REQUEST_TIMED_OUT)] * 20)
        started = producer.loop.time()
        error = yield failure(producer.produce("t", b"lost"))
        assert isinstance(error.cause, exc.DeadlineError) and 0.4 < producer.loop.time() - started < 0.8
        assert error.cause.cause.code == REQUEST_TIMED_OUT and "REQUEST_TIMED_OUT" in str(error)
        cluster.brokers[0]._next["produce"].clear()
        yield producer.produce("t", b"1")
        assert values_in(cluster.log("t")) == [b"0", b"1"]
        (first, _, _, _), (second, _, sequence, _) = numbers_in(cluster.log("t"))
        assert first != second and sequence == 0
        logbook.expect("t[0]")
        yield producer.close()


@on_loop(timeout=10)
def test_a_batch_in_flight_is_given_up_in_time_too(logbook):
    with one_topic() as cluster:
        producer = yield connected(cluster, delivery_timeout_ms=500)
        cluster.brokers[0].on("produce", [Late(0.7)])
        error = yield failure(producer.produce("t", b"0"))
        assert isinstance(error.cause, exc.DeadlineError)
        assert (yield producer.produce("t", b"1", timestamp=5)).offset == 1
        assert [each[2:] for each in numbers_in(cluster.log("t"))] == [(0, 1), (1, 1)]
        logbook.expect("t[0]")
        yield producer.close()


@pytest.mark.parametrize("code", [UNKNOWN_PRODUCER_ID, OUT_OF_ORDER])
@on_loop(timeout=10)
def test_a_producer_id_that_the_broker_has_forgotten_is_replaced(code):
    with one_topic() as cluster:
        producer = yield connected(cluster)
        yield producer.produce("t", b"0")
        cluster.brokers[0].on("produce", [Error(code)])
        results = yield [producer.produce("t", b"%d" % number) for number in (1, 2)]
        assert [each.offset for each in results] == [1, 2]
        yield producer.produce("t", b"3")
        first, second, third = numbers_in(cluster.log("t"))
        assert first[0] != second[0] and second[2:] == (0, 2)
        assert third[0] == second[0] and third[2:] == (2, 1)
        yield producer.close()


@on_loop(timeout=10)
def test_a_topic_that_may_not_be_written_to_fails_and_others_go_on(logbook):
    with one_topic(partitions=2) as cluster:
        producer = yield connected(cluster)
        cluster.brokers[0].on("produce", lambda call: Error(TOPIC_REFUSED, {("t", 0)}))
        futures = [producer.produce("t", b"x", partition=number) for number in range(2)]
        error = yield failure(futures[0])
        assert isinstance(error.cause, exc.AuthorizationError) and (error.topic, error.partition) == ("t", 0)
        assert (yield futures[1]).offset == 0
        logbook.expect("t[0]")
        yield producer.close()


# -- idempotence


@on_loop(timeout=10)
def test_batches_wait_for_a_producer_id_that_takes_its_time():
    with one_topic() as cluster:
        producer = yield connected(cluster)
        cluster.brokers[0].on("init_producer_id", [Error(COORDINATOR_LOADING), HangUp(), Error(COORDINATOR_LOADING)])
        assert (yield producer.produce("t", b"x")).offset == 0
        assert numbers_in(cluster.log("t"))[0][0] > 0 and len(cluster.seen("init_producer_id")) == 4
        yield producer.close()


@on_loop(timeout=10)
def test_a_producer_id_that_never_comes_fails_in_time(logbook):
    with one_topic() as cluster:
        producer = yield connected(cluster, delivery_timeout_ms=400)
        cluster.brokers[0].on("init_producer_id", Error(COORDINATOR_LOADING))
        error = yield failure(producer.produce("t", b"x"))
        assert isinstance(error.cause, exc.DeadlineError) and "COORDINATOR_LOAD_IN_PROGRESS" in str(error)
        logbook.expect("t[0]")
        yield producer.close()


@on_loop(timeout=10)
def test_idempotence_that_nobody_asked_for_is_left_out_where_it_is_refused(logbook):
    with one_topic() as cluster:
        producer = yield connected(cluster)
        cluster.brokers[0].on("init_producer_id", Error(CLUSTER_REFUSED))
        yield [producer.produce("t", b"x") for _ in range(3)]
        assert numbers_in(cluster.log("t")) == [(-1, -1, -1, 3)]
        logbook.expect("without idempotence")
        yield producer.close()


@on_loop(timeout=10)
def test_idempotence_that_is_asked_for_and_refused_fails(logbook):
    with one_topic() as cluster:
        producer = yield connected(cluster, enable_idempotence=True)
        cluster.brokers[0].on("init_producer_id", Error(CLUSTER_REFUSED))
        error = yield failure(producer.produce("t", b"x"))
        assert isinstance(error.cause, exc.AuthorizationError)
        logbook.expect("t[0]")
        yield producer.close()


@pytest.mark.parametrize("wanted", [None, False])
@on_loop(timeout=10)
def test_a_broker_without_producer_ids_gets_batches_without_numbers(wanted):
    versions = dict(KAFKA_4_4)
    del versions["init_producer_id"]
    with one_topic(versions=versions) as cluster:
        producer = yield connected(cluster, enable_idempotence=wanted)
        yield producer.produce("t", b"x")
        assert numbers_in(cluster.log("t")) == [(-1, -1, -1, 1)]
        yield producer.close()


# -- versions


@on_loop(timeout=10)
def test_kafka_4_is_never_asked_to_produce_below_version_3():
    with one_topic() as cluster:
        producer = yield connected(cluster, compression="gzip")
        yield [producer.produce("t", b"x" * 100) for _ in range(10)]
        assert [call.version for call in cluster.seen("produce")] == [12]
        assert values_in(cluster.log("t")) == [b"x" * 100] * 10
        yield producer.close()


@on_loop(timeout=20)
def test_chance_failures_lose_nothing_and_double_nothing():
    with one_topic(brokers=2, partitions=4) as cluster:
        producer = yield connected(cluster, retry_backoff_ms=10, reconnect_backoff_ms=10, batch_size=20)
        lost = appended_and(HangUp())
        lost.cluster = cluster
        for broker in cluster.brokers:
            broker.on("produce", [None, HangUp(), None, lost, Error(NOT_LEADER), None, lost, Late(0.02)] * 10)
        futures = []
        for number in range(2000):
            futures.append(producer.produce("t", b"%d" % number, partition=number % 4))
            if number % 50 == 0:
                yield gen.sleep(0.002)
                cluster.move("t", number // 50 % 4, number // 200 % 2 + 1)
        results = yield futures
        for partition in range(4):
            values = values_in(cluster.log("t", partition))
            assert values == [b"%d" % number for number in range(partition, 2000, 4)]
            assert [results[int(value)].offset for value in values] == list(range(500))
        yield producer.close()
