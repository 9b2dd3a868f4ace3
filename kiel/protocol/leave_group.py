"""LeaveGroup: members leave their group at once, so that it needs no time-out to notice."""
from kiel.exc import ProtocolError
from kiel.protocol.primitives import Array, Int16, Int32, Nullable, String
from kiel.protocol.schema import Field, Request, Response, Struct

# the first version in which several members leave at once (KIP-345)
_BATCHED = 3


class MemberResponse(Struct):
    parts = (
        Field("member_id", String),
        Field("group_instance_id", Nullable(String), default=u""),
        Field("error_code", Int16),
    )


class LeaveGroupResponse(Response):
    api, key, versions, flexible_from = "leave_group", 13, (0, 5), 4
    parts = (
        Field("throttle_time_ms", Int32, since=1, ignorable=True),
        Field("error_code", Int16),
        Field("members", Array(MemberResponse), since=3),
    )

    def member_error(self, member_id):
        """The error code for a member, or for all of the request; 0 if it has left."""
        if self.error_code:
            return self.error_code
        return next((each.error_code for each in self.members if each.member_id == member_id), 0)


class MemberIdentity(Struct):
    parts = (
        Field("member_id", String),
        Field("group_instance_id", Nullable(String)),
        Field("reason", Nullable(String), since=5, ignorable=True),
    )


class LeaveGroupRequest(Request):
    """`members`: those that leave; before version 3 one only, which has no `group_instance_id`.

    `member_id` is where versions before 3 have it: encoding puts it there.
    """

    api, key, versions, flexible_from = "leave_group", 13, (0, 5), 4
    kafka = "0.9"
    response = LeaveGroupResponse
    throttle_from = 2
    parts = (
        Field("group_id", String),
        Field("member_id", String, until=2),
        Field("members", Array(MemberIdentity), since=3),
    )

    def for_version(self, version):
        if version >= _BATCHED or not self.members:
            return self
        member = self.members[0]
        if len(self.members) > 1 or member.group_instance_id is not None:
            raise ProtocolError(
                "more than one member, or a group_instance_id, can't be carried by version %d" % version
            )
        return LeaveGroupRequest(group_id=self.group_id, member_id=member.member_id)
