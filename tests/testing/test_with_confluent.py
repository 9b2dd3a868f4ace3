"""Another client's view: librdkafka's own, which needs confluent-kafka in this interpreter."""
import pytest

from kiel.testing import EmbeddedCluster

confluent_kafka = pytest.importorskip("confluent_kafka")
admin = pytest.importorskip("confluent_kafka.admin")

pytestmark = pytest.mark.embedded

QUICK = {"topic.metadata.refresh.interval.ms": 100, "reconnect.backoff.max.ms": 100, "log_level": 0}


@pytest.fixture
def three():
    with EmbeddedCluster(brokers=3) as cluster:
        yield cluster


def config(cluster, **more):
    return dict(QUICK, **dict({"bootstrap.servers": cluster.bootstrap}, **more))


def produce(cluster, topic, values, **more):
    producer = confluent_kafka.Producer(config(cluster, **more))
    failed = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, message: error and failed.append(error))
    assert producer.flush(20) == 0
    assert failed == []


def consume(consumer, count):
    values = []
    while len(values) < count:
        message = consumer.poll(20)
        assert message is not None and not message.error()
        values.append(message.value())
    return values


def test_a_group_consumes_what_was_produced_while_errors_are_injected(three):
    three.create_topic("events", 3, replication=3)
    three.push_errors("produce", ["NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT", three.DISCONNECT])
    values = [b"%d" % i for i in range(100)]
    produce(three, "events", values, **{"linger.ms": 5, "retry.backoff.ms": 10})
    # The mock cluster's second and later rebalances of a group take the session's time-out less a second.
    options = {"group.id": "readers", "auto.offset.reset": "earliest", "session.timeout.ms": 1500}
    consumer = confluent_kafka.Consumer(config(three, **options))
    consumer.subscribe(["events"])
    try:
        assert sorted(consume(consumer, 100)) == sorted(values)
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    produce(three, "events", [b"later"])
    consumer = confluent_kafka.Consumer(config(three, **options))
    consumer.subscribe(["events"])
    try:
        assert consume(consumer, 1) == [b"later"]
    finally:
        consumer.close()


def test_the_coordinator_is_where_it_is_told_to_be(three):
    three.create_topic("events")
    for broker in (1, 2, 3):
        three.set_coordinator("group", "readers", broker)
        three.track_requests()
        consumer = confluent_kafka.Consumer(config(three, **{"group.id": "readers"}))
        try:
            consumer.committed([confluent_kafka.TopicPartition("events", 0)], 20)
        finally:
            consumer.close()
        assert set(seen.broker_id for seen in three.requests("offset_fetch")) == {broker}


def test_a_transaction(three):
    three.create_topic("events")
    three.set_coordinator("transaction", "writer", 2)
    producer = confluent_kafka.Producer(config(three, **{"transactional.id": "writer"}))
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("events", b"once")
    producer.commit_transaction(20)
    consumer = confluent_kafka.Consumer(config(three, **{"group.id": "readers"}))
    consumer.assign([confluent_kafka.TopicPartition("events", 0, 0)])
    try:
        assert consume(consumer, 1) == [b"once"]
    finally:
        consumer.close()


def test_the_admin_client_sees_topics_and_leaders(three):
    three.create_topic("events", 2, replication=3)
    three.set_leader("events", 1, 3)
    listed = admin.AdminClient(config(three)).list_topics("events", timeout=20)
    assert sorted(listed.brokers) == [1, 2, 3]
    assert listed.topics["events"].partitions[1].leader == 3
