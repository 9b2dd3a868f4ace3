"""Produce: records for partitions, to their leader.

Versions 0 to 2, and with them the message formats before record batches, aren't spoken; from version 13 on
topics go by their ids.
"""
from kiel.protocol.primitives import Array, Int16, Int32, Int64, Nullable, Records, String
from kiel.protocol.schema import Field, Request, Response, Struct


class BatchIndexAndErrorMessage(Struct):
    parts = (
        Field("batch_index", Int32),
        Field("batch_index_error_message", Nullable(String)),
    )


class LeaderIdAndEpoch(Struct):
    parts = (
        Field("leader_id", Int32, default=-1),
        Field("leader_epoch", Int32, default=-1),
    )


class PartitionProduceResponse(Struct):
    parts = (
        Field("index", Int32),
        Field("error_code", Int16),
        Field("base_offset", Int64),
        Field("log_append_time_ms", Int64, default=-1),
        Field("log_start_offset", Int64, since=5, default=-1, ignorable=True),
        Field("record_errors", Array(BatchIndexAndErrorMessage), since=8, ignorable=True),
        Field("error_message", Nullable(String), since=8, ignorable=True),
        Field("current_leader", LeaderIdAndEpoch, since=10, tag=0),
    )


class TopicProduceResponse(Struct):
    parts = (
        Field("name", String),
        Field("partition_responses", Array(PartitionProduceResponse)),
    )


class NodeEndpoint(Struct):
    parts = (
        Field("node_id", Int32),
        Field("host", String),
        Field("port", Int32),
        Field("rack", Nullable(String)),
    )


class ProduceResponse(Response):
    api, key, versions, flexible_from = "produce", 0, (3, 12), 9
    parts = (
        Field("responses", Array(TopicProduceResponse)),
        Field("throttle_time_ms", Int32),
        Field("node_endpoints", Array(NodeEndpoint), since=10, tag=0),
    )


class PartitionProduceData(Struct):
    parts = (
        Field("index", Int32),
        Field("records", Nullable(Records)),
    )


class TopicProduceData(Struct):
    parts = (
        Field("name", String),
        Field("partition_data", Array(PartitionProduceData)),
    )


class ProduceRequest(Request):
    """`acks` is 0 (there is no response), 1 (the leader) or -1 (all replicas in sync)."""

    api, key, versions, flexible_from = "produce", 0, (3, 12), 9
    kafka = "0.11"
    response = ProduceResponse
    throttle_from = 6
    parts = (
        Field("transactional_id", Nullable(String)),
        Field("acks", Int16),
        Field("timeout_ms", Int32),
        Field("topic_data", Array(TopicProduceData)),
    )

    @property
    def answered(self):
        return self.acks != 0
