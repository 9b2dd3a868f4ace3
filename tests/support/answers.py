"""What a scripted broker answers when a test tells it nothing else: one function an API, (broker, call, error).

`error` is None, or the Error that the answer has to carry.
"""
import datetime
import uuid

from tornado import gen
from tornado.ioloop import IOLoop

from kiel.protocol import api_versions, fetch, init_producer_id, list_offsets, metadata, primitives, produce, records
from tests.support.partition_log import whole_batches

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
NOT_LEADER_OR_FOLLOWER = 6
UNSUPPORTED_VERSION = 35
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75

REQUESTS = {
    request.key: request
    for request in (
        api_versions.ApiVersionsRequest,
        fetch.FetchRequest,
        init_producer_id.InitProducerIdRequest,
        list_offsets.OffsetRequest,
        metadata.MetadataRequest,
        produce.ProduceRequest,
    )
}
KEYS = {request.api: key for key, request in REQUESTS.items()}


def _verdict(broker, error, topic, partition, epoch=-1):
    """The error code that a request about a partition gets from this broker; 0 if nothing is wrong."""
    cluster = broker.cluster
    if error is not None and error.covers(topic, partition):
        return error.code
    if topic in cluster.topic_errors:
        return cluster.topic_errors[topic]
    if partition not in cluster.topics.get(topic, ()):
        return UNKNOWN_TOPIC_OR_PARTITION
    if cluster.topics[topic][partition] != broker.node_id:
        return NOT_LEADER_OR_FOLLOWER
    current = cluster.epochs.get((topic, partition), 0)
    if 0 <= epoch < current:
        return FENCED_LEADER_EPOCH
    return UNKNOWN_LEADER_EPOCH if epoch > current else 0


def answer_api_versions(broker, call, error):
    code = error.code if error is not None else 0
    if call.body is None:
        code = UNSUPPORTED_VERSION
    ranges = sorted((KEYS[api], lowest, highest) for api, (lowest, highest) in broker.versions.items())
    return api_versions.ApiVersionsResponse(
        error_code=code,
        api_keys=[
            api_versions.ApiVersion(api_key=key, min_version=lowest, max_version=highest)
            for key, lowest, highest in ranges
        ],
    )


def answer_metadata(broker, call, error):
    cluster, request = broker.cluster, call.body
    if request.topics is None or (call.version == 0 and not request.topics):
        names = sorted(cluster.topics)
    else:
        names = [topic.name for topic in request.topics]
    for name in names:
        if name not in cluster.topics and cluster.auto_create and request.allow_auto_topic_creation:
            cluster.topics[name] = {partition: broker.node_id for partition in range(cluster.auto_create)}
    return metadata.MetadataResponse(
        brokers=[_metadata_broker(each) for each in cluster.brokers],
        cluster_id="scripted",
        controller_id=cluster.brokers[0].node_id,
        topics=[_metadata_topic(cluster, name, error) for name in names],
    )


def _metadata_broker(broker):
    host, port = broker.advertised or (broker.host, broker.port)
    return metadata.MetadataResponseBroker(node_id=broker.node_id, host=host, port=port, rack=broker.rack)


def _metadata_topic(cluster, name, error):
    code = cluster.topic_errors.get(name, 0 if name in cluster.topics else UNKNOWN_TOPIC_OR_PARTITION)
    if error is not None and error.covers(name):
        code = error.code
    topic = metadata.MetadataResponseTopic(error_code=code, name=name)
    if not code:
        topic.topic_id = cluster.topic_ids.setdefault(name, uuid.uuid4().bytes)
        topic.partitions = [
            _metadata_partition(cluster, name, partition, leader)
            for partition, leader in sorted(cluster.topics[name].items())
        ]
    return topic


def _metadata_partition(cluster, topic, partition, leader):
    nodes = [broker.node_id for broker in cluster.brokers]
    return metadata.MetadataResponsePartition(
        error_code=LEADER_NOT_AVAILABLE if leader is None else 0,
        partition_index=partition,
        leader_id=-1 if leader is None else leader,
        leader_epoch=cluster.epochs.get((topic, partition), 0),
        replica_nodes=nodes,
        isr_nodes=nodes,
        offline_replicas=[],
    )


def answer_produce(broker, call, error):
    responses = [
        produce.TopicProduceResponse(
            name=topic.name,
            partition_responses=[_appended(broker, error, topic.name, part) for part in topic.partition_data],
        )
        for topic in call.body.topic_data
    ]
    return produce.ProduceResponse(responses=responses) if call.body.acks != 0 else None


