"""ApiVersions: which APIs a broker speaks, in which versions (KIP-35, KIP-511)."""
from kiel.exc import ProtocolError
from kiel.protocol import errors
from kiel.protocol.primitives import Array, Boolean, Int16, Int32, Int64, String
from kiel.protocol.schema import Field, Request, Response, Struct

_UNSUPPORTED_VERSION = b"\x00\x23"


class ApiVersion(Struct):
    parts = (
        Field("api_key", Int16),
        Field("min_version", Int16),
        Field("max_version", Int16),
    )


class SupportedFeatureKey(Struct):
    parts = (
        Field("name", String),
        Field("min_version", Int16),
        Field("max_version", Int16),
    )


class FinalizedFeatureKey(Struct):
    parts = (
        Field("name", String),
        Field("max_version_level", Int16),
        Field("min_version_level", Int16),
    )


class ApiVersionsResponse(Response):
    api, key, versions, flexible_from = "api_versions", 18, (0, 4), 3
    # a client that doesn't know the broker yet has to be able to read the header
    flexible_header = False
    parts = (
        Field("error_code", Int16),
        Field("api_keys", Array(ApiVersion)),
        Field("throttle_time_ms", Int32, since=1, ignorable=True),
        Field("supported_features", Array(SupportedFeatureKey), since=3, tag=0, ignorable=True),
        Field("finalized_features_epoch", Int64, since=3, tag=1, default=-1, ignorable=True),
        Field("finalized_features", Array(FinalizedFeatureKey), since=3, tag=2, ignorable=True),
        Field("zk_migration_ready", Boolean, since=3, tag=3, ignorable=True),
    )

    @classmethod
    def decode(cls, data, version, start=0):
        """As for every message; but a broker that refuses the version answers in version 0, with error 35.

        Some (librdkafka's mock cluster) send nothing well formed after the error code: then `api_keys` is [].
        """
        try:
            return super(ApiVersionsResponse, cls).decode(data, version, start)
        except ProtocolError:
            if version == 0 or data[start:start + 2] != _UNSUPPORTED_VERSION:
                raise
        try:
            return super(ApiVersionsResponse, cls).decode(data, 0, start)
        except ProtocolError:
            return cls(error_code=errors.named("UNSUPPORTED_VERSION").code)


class ApiVersionsRequest(Request):
    api, key, versions, flexible_from = "api_versions", 18, (0, 4), 3
    kafka = "0.10"
    response = ApiVersionsResponse
    throttle_from = 2
    parts = (
        Field("client_software_name", String, since=3, ignorable=True),
        Field("client_software_version", String, since=3, ignorable=True),
    )
