"""Looking offsets up by the list-offsets API: what to ask of whom, and what an answer says."""
import collections

from kiel.exc import KielError
from kiel.protocol import errors
from kiel.protocol.list_offsets import ListOffsetsPartition, ListOffsetsTopic, OffsetRequest

LEADER_NOT_AVAILABLE = errors.named("LEADER_NOT_AVAILABLE").code


class OffsetAndTimestamp(collections.namedtuple("OffsetAndTimestamp", ("offset", "timestamp"))):
    """An offset and its record's timestamp in milliseconds since 1970 (-1 where an end was asked for)."""

    __slots__ = ()


def build_requests(wanted, leader, read_committed):
    """{broker_id: OffsetRequest} for `wanted`, {(topic, partition): timestamp in ms, LATEST or EARLIEST}.

    `leader` gives a partition's leader; a partition that has none is left out.
    """
    by_broker = {}
    for (topic, partition), timestamp in sorted(wanted.items()):
        broker_id = leader(topic, partition)
        if broker_id is not None:
            topics = by_broker.setdefault(broker_id, collections.OrderedDict())
            topics.setdefault(topic, []).append(
                ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
            )
    return {
        broker_id: OffsetRequest(
            replica_id=-1,
            isolation_level=int(read_committed),
            topics=[ListOffsetsTopic(name=topic, partitions=asked) for topic, asked in topics.items()],
        )
        for broker_id, topics in by_broker.items()
    }


def read_response(response):
    """{(topic, partition): OffsetAndTimestamp or the partition's BrokerError}."""
    return {
        (topic.name, found.partition_index): (
            errors.exception(found.error_code, about="%s[%d]" % (topic.name, found.partition_index))
            if found.error_code
            else OffsetAndTimestamp(found.offset, found.timestamp)
        )
        for topic in response.topics
        for found in topic.partitions
    }


def merge(wanted, requests, results):
    """For each partition of `wanted` the OffsetAndTimestamp or KielError after `requests` had `results`."""
    known = {}
    for broker_id, request in requests.items():
        result = results[broker_id]
        for topic in request.topics:
            for asked in topic.partitions:
                place = (topic.name, asked.partition_index)
                known[place] = result if isinstance(result, KielError) else result.get(place)
    for place in wanted:
        if known.get(place) is None:
            known[place] = errors.exception(LEADER_NOT_AVAILABLE, about="%s[%d]" % place)
    return known
