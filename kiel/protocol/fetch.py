"""Fetch: records of partitions, from their leader (or a replica near by, KIP-392).

Versions 0 to 3, and with them the message formats before record batches, aren't spoken; from version 13 on
topics go by their ids.
"""
from kiel.protocol.primitives import Array, Int8, Int16, Int32, Int64, Nullable, Records, String
from kiel.protocol.schema import Field, Request, Response, Struct

NO_LIMIT = 0x7FFFFFFF


class EpochEndOffset(Struct):
    parts = (
        Field("epoch", Int32, default=-1),
        Field("end_offset", Int64, default=-1),
    )


class LeaderIdAndEpoch(Struct):
    parts = (
        Field("leader_id", Int32, default=-1),
        Field("leader_epoch", Int32, default=-1),
    )


class SnapshotId(Struct):
    parts = (
        Field("end_offset", Int64, default=-1),
        Field("epoch", Int32, default=-1),
    )


class AbortedTransaction(Struct):
    parts = (
        Field("producer_id", Int64),
        Field("first_offset", Int64),
    )


class PartitionData(Struct):
    parts = (
        Field("partition_index", Int32),
        Field("error_code", Int16),
        Field("high_watermark", Int64),
        Field("last_stable_offset", Int64, default=-1),
        Field("log_start_offset", Int64, since=5, default=-1, ignorable=True),
        Field("diverging_epoch", EpochEndOffset, since=12, tag=0),
        Field("current_leader", LeaderIdAndEpoch, since=12, tag=1),
        Field("snapshot_id", SnapshotId, since=12, tag=2),
        Field("aborted_transactions", Nullable(Array(AbortedTransaction)), default=()),
        Field("preferred_read_replica", Int32, since=11, default=-1),
        Field("records", Nullable(Records)),
    )


class FetchableTopicResponse(Struct):
    parts = (
        Field("topic", String),
        Field("partitions", Array(PartitionData)),
    )


class FetchResponse(Response):
    api, key, versions, flexible_from = "fetch", 1, (4, 12), 12
    parts = (
        Field("throttle_time_ms", Int32),
        Field("error_code", Int16, since=7, ignorable=True),
        Field("session_id", Int32, since=7),
        Field("responses", Array(FetchableTopicResponse)),
    )


class FetchPartition(Struct):
    parts = (
        Field("partition", Int32),
        Field("current_leader_epoch", Int32, since=9, default=-1, ignorable=True),
        Field("fetch_offset", Int64),
        Field("last_fetched_epoch", Int32, since=12, default=-1),
        Field("log_start_offset", Int64, since=5, default=-1, ignorable=True),
        Field("partition_max_bytes", Int32),
    )


class FetchTopic(Struct):
    parts = (
        Field("topic", String),
        Field("partitions", Array(FetchPartition)),
    )


class ForgottenTopic(Struct):
    parts = (
        Field("topic", String),
        Field("partitions", Array(Int32)),
    )


class FetchRequest(Request):
    """`isolation_level` is 0 (read_uncommitted) or 1 (read_committed).

    A fetch without a session (KIP-227) has `session_id` 0 and `session_epoch` -1.
    """

    api, key, versions, flexible_from = "fetch", 1, (4, 12), 12
    kafka = "0.11"
    response = FetchResponse
    throttle_from = 8
    parts = (
        Field("cluster_id", Nullable(String), since=12, tag=0, ignorable=True),
        Field("replica_id", Int32, default=-1),
        Field("max_wait_ms", Int32),
        Field("min_bytes", Int32),
        Field("max_bytes", Int32, default=NO_LIMIT),
        Field("isolation_level", Int8),
        Field("session_id", Int32, since=7, ignorable=True),
        Field("session_epoch", Int32, since=7, default=-1, ignorable=True),
        Field("topics", Array(FetchTopic)),
        Field("forgotten_topics_data", Array(ForgottenTopic), since=7),
        Field("rack_id", String, since=11, ignorable=True),
    )
