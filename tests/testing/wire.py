"""Requests to one broker over a blocking socket, for tests that look at a cluster and not at a client."""
import socket

from kiel.protocol import records
from kiel.protocol.conversation import Conversation
from kiel.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from kiel.protocol.list_offsets import ListOffsetsPartition, ListOffsetsTopic, OffsetRequest
from kiel.protocol.metadata import MetadataRequest, MetadataRequestTopic
from kiel.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData


class Hangup(Exception):
    """The broker closed the connection."""


class Wire(object):
    def __init__(self, address):
        host, port = address.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=10)
        self._conversation = Conversation("wire")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._socket.close()

    def ask(self, request, version):
        """The response to one request."""
        self._socket.sendall(self._conversation.send(request, version)[1])
        while True:
            data = self._socket.recv(self._conversation.wanted)
            if not data:
                raise Hangup()
            for _, response in self._conversation.receive(data):
                return response

    def metadata(self, *topics):
        asked = [MetadataRequestTopic(name=topic) for topic in topics]
        return self.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 8)

    def produce(self, topic, batch, partition=0, version=9):
        """The response's only partition."""
        data = PartitionProduceData(index=partition, records=batch)
        topics = [TopicProduceData(name=topic, partition_data=[data])]
        response = self.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics), version)
        return response.responses[0].partition_responses[0]

    def fetch(self, topic, offset, partition=0, version=11, max_bytes=2 ** 20, max_wait_ms=0):
        """The response's only partition."""
        part = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        topics = [FetchTopic(topic=topic, partitions=[part])]
        request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=max_bytes, topics=topics)
        return self.ask(request, version).responses[0].partitions[0]

    def offset(self, topic, timestamp, partition=0):
        """What ListOffsets gives for a timestamp, or for -2 (the first) and -1 (the end)."""
        part = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        topics = [ListOffsetsTopic(name=topic, partitions=[part])]
        return self.ask(OffsetRequest(replica_id=-1, topics=topics), 5).topics[0].partitions[0].offset


def batch_of(*values, **options):
    """A batch of records with these values."""
    builder = records.BatchBuilder(**options)
    for value in values:
        builder.append(1000, None, value, None)
    return builder.build()


def values_of(partition):
    """The values in what a fetch gave for a partition."""
    found = []
    for batch in records.batches(partition.records) if partition.records else ():
        for columns in batch.columns():
            found.extend(columns.values if columns else ())
    return found
