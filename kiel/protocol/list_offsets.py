"""ListOffsets: the offset of a partition at a time, or at either end."""
from kiel.protocol.primitives import Array, Int8, Int16, Int32, Int64, String
from kiel.protocol.schema import Field, Request, Response, Struct

# timestamps that mean an end of the partition
LATEST = -1
EARLIEST = -2


class ListOffsetsPartitionResponse(Struct):
    parts = (
        Field("partition_index", Int32),
        Field("error_code", Int16),
        Field("timestamp", Int64, default=-1),
        Field("offset", Int64, default=-1),
        Field("leader_epoch", Int32, since=4, default=-1),
    )


class ListOffsetsTopicResponse(Struct):
    parts = (
        Field("name", String),
        Field("partitions", Array(ListOffsetsPartitionResponse)),
    )


class OffsetResponse(Response):
    api, key, versions, flexible_from = "offset", 2, (1, 10), 6
    parts = (
        Field("throttle_time_ms", Int32, since=2, ignorable=True),
        Field("topics", Array(ListOffsetsTopicResponse)),
    )


class ListOffsetsPartition(Struct):
    parts = (
        Field("partition_index", Int32),
        Field("current_leader_epoch", Int32, since=4, default=-1, ignorable=True),
        Field("timestamp", Int64),
    )


class ListOffsetsTopic(Struct):
    parts = (
        Field("name", String),
        Field("partitions", Array(ListOffsetsPartition)),
    )


class OffsetRequest(Request):
    """`replica_id` is -1 for a consumer. With `isolation_level` 1 LATEST is the last stable offset.

    `timeout_ms` bounds the time that the broker may wait for tiered storage.
    """

    api, key, versions, flexible_from = "offset", 2, (1, 10), 6
    kafka = "0.10.1"
    response = OffsetResponse
    throttle_from = 3
    parts = (
        Field("replica_id", Int32),
        Field("isolation_level", Int8, since=2),
        Field("topics", Array(ListOffsetsTopic)),
        Field("timeout_ms", Int32, since=10, ignorable=True),
    )
