"""DescribeGroups: state and members of groups, from their coordinator."""
from kiel.protocol.metadata import NOT_ASKED
from kiel.protocol.primitives import Array, Boolean, Bytes, Int16, Int32, Nullable, String
from kiel.protocol.schema import Field, Request, Response, Struct


class DescribedGroupMember(Struct):
    parts = (
        Field("member_id", String),
        Field("group_instance_id", Nullable(String), since=4, ignorable=True),
        Field("client_id", String),
        Field("client_host", String),
        Field("member_metadata", Bytes),
        Field("member_assignment", Bytes),
    )


class DescribedGroup(Struct):
    """`protocol_data` (the protocol's name) and the members' bytes are there while the group is Stable.

    A group that there isn't has the state Dead; from version 6 on the error is GROUP_ID_NOT_FOUND too.
    """

    parts = (
        Field("error_code", Int16),
        Field("error_message", Nullable(String), since=6),
        Field("group_id", String),
        Field("group_state", String),
        Field("protocol_type", String),
        Field("protocol_data", String),
        Field("members", Array(DescribedGroupMember)),
        Field("authorized_operations", Int32, since=3, default=NOT_ASKED),
    )


class DescribeGroupsResponse(Response):
    api, key, versions, flexible_from = "describe_groups", 15, (0, 6), 5
    parts = (
        Field("throttle_time_ms", Int32, since=1, ignorable=True),
        Field("groups", Array(DescribedGroup)),
    )


class DescribeGroupsRequest(Request):
    api, key, versions, flexible_from = "describe_groups", 15, (0, 6), 5
    kafka = "0.9"
    response = DescribeGroupsResponse
    throttle_from = 2
    parts = (
        Field("groups", Array(String)),
        Field("include_authorized_operations", Boolean, since=3),
    )
