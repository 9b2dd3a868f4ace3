"""JoinGroup: become a member of a group, or stay one through a rebalance."""
from kiel.protocol.primitives import Array, Boolean, Bytes, Int16, Int32, Nullable, String
from kiel.protocol.schema import Field, Request, Response, Struct


class JoinGroupResponseMember(Struct):
    parts = (
        Field("member_id", String),
        Field("group_instance_id", Nullable(String), since=5, ignorable=True),
        Field("metadata", Bytes),
    )


class JoinGroupResponse(Response):
    """`members` is there for the leader only.

    The leader of a group that goes on with the assignment it has is told so by `skip_assignment` (KIP-814).
    """

    api, key, versions, flexible_from = "join_group", 11, (0, 9), 6
    parts = (
        Field("throttle_time_ms", Int32, since=2, ignorable=True),
        Field("error_code", Int16),
        Field("generation_id", Int32, default=-1),
        Field("protocol_type", Nullable(String), since=7, ignorable=True),
        Field("protocol_name", String, nullable_since=7),
        Field("leader", String),
        Field("skip_assignment", Boolean, since=9),
        Field("member_id", String),
        Field("members", Array(JoinGroupResponseMember)),
    )


class JoinGroupRequestProtocol(Struct):
    parts = (
        Field("name", String),
        Field("metadata", Bytes),
    )


class JoinGroupRequest(Request):
    """`member_id` is empty for who is new.

    From version 4 on the answer to that is MEMBER_ID_REQUIRED and an id to join with (KIP-394).
    `protocols` are in order of preference. Version 0 has no `rebalance_timeout_ms`: there the broker takes
    `session_timeout_ms` for it. A `group_instance_id` (KIP-345) takes version 5.
    """

    api, key, versions, flexible_from = "join_group", 11, (0, 9), 6
    kafka = "0.9"
    response = JoinGroupResponse
    throttle_from = 3
    parts = (
        Field("group_id", String),
        Field("session_timeout_ms", Int32),
        Field("rebalance_timeout_ms", Int32, since=1, default=-1, ignorable=True),
        Field("member_id", String),
        Field("group_instance_id", Nullable(String), since=5),
        Field("protocol_type", String),
        Field("protocols", Array(JoinGroupRequestProtocol)),
        Field("reason", Nullable(String), since=8, ignorable=True),
    )
