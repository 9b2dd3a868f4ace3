"""A producer and a consumer at work on the same scripted cluster."""
import time

from tornado import gen

from kiel import Producer, SingleConsumer
from tests.support.loop import on_loop
from tests.support.scripted import ScriptedBroker, ScriptedCluster
from tests.support.waiting import until

QUICK = dict(
    request_timeout_ms=1000,
    connect_timeout_ms=1000,
    reconnect_backoff_ms=20,
    reconnect_backoff_max_ms=100,
    retry_backoff_ms=20,
    retry_backoff_max_ms=100,
)


@gen.coroutine
def pair(kafka, **options):
    """(a producer, a consumer), connected."""
    addresses = getattr(kafka, "addresses", None) or kafka.address
    settings = dict(QUICK, **options)
    producer = Producer(addresses, **settings)
    consumer = SingleConsumer(addresses, max_wait_time=200, **settings)
    yield [producer.connect(), consumer.connect()]
    raise gen.Return((producer, consumer))


@gen.coroutine
def consume(consumer, count, seconds=5):
    values, end = [], time.time() + seconds
    while len(values) < count:
        assert time.time() < end, "only %r came" % (values,)
        values += yield consumer.consume("t", start=SingleConsumer.BEGINNING)
    raise gen.Return(values)


@on_loop()
def test_what_is_produced_is_consumed():
    with ScriptedCluster(brokers=2) as kafka:
        kafka.topics = {"t": {0: 1, 1: 2}}
        producer, consumer = yield pair(kafka)
        yield [producer.produce("t", number) for number in range(100)]
        assert sorted((yield consume(consumer, 100))) == list(range(100))
        yield [producer.close(), consumer.close()]
        yield until(lambda: not any(broker.open_connections for broker in kafka.brokers))


@on_loop()
def test_idle_sockets_that_brokers_close_are_no_event():
    with ScriptedCluster(brokers=2) as kafka:
        kafka.topics = {"t": {0: 1, 1: 2}}
        producer, consumer = yield pair(kafka)
        yield [producer.produce("t", number, partition=number) for number in range(2)]
        yield consume(consumer, 2)
        for broker in kafka.brokers:
            broker.disconnect()
        yield gen.sleep(0.1)
        yield [producer.produce("t", number, partition=number - 2) for number in (2, 3)]
        assert sorted((yield consume(consumer, 2))) == [2, 3]
        assert (yield consumer.consume("t")) == []
        assert [kafka.log("t", number).end for number in range(2)] == [2, 2]
        yield [producer.close(), consumer.close()]


@on_loop()
def test_partitions_that_are_added_are_produced_to_and_consumed():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        producer, consumer = yield pair(broker, metadata_max_age_ms=1000)
        yield producer.produce("t", 0)
        yield consume(consumer, 1)
        broker.topics["t"].update({1: 1, 2: 1})
        sent, partitions, end = 1, set(), time.time() + 5
        while partitions != {0, 1, 2}:
            assert time.time() < end, partitions
            partitions.add((yield producer.produce("t", sent)).partition)
            sent += 1
            yield gen.sleep(0.02)
        assert sorted((yield consume(consumer, sent - 1))) == list(range(1, sent))
        yield [producer.close(), consumer.close()]


@on_loop()
def test_one_of_two_brokers_refuses_and_the_others_partitions_work():
    with ScriptedCluster(brokers=2) as kafka:
        kafka.topics = {"t": {0: 1, 1: 2}}
        kafka.brokers[0].down()
        began = time.time()
        producer, consumer = yield pair(kafka)
        assert time.time() - began < 5
        kafka.move("t", 0, 2)
        yield [producer.produce("t", number) for number in range(10)]
        assert sorted((yield consume(consumer, 10))) == list(range(10))
        yield [producer.close(), consumer.close()]


@on_loop()
def test_ten_thousand_records_without_acknowledgement_and_metadata_after_them():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}, "later": {0: 1}}
        producer = Producer(broker.address, required_acks=0, batch_size=10, **QUICK)
        yield producer.connect()
        results = yield [producer.produce("t", number) for number in range(10000)]
        assert {result.offset for result in results} == {-1}
        assert set((yield producer.cluster.topic("later", 1000))) == {0}
        yield until(lambda: broker.cluster.log("t").end == 10000)
        assert len(broker.connections) == 1
        yield producer.close()
