"""What tests ask of a real broker to prepare a topic: over a blocking socket, without starting a JVM."""
import socket
import struct
import time

from kiel.protocol.errors import lookup
from kiel.protocol.metadata import MetadataRequest, MetadataRequestTopic
from kiel.protocol.primitives import Array, Boolean, Int16, Int32, Int64, Nullable, String
from kiel.protocol.schema import Field, Request, Response, Struct

ANSWER_SECONDS = 30


class CreatableTopicAssignment(Struct):
    parts = (Field("partition_index", Int32), Field("broker_ids", Array(Int32)))


class CreatableTopicConfig(Struct):
    parts = (Field("name", String), Field("value", Nullable(String)))


class CreatableTopic(Struct):
    parts = (
        Field("name", String),
        Field("num_partitions", Int32),
        Field("replication_factor", Int16),
        Field("assignments", Array(CreatableTopicAssignment)),
        Field("configs", Array(CreatableTopicConfig)),
    )


class CreatableTopicResult(Struct):
    parts = (Field("name", String), Field("error_code", Int16), Field("error_message", Nullable(String)))


class CreateTopicsResponse(Response):
    api, key, versions, flexible_from = "create_topics", 19, (2, 2), 5
    parts = (Field("throttle_time_ms", Int32), Field("topics", Array(CreatableTopicResult)))


class CreateTopicsRequest(Request):
    api, key, versions, flexible_from = "create_topics", 19, (2, 2), 5
    response = CreateTopicsResponse
    parts = (
        Field("topics", Array(CreatableTopic)),
        Field("timeout_ms", Int32),
        Field("validate_only", Boolean),
    )


class DeletableTopicResult(Struct):
    parts = (Field("name", String), Field("error_code", Int16))


class DeleteTopicsResponse(Response):
    api, key, versions, flexible_from = "delete_topics", 20, (1, 1), 4
    parts = (Field("throttle_time_ms", Int32), Field("responses", Array(DeletableTopicResult)))


class DeleteTopicsRequest(Request):
    api, key, versions, flexible_from = "delete_topics", 20, (1, 1), 4
    response = DeleteTopicsResponse
    parts = (Field("topic_names", Array(String)), Field("timeout_ms", Int32))


class CreatePartitionsAssignment(Struct):
    parts = (Field("broker_ids", Array(Int32)),)


class CreatePartitionsTopic(Struct):
    parts = (
        Field("name", String),
        Field("count", Int32),
        Field("assignments", Nullable(Array(CreatePartitionsAssignment))),
    )


class CreatePartitionsTopicResult(Struct):
    parts = (Field("name", String), Field("error_code", Int16), Field("error_message", Nullable(String)))


class CreatePartitionsResponse(Response):
    api, key, versions, flexible_from = "create_partitions", 37, (0, 0), 2
    parts = (Field("throttle_time_ms", Int32), Field("results", Array(CreatePartitionsTopicResult)))


class CreatePartitionsRequest(Request):
    api, key, versions, flexible_from = "create_partitions", 37, (0, 0), 2
    response = CreatePartitionsResponse
    parts = (
        Field("topics", Array(CreatePartitionsTopic)),
        Field("timeout_ms", Int32),
        Field("validate_only", Boolean),
    )


class DeleteRecordsPartition(Struct):
    parts = (Field("partition_index", Int32), Field("offset", Int64))


class DeleteRecordsTopic(Struct):
    parts = (Field("name", String), Field("partitions", Array(DeleteRecordsPartition)))


class DeleteRecordsPartitionResult(Struct):
    parts = (Field("partition_index", Int32), Field("low_watermark", Int64), Field("error_code", Int16))


class DeleteRecordsTopicResult(Struct):
    parts = (Field("name", String), Field("partitions", Array(DeleteRecordsPartitionResult)))


class DeleteRecordsResponse(Response):
    api, key, versions, flexible_from = "delete_records", 21, (1, 1), 2
    parts = (Field("throttle_time_ms", Int32), Field("topics", Array(DeleteRecordsTopicResult)))


class DeleteRecordsRequest(Request):
    api, key, versions, flexible_from = "delete_records", 21, (1, 1), 2
    response = DeleteRecordsResponse
    parts = (Field("topics", Array(DeleteRecordsTopic)), Field("timeout_ms", Int32))


class Refused(Exception):
    """The broker answered with an error."""


def call(port, request, version, timeout=ANSWER_SECONDS):
    """Send one request to 127.0.0.1:`port`: the response. socket.error if none comes in `timeout` seconds."""
    frame = struct.pack(">hhih4s", request.key, version, 1, 4, b"kiel") + request.encode(version)
    connection = socket.create_connection(("127.0.0.1", port), timeout=timeout)
    try:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        size, _ = struct.unpack(">ii", _read(connection, 8))
        return request.response.decode(_read(connection, size - 4), version)
    finally:
        connection.close()


def _read(connection, size):
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise socket.error("the broker hung up")
        data += more
    return data


def create_topic(port, name, partitions, replication, config):
    configs = [CreatableTopicConfig(name=key, value=str(value)) for key, value in config.items()]
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replication, configs=configs
    )
    _check(call(port, CreateTopicsRequest(topics=[topic], timeout_ms=ANSWER_SECONDS * 1000), 2).topics)


def delete_topic(port, name):
    _check(call(port, DeleteTopicsRequest(topic_names=[name], timeout_ms=ANSWER_SECONDS * 1000), 1).responses)


def create_partitions(port, name, total):
    topic = CreatePartitionsTopic(name=name, count=total)
    _check(call(port, CreatePartitionsRequest(topics=[topic], timeout_ms=ANSWER_SECONDS * 1000), 0).results)


def delete_records(port, topic, partition, offset):
    """Drop what lies before `offset`; the broker at `port` has to be the partition's leader."""
    place = DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[place])], timeout_ms=ANSWER_SECONDS * 1000
    )
    (result,) = call(port, request, 1).topics[0].partitions
    if result.error_code:
        raise Refused("%s[%d]: %s" % (topic, partition, lookup(result.error_code).name))


def _check(results):
    for result in results:
        if result.error_code:
            text = getattr(result, "error_message", None)
            raise Refused("%s: %s %s" % (result.name, lookup(result.error_code).name, text or ""))


def metadata(port, topics=()):
    """What the broker knows of the cluster and these topics (creating none); None if it can't be asked."""
    asked = [MetadataRequestTopic(name=name) for name in topics]
    try:
        return call(port, MetadataRequest(topics=asked, allow_auto_topic_creation=False), 4)
    except socket.error:
        return None


def brokers_known(port):
    """How many brokers the one at `port` says are there; 0 if it can't be asked."""
    answer = metadata(port)
    return len(answer.brokers) if answer else 0


def wait_for_partitions(ports, name, count):
    """Wait until every broker knows leaders of `count` partitions of the topic (0: knows no such topic)."""
    deadline = time.time() + ANSWER_SECONDS
    for port in ports:
        while _partitions_led(port, name) != count:
            if time.time() > deadline:
                raise AssertionError("the broker at port %d sees %s" % (port, metadata(port, [name])))
            time.sleep(0.02)


def _partitions_led(port, name):
    answer = metadata(port, [name])
    if answer is None:
        return None
    return sum(partition.error_code == 0 for partition in answer.topics[0].partitions)
