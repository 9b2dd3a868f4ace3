"""Heartbeat: a member is alive, and hears whether its group is rebalancing."""
from kiel.protocol.primitives import Int16, Int32, Nullable, String
from kiel.protocol.schema import Field, Request, Response


class HeartbeatResponse(Response):
    api, key, versions, flexible_from = "heartbeat", 12, (0, 4), 4
    parts = (
        Field("throttle_time_ms", Int32, since=1, ignorable=True),
        Field("error_code", Int16),
    )


class HeartbeatRequest(Request):
    api, key, versions, flexible_from = "heartbeat", 12, (0, 4), 4
    kafka = "0.9"
    response = HeartbeatResponse
    throttle_from = 2
    parts = (
        Field("group_id", String),
        Field("generation_id", Int32),
        Field("member_id", String),
        Field("group_instance_id", Nullable(String), since=3),
    )
