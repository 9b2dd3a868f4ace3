"""ListGroups: the groups that one broker coordinates."""
from kiel.protocol.primitives import Array, Int16, Int32, String
from kiel.protocol.schema import Field, Request, Response, Struct


class ListedGroup(Struct):
    parts = (
        Field("group_id", String),
        Field("protocol_type", String),
        Field("group_state", String, since=4, ignorable=True),
        Field("group_type", String, since=5, ignorable=True),
    )


class ListGroupsResponse(Response):
    api, key, versions, flexible_from = "list_groups", 16, (0, 5), 3
    parts = (
        Field("throttle_time_ms", Int32, since=1, ignorable=True),
        Field("error_code", Int16),
        Field("groups", Array(ListedGroup)),
    )


class ListGroupsRequest(Request):
    """Empty filters list all groups; `states_filter` takes version 4, `types_filter` version 5."""

    api, key, versions, flexible_from = "list_groups", 16, (0, 5), 3
    kafka = "0.9"
    response = ListGroupsResponse
    throttle_from = 2
    parts = (
        Field("states_filter", Array(String), since=4),
        Field("types_filter", Array(String), since=5),
    )
