"""The Producer against Apache Kafka itself: what it refuses, and where it says that records are."""
import pytest
from tornado import gen

from kiel import exc
from kiel.clients.producer import Producer
from kiel.clients.single import SingleConsumer
from tests.support.loop import on_loop
from tests.support.waiting import failure


@gen.coroutine
def connected(servers, **options):
    options.setdefault("serializer", lambda message: message)
    made = Producer(servers.bootstrap, **options)
    yield made.connect()
    raise gen.Return(made)


@gen.coroutine
def reader_of(servers, topic):
    """A consumer at the beginning of the topic; the leaders of its partitions are at work then."""
    consumer = SingleConsumer(servers.bootstrap, deserializer=bytes)
    yield consumer.connect()
    yield consumer.determine_offsets(topic, SingleConsumer.BEGINNING)
    raise gen.Return(consumer)


@gen.coroutine
def read(consumer, topic, count):
    """The next `count` Records of a topic; the consumer is closed then."""
    found = []
    while len(found) < count:
        found += yield consumer.consume_records(topic)
    yield consumer.close()
    raise gen.Return(found)


@pytest.mark.parametrize("acks, compression", [("all", None), ("all", "gzip"), (1, None), (0, "gzip")])
@on_loop(timeout=60)
def test_records_are_where_their_metadata_says(kafka, acks, compression):
    topic = "where-%s-%s" % (acks, compression)
    kafka.create_topic(topic, partitions=3)
    reader = yield reader_of(kafka, topic)
    producer = yield connected(kafka, required_acks=acks, compression=compression)
    results = yield [
        producer.produce(topic, b"%d" % number, key="key %d" % (number % 7), timestamp=1600000000000 + number)
        for number in range(500)
    ]
    yield producer.close()
    found = yield read(reader, topic, 500)
    assert len(found) == 500
    for record in found:
        said = results[int(record.value)]
        assert (said.topic, said.partition, said.timestamp) == (topic, record.partition, record.timestamp)
        assert said.offset == (record.offset if acks else -1)
        assert record.key == b"key %d" % (int(record.value) % 7)
    for partition in range(3):
        values = [int(record.value) for record in found if record.partition == partition]
        assert values == sorted(values)


@on_loop(timeout=60)
def test_a_topic_is_created_by_its_first_record(kafka):
    producer = yield connected(kafka)
    assert (yield producer.produce("created-by-producing", b"x")).offset == 0
    yield producer.close()


@on_loop(timeout=60)
def test_only_the_record_over_the_limit_of_its_topic_fails(kafka, logbook):
    kafka.create_topic("small-records", config={"max.message.bytes": 2000})
    reader = yield reader_of(kafka, "small-records")
    producer = yield connected(kafka)
    values = [b"%d" % number for number in range(10)]
    futures = [producer.produce("small-records", value) for value in values[:5] + [b"x" * 5000] + values[5:]]
    error = yield failure(futures.pop(5))
    assert isinstance(error.cause, exc.RecordTooLargeError)
    results = yield futures
    assert [each.offset for each in results] == list(range(10))
    found = yield read(reader, "small-records", 10)
    assert [record.value for record in found] == values
    logbook.expect("small-records[0]")
    yield producer.close()


@on_loop(timeout=60)
def test_only_the_record_without_a_key_fails_on_a_compacted_topic(kafka, logbook):
    kafka.create_topic("keyed-alone", config={"cleanup.policy": "compact"})
    producer = yield connected(kafka)
    keys = ["k", "k", None, "k", "k"]
    futures = [producer.produce("keyed-alone", b"%d" % number, key=key) for number, key in enumerate(keys)]
    error = yield failure(futures.pop(2))
    assert error.cause.name == "INVALID_RECORD"
    results = yield futures
    assert [each.offset for each in results] == [0, 1, 2, 3]
    logbook.expect("keyed-alone[0]")
    yield producer.close()


@on_loop(timeout=60)
def test_a_name_that_no_topic_can_have_fails_at_once(kafka, logbook):
    kafka.create_topic("a-good-name")
    producer = yield connected(kafka)
    started = producer.loop.time()
    bad = producer.produce("a bad name!", b"x")
    yield producer.produce("a-good-name", b"x")
    error = yield failure(bad)
    assert isinstance(error.cause, exc.InvalidTopicError) and producer.loop.time() - started < 5
    logbook.expect("a bad name!")
    yield producer.close()


@on_loop(timeout=60)
def test_partitions_that_are_added_are_used(kafka):
    kafka.create_topic("growing-meanwhile", partitions=1)
    producer = yield connected(kafka, metadata_max_age_ms=1000)
    yield producer.produce("growing-meanwhile", b"x")
    kafka.create_partitions("growing-meanwhile", 3)
    used, end = set(), producer.loop.time() + 20
    while used != {0, 1, 2} and producer.loop.time() < end:
        used.add((yield producer.produce("growing-meanwhile", b"x")).partition)
        yield gen.sleep(0.05)
    assert used == {0, 1, 2}
    yield producer.close()


@on_loop(timeout=60)
def test_the_producer_ids_of_many_partitions_that_begin_at_once(kafka):
    kafka.create_topic("wide", partitions=20)
    producer = yield connected(kafka, batch_size=10)
    results = yield [producer.produce("wide", b"%d" % number, partition=number % 20) for number in range(2000)]
    assert [each.offset for each in results] == [number // 20 for number in range(2000)]
    yield producer.close()
