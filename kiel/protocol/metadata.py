"""Metadata: the brokers of a cluster, and the partitions of topics with their leaders."""
from kiel.protocol.primitives import Array, Boolean, Int16, Int32, Nullable, String, Uuid
from kiel.protocol.schema import Field, Request, Response, Struct

# the authorized operations where none were asked for
NOT_ASKED = -2147483648


class MetadataResponseBroker(Struct):
    parts = (
        Field("node_id", Int32),
        Field("host", String),
        Field("port", Int32),
        Field("rack", Nullable(String), since=1, ignorable=True),
    )


class MetadataResponsePartition(Struct):
    parts = (
        Field("error_code", Int16),
        Field("partition_index", Int32),
        Field("leader_id", Int32),
        Field("leader_epoch", Int32, since=7, default=-1, ignorable=True),
        Field("replica_nodes", Array(Int32)),
        Field("isr_nodes", Array(Int32)),
        Field("offline_replicas", Array(Int32), since=5, ignorable=True),
    )


class MetadataResponseTopic(Struct):
    parts = (
        Field("error_code", Int16),
        Field("name", String, nullable_since=12),
        Field("topic_id", Uuid, since=10, ignorable=True),
        Field("is_internal", Boolean, since=1, ignorable=True),
        Field("partitions", Array(MetadataResponsePartition)),
        Field("topic_authorized_operations", Int32, since=8, default=NOT_ASKED),
    )


class MetadataResponse(Response):
    api, key, versions, flexible_from = "metadata", 3, (0, 13), 9
    parts = (
        Field("throttle_time_ms", Int32, since=3, ignorable=True),
        Field("brokers", Array(MetadataResponseBroker)),
        Field("cluster_id", Nullable(String), since=2, ignorable=True),
        Field("controller_id", Int32, since=1, default=-1, ignorable=True),
        Field("topics", Array(MetadataResponseTopic)),
        Field("cluster_authorized_operations", Int32, since=8, until=10, default=NOT_ASKED),
        Field("error_code", Int16, since=13, ignorable=True),
    )


class MetadataRequestTopic(Struct):
    parts = (
        Field("topic_id", Uuid, since=10, ignorable=True),
        Field("name", String, nullable_since=10),
    )


class MetadataRequest(Request):
    """`topics` None asks for all topics, [] for none; in version 0 [] asks for all."""

    api, key, versions, flexible_from = "metadata", 3, (0, 13), 9
    kafka = "0.8"
    response = MetadataResponse
    throttle_from = 6
    parts = (
        Field("topics", Array(MetadataRequestTopic), nullable_since=1),
        Field("allow_auto_topic_creation", Boolean, since=4, default=True),
        Field("include_cluster_authorized_operations", Boolean, since=8, until=10),
        Field("include_topic_authorized_operations", Boolean, since=8),
    )
