"""InitProducerId: an id and an epoch for an idempotent or transactional producer (KIP-98, KIP-360)."""
from kiel.protocol.primitives import Int16, Int32, Int64, Nullable, String
from kiel.protocol.schema import Field, Request, Response


class InitProducerIdResponse(Response):
    api, key, versions, flexible_from = "init_producer_id", 22, (0, 5), 2
    parts = (
        Field("throttle_time_ms", Int32),
        Field("error_code", Int16),
        Field("producer_id", Int64, default=-1),
        Field("producer_epoch", Int16),
    )


class InitProducerIdRequest(Request):
    """`transactional_id` None asks for the id of a producer that is idempotent only."""

    api, key, versions, flexible_from = "init_producer_id", 22, (0, 5), 2
    kafka = "0.11"
    response = InitProducerIdResponse
    throttle_from = 1
    parts = (
        Field("transactional_id", Nullable(String), default=u""),
        Field("transaction_timeout_ms", Int32),
        Field("producer_id", Int64, since=3, default=-1),
        Field("producer_epoch", Int16, since=3, default=-1),
    )
