"""OffsetFetch: the offsets that groups have committed, from their coordinator.

Version 0 reads them from ZooKeeper, the others from Kafka. From version 10 on topics go by their ids: not
spoken.
"""
from kiel.exc import ProtocolError
from kiel.protocol.primitives import Array, Boolean, Int16, Int32, Int64, Nullable, String
from kiel.protocol.schema import Field, Request, Response, Struct

# the first version with require_stable (KIP-447)
_STABLE = 7
# the first version that asks about several groups at once (KIP-709)
_BATCHED = 8


class OffsetFetchResponsePartition(Struct):
    """`committed_offset` -1: none (in version 0, UNKNOWN_TOPIC_OR_PARTITION comes with it)."""

    parts = (
        Field("partition_index", Int32),
        Field("committed_offset", Int64),
        Field("committed_leader_epoch", Int32, since=5, default=-1, ignorable=True),
        Field("metadata", Nullable(String), default=u""),
        Field("error_code", Int16),
    )


class OffsetFetchResponseTopic(Struct):
    parts = (
        Field("name", String),
        Field("partitions", Array(OffsetFetchResponsePartition)),
    )


class OffsetFetchResponseGroup(Struct):
    parts = (
        Field("group_id", String),
        Field("topics", Array(OffsetFetchResponseTopic)),
        Field("error_code", Int16),
    )


class OffsetFetchResponse(Response):
    """To be read by `group`, which is the same for all versions.

    Versions 0 and 1 tell what is wrong with the group as the error of each partition.
    """

    api, key, versions, flexible_from = "offset_fetch", 9, (0, 9), 6
    parts = (
        Field("throttle_time_ms", Int32, since=3, ignorable=True),
        Field("topics", Array(OffsetFetchResponseTopic), until=7),
        Field("error_code", Int16, since=2, until=7, ignorable=True),
        Field("groups", Array(OffsetFetchResponseGroup), since=8),
    )

    def group(self, group_id):
        """The OffsetFetchResponseGroup of a group that was asked about; ProtocolError if it was left out."""
        if self.decoded_version is not None and self.decoded_version < _BATCHED:
            return OffsetFetchResponseGroup(group_id=group_id, topics=self.topics, error_code=self.error_code)
        for group in self.groups:
            if group.group_id == group_id:
                return group
        raise ProtocolError("there is no answer about %s" % group_id, self.api, self.decoded_version)


class OffsetFetchRequestTopic(Struct):
    parts = (
        Field("name", String),
        Field("partition_indexes", Array(Int32)),
    )


class OffsetFetchRequestGroup(Struct):
    """`topics` None asks for all that the group has committed, from version 2 on."""

    parts = (
        Field("group_id", String),
        Field("member_id", Nullable(String), since=9, ignorable=True),
        Field("member_epoch", Int32, since=9, default=-1, ignorable=True),
        Field("topics", Nullable(Array(OffsetFetchRequestTopic)), default=()),
    )


class OffsetFetchRequest(Request):
    """`groups`: what is asked for, of one group only before version 8.

    With `require_stable` the broker answers UNSTABLE_OFFSET_COMMIT for a partition whose offset a transaction
    is about to commit; versions before 7 can't, and answer with the offset committed so far.
    `group_id` and `topics` are where versions before 8 have them: encoding puts them there.
    """

    api, key, versions, flexible_from = "offset_fetch", 9, (0, 9), 6
    kafka = "0.8.1"
    response = OffsetFetchResponse
    throttle_from = 4
    parts = (
        Field("group_id", String, until=7),
        Field("topics", Array(OffsetFetchRequestTopic), until=7, nullable_since=2),
        Field("groups", Array(OffsetFetchRequestGroup), since=8),
        Field("require_stable", Boolean, since=7),
    )

    def for_version(self, version):
        if version >= _BATCHED or not self.groups:
            return self
        if len(self.groups) > 1:
            raise ProtocolError("more than one group can't be asked about by version %d" % version)
        (group,) = self.groups
        return OffsetFetchRequest(
            group_id=group.group_id, topics=group.topics,
            require_stable=self.require_stable and version >= _STABLE,
        )
