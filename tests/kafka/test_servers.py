"""The servers that the other tests stand on: started, used by Apache's own tools, killed, and gone."""
import socket

import pytest

from kiel.protocol.metadata import MetadataRequest
from tests.support import admin, needs
from tests.support import kafka as kafka_servers

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"


def consume(servers, topic, count):
    args = ["--topic", topic, "--from-beginning", "--max-messages", str(count), "--timeout-ms", "30000"]
    return sorted(servers.tool(CONSUMER, args).split())


def test_what_the_console_producer_writes_the_console_consumer_reads(kafka):
    kafka.create_topic("console", partitions=3)
    kafka.tool(PRODUCER, ["--topic", "console"], input=b"one\ntwo\nthree\n")
    assert consume(kafka, "console", 3) == [b"one", b"three", b"two"]


@pytest.mark.slow
def test_a_broker_is_killed_and_comes_back_with_what_it_had(kafka_cluster):
    kafka_cluster.create_topic("survivor", replication=3)
    acknowledged_by_all = ["--topic", "survivor", "--command-property", "acks=all"]
    kafka_cluster.tool(PRODUCER, acknowledged_by_all, input=b"before\n")
    kafka_cluster.kill(2)
    kafka_cluster.tool(PRODUCER, acknowledged_by_all, input=b"meanwhile\n")
    kafka_cluster.start_broker(2)
    assert consume(kafka_cluster, "survivor", 2) == [b"before", b"meanwhile"]


def test_topics_are_created_extended_and_deleted(kafka):
    kafka.create_topic("changing", config={"max.message.bytes": 2000})
    kafka.create_partitions("changing", 3)
    assert len(admin.metadata(kafka.port(1), ["changing"]).topics[0].partitions) == 3
    with pytest.raises(admin.Refused):
        kafka.create_topic("changing")
    kafka.delete_topic("changing")
    with pytest.raises(admin.Refused):
        kafka.delete_topic("changing")


@pytest.mark.slow
def test_a_paused_broker_answers_when_it_is_resumed(kafka_cluster):
    kafka_cluster.pause(3)
    with pytest.raises(socket.timeout):
        admin.call(kafka_cluster.port(3), MetadataRequest(), 1, timeout=1)
    kafka_cluster.resume(3)
    assert len(admin.call(kafka_cluster.port(3), MetadataRequest(), 1).brokers) == 3


def test_a_broker_that_cannot_start_shows_its_log():
    needs.kafka()
    with pytest.raises(AssertionError) as failure:
        kafka_servers.KafkaServers(config={"metric.reporters": "no.such.Reporter"}).start()
    assert "no.such.Reporter" in str(failure.value)
