"""SyncGroup: the leader hands in all members' assignments, each member gets its own."""
from kiel.protocol.primitives import Array, Bytes, Int16, Int32, Nullable, String
from kiel.protocol.schema import Field, Request, Response, Struct


class SyncGroupResponse(Response):
    api, key, versions, flexible_from = "sync_group", 14, (0, 5), 4
    parts = (
        Field("throttle_time_ms", Int32, since=1, ignorable=True),
        Field("error_code", Int16),
        Field("protocol_type", Nullable(String), since=5, ignorable=True),
        Field("protocol_name", Nullable(String), since=5, ignorable=True),
        Field("assignment", Bytes),
    )


class SyncGroupRequestAssignment(Struct):
    parts = (
        Field("member_id", String),
        Field("assignment", Bytes),
    )


class SyncGroupRequest(Request):
    """`assignments` is empty but for the leader.

    From version 5 on the broker compares `protocol_type` and `protocol_name` with the group's (KIP-559); what
    is None there is answered with INCONSISTENT_GROUP_PROTOCOL.
    """

    api, key, versions, flexible_from = "sync_group", 14, (0, 5), 4
    kafka = "0.9"
    response = SyncGroupResponse
    throttle_from = 2
    parts = (
        Field("group_id", String),
        Field("generation_id", Int32),
        Field("member_id", String),
        Field("group_instance_id", Nullable(String), since=3),
        Field("protocol_type", Nullable(String), since=5, ignorable=True),
        Field("protocol_name", Nullable(String), since=5, ignorable=True),
        Field("assignments", Array(SyncGroupRequestAssignment)),
    )
