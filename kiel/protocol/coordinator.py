"""FindCoordinator: the broker that looks after a group (or a transactional id)."""
from kiel.exc import ProtocolError
from kiel.protocol.primitives import Array, Int8, Int16, Int32, Nullable, String
from kiel.protocol.schema import Field, Request, Response, Struct

# key types
GROUP = 0
TRANSACTION = 1

# the first version that asks for several at once (KIP-699)
_BATCHED = 4


class Coordinator(Struct):
    parts = (
        Field("key", String),
        Field("node_id", Int32),
        Field("host", String),
        Field("port", Int32),
        Field("error_code", Int16),
        Field("error_message", Nullable(String), default=u"", ignorable=True),
    )


class GroupCoordinatorResponse(Response):
    """To be read by `coordinator`, which is the same for all versions."""

    api, key, versions, flexible_from = "group_coordinator", 10, (0, 6), 3
    parts = (
        Field("throttle_time_ms", Int32, since=1, ignorable=True),
        Field("error_code", Int16, until=3),
        Field("error_message", String, since=1, until=3, nullable_since=1, ignorable=True),
        Field("node_id", Int32, until=3),
        Field("host", String, until=3),
        Field("port", Int32, until=3),
        Field("coordinators", Array(Coordinator), since=4),
    )

    def coordinator(self, key):
        """The Coordinator of `key`, which was asked for; ProtocolError if the broker left it out."""
        if self.decoded_version is not None and self.decoded_version < _BATCHED:
            return Coordinator(
                key=key, node_id=self.node_id, host=self.host, port=self.port, error_code=self.error_code,
                error_message=self.error_message,
            )
        for coordinator in self.coordinators:
            if coordinator.key == key:
                return coordinator
        raise ProtocolError("there is no answer about %s" % key, self.api, self.decoded_version)


class GroupCoordinatorRequest(Request):
    """`coordinator_keys`: groups or transactional ids, as `key_type` says; before version 4 one only.

    `coordinator_key` (Apache's "Key", but that is the API's number here) is where versions before 4 have it:
    encoding puts it there.
    """

    api, key, versions, flexible_from = "group_coordinator", 10, (0, 6), 3
    kafka = "0.8.2"
    response = GroupCoordinatorResponse
    throttle_from = 2
    parts = (
        Field("coordinator_key", String, until=3),
        Field("key_type", Int8, since=1),
        Field("coordinator_keys", Array(String), since=4),
    )

    def for_version(self, version):
        if version >= _BATCHED or not self.coordinator_keys:
            return self
        if len(self.coordinator_keys) > 1:
            raise ProtocolError("more than one coordinator can't be asked for by version %d" % version)
        return GroupCoordinatorRequest(coordinator_key=self.coordinator_keys[0], key_type=self.key_type)
