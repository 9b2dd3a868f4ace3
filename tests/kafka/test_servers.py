"""The servers that the other tests stand on: started, used by Apache's own tools, killed, and gone."""
import os
import subprocess
import sys
import time

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


def test_a_broker_is_killed_and_comes_back_with_what_it_had(kafka_cluster):
    kafka_cluster.create_topic("survivor", replication=3)
    kafka_cluster.tool(PRODUCER, ["--topic", "survivor", "--command-property", "acks=all"], input=b"before\n")
    kafka_cluster.kill(2)
    kafka_cluster.tool(PRODUCER, ["--topic", "survivor", "--command-property", "acks=all"], input=b"meanwhile\n")
    kafka_cluster.start_broker(2)
    assert consume(kafka_cluster, "survivor", 2) == [b"before", b"meanwhile"]
