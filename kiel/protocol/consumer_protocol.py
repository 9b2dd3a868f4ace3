"""The consumer protocol: what the members of a group tell their leader, and what the leader gives them.

These aren't requests: their bytes travel inside JoinGroup and SyncGroup, which don't look into them. The
version stands before them, in two bytes. Members of any age share a group, so reading is lenient (as Java's
is): a newer version is read as the newest that is known here, and what it has after that is passed over.
"""
import struct

import six

from kiel.exc import ProtocolError
from kiel.protocol.codec import compile_plan
from kiel.protocol.primitives import Array, Bytes, Int32, Nullable, String, cut_off
from kiel.protocol.schema import Field, Message, Struct

_version = struct.Struct(">h")
_plans = {}


def read_leniently(cls, data, version, start=0):
    """A message (its class isn't flexible) from `start` on; bytes left over belong to a newer version.

    Raises ProtocolError, with the position in `data`, where it ends too early or has nonsense in it.
    """
    plan = _plans.get((cls, version))
    if plan is None:
        plan = _plans[cls, version] = compile_plan(cls, version, False)
    try:
        return plan.read(data, start, len(data))[0]
    except ProtocolError as error:
        six.raise_from(ProtocolError(error.reason, cls.api, version, error.position), None)


class PrefixedMessage(Message):
    """A message with its version before it."""

    def to_bytes(self, version=None):
        """Its bytes, version first: the newest version unless one is given."""
        version = self.versions[1] if version is None else version
        return _version.pack(version) + self.encode(version)

    @classmethod
    def from_bytes(cls, data):
        """The message in `data`; ProtocolError if it is none."""
        if len(data) < _version.size:
            raise ProtocolError(cut_off("a version", _version.size, 0, len(data)).reason, cls.api, None, 0)
        version = _version.unpack_from(data)[0]
        if version < cls.versions[0]:
            raise ProtocolError("there is no version %d" % version, cls.api, None, 0)
        return read_leniently(cls, data, min(version, cls.versions[1]), _version.size)


class OwnedTopicPartitions(Struct):
    parts = (
        Field("topic", String, since=1),
        Field("partitions", Array(Int32), since=1),
    )


class ConsumerProtocolSubscription(PrefixedMessage):
    """What a member tells: its topics, and what it has (KIP-429) since which generation (KIP-792)."""

    api, versions = "consumer subscription", (0, 3)
    parts = (
        Field("topics", Array(String)),
        Field("user_data", Nullable(Bytes)),
        Field("owned_partitions", Array(OwnedTopicPartitions), since=1, ignorable=True),
        Field("generation_id", Int32, since=2, default=-1, ignorable=True),
        Field("rack_id", Nullable(String), since=3, ignorable=True),
    )


class AssignedTopicPartitions(Struct):
    parts = (
        Field("topic", String),
        Field("partitions", Array(Int32)),
    )


class ConsumerProtocolAssignment(PrefixedMessage):
    """What a member is given."""

    api, versions = "consumer assignment", (0, 3)
    parts = (
        Field("assigned_partitions", Array(AssignedTopicPartitions)),
        Field("user_data", Nullable(Bytes)),
    )