def _appended(broker, error, topic, part):
    code, base_offset = _verdict(broker, error, topic, part.index), -1
    if not code:
        code, base_offset = broker.cluster.append(topic, part.index, part.records)
    return produce.PartitionProduceResponse(
        index=part.index, error_code=code, base_offset=base_offset, log_append_time_ms=-1, log_start_offset=0
    )


@gen.coroutine
def answer_fetch(broker, call, error):
    """As Kafka does: at once if there are `min_bytes` or an error, and otherwise when there are or the wait is over."""
    loop, request = IOLoop.current(), call.body
    until = loop.time() + request.max_wait_ms / 1000.0
    while True:
        response, size, failed = _read(broker, request, error)
        if failed or size >= request.min_bytes or loop.time() >= until:
            broker.cluster.served_bytes += _whole_batches(response)
            raise gen.Return(response)
        yield broker.cluster.changed.wait(datetime.timedelta(seconds=until - loop.time()))
        if not broker.is_up:
            raise gen.Return(response)


def _whole_batches(response):
    """The bytes of the batches that weren't cut off."""
    return sum(
        len(batch)
        for topic in response.responses
        for part in topic.partitions
        for batch in whole_batches(part.records or b"")
    )


def _read(broker, request, error):
    """(response, bytes of records in it, whether a partition has an error)."""
    left, topics, size, failed = request.max_bytes, [], 0, False
    for topic in request.topics:
        partitions = []
        for wanted in topic.partitions:
            part = _read_partition(broker, error, topic.topic, wanted, request.isolation_level, left, size == 0)
            size, left = size + len(part.records or b""), left - len(part.records or b"")
            failed = failed or part.error_code != 0
            partitions.append(part)
        topics.append(fetch.FetchableTopicResponse(topic=topic.topic, partitions=partitions))
    return fetch.FetchResponse(responses=topics), size, failed


def _read_partition(broker, error, topic, wanted, isolation_level, left, is_first):
    code = _verdict(broker, error, topic, wanted.partition, wanted.current_leader_epoch)
    if code:
        return fetch.PartitionData(
            partition_index=wanted.partition, error_code=code, high_watermark=-1, records=None
        )
    log = broker.cluster.log(topic, wanted.partition)
    part = fetch.PartitionData(
        partition_index=wanted.partition,
        error_code=0,
        high_watermark=log.end,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.start,
        records=b"",
    )
    if not log.start <= wanted.fetch_offset <= log.end:
        part.error_code = OFFSET_OUT_OF_RANGE
        return part
    limit = max(0, min(left, wanted.partition_max_bytes))
    bound = log.last_stable_offset if isolation_level else log.end
    part.records = log.read(wanted.fetch_offset, limit, bound, at_least_one=is_first)
    if isolation_level:
        part.aborted_transactions = [
            fetch.AbortedTransaction(producer_id=producer_id, first_offset=first) for producer_id, first in log.aborted
        ]
    return part


def answer_offset(broker, call, error):
    return list_offsets.OffsetResponse(
        topics=[
            list_offsets.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _offset_of(broker, error, topic.name, part, call.body.isolation_level) for part in topic.partitions
                ],
            )
            for topic in call.body.topics
        ]
    )


def _offset_of(broker, error, topic, part, isolation_level):
    code = _verdict(broker, error, topic, part.partition_index, part.current_leader_epoch)
    timestamp, offset = -1, -1
    if not code:
        log = broker.cluster.log(topic, part.partition_index)
        if part.timestamp == -1:
            offset = log.last_stable_offset if isolation_level else log.end
        elif part.timestamp == -2:
            offset = log.start
        else:
            timestamp, offset = _first_since(log, part.timestamp)
    return list_offsets.ListOffsetsPartitionResponse(
        partition_index=part.partition_index, error_code=code, timestamp=timestamp, offset=offset
    )


def _first_since(log, timestamp):
    """(timestamp, offset) of the first record of that time or later; (-1, -1) if there is none."""
    for stored in log.batches:
        for batch in records.batches(primitives.Span(stored.data, 0, len(stored.data))):
            for columns in filter(None, batch.columns()):
                for offset, when in zip(columns.offsets, columns.timestamps):
                    if when >= timestamp:
                        return when, offset
    return -1, -1


def answer_init_producer_id(broker, call, error):
    if error is not None:
        return init_producer_id.InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)
    broker.cluster.next_producer_id += 1
    return init_producer_id.InitProducerIdResponse(
        error_code=0, producer_id=broker.cluster.next_producer_id, producer_epoch=0
    )


USUAL = {
    "api_versions": answer_api_versions,
    "fetch": answer_fetch,
    "init_producer_id": answer_init_producer_id,
    "metadata": answer_metadata,
    "offset": answer_offset,
    "produce": answer_produce,
}
