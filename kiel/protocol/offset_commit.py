"""OffsetCommit: a group's offsets are kept, by its coordinator.

Version 0 keeps them in ZooKeeper, the others in Kafka. From version 10 on topics go by their ids: not spoken.
"""
from kiel.protocol.primitives import Array, Int16, Int32, Int64, Nullable, String
from kiel.protocol.schema import Field, Request, Response, Struct


class OffsetCommitResponsePartition(Struct):
    parts = (
        Field("partition_index", Int32),
        Field("error_code", Int16),
    )


class OffsetCommitResponseTopic(Struct):
    parts = (
        Field("name", String),
        Field("partitions", Array(OffsetCommitResponsePartition)),
    )


class OffsetCommitResponse(Response):
    api, key, versions, flexible_from = "offset_commit", 8, (0, 9), 8
    parts = (
        Field("throttle_time_ms", Int32, since=3, ignorable=True),
        Field("topics", Array(OffsetCommitResponseTopic)),
    )


class OffsetCommitRequestPartition(Struct):
    parts = (
        Field("partition_index", Int32),
        Field("committed_offset", Int64),
        Field("committed_leader_epoch", Int32, since=6, default=-1, ignorable=True),
        Field("commit_timestamp", Int64, since=1, until=1, default=-1),
        Field("committed_metadata", Nullable(String), default=u""),
    )


class OffsetCommitRequestTopic(Struct):
    parts = (
        Field("name", String),
        Field("partitions", Array(OffsetCommitRequestPartition)),
    )


class OffsetCommitRequest(Request):
    """Who is no member of the group commits with generation -1 and no member id, which takes a group without
    members.

    A committed offset is that of the next record to read. `retention_time_ms` -1 is the broker's setting.
    """

    api, key, versions, flexible_from = "offset_commit", 8, (0, 9), 8
    kafka = "0.8.1"
    response = OffsetCommitResponse
    throttle_from = 4
    parts = (
        Field("group_id", String),
        Field("generation_id_or_member_epoch", Int32, since=1, default=-1, ignorable=True),
        Field("member_id", String, since=1, ignorable=True),
        Field("group_instance_id", Nullable(String), since=7),
        Field("retention_time_ms", Int64, since=2, until=4, default=-1, ignorable=True),
        Field("topics", Array(OffsetCommitRequestTopic)),
    )
