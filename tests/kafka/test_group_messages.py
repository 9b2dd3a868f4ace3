"""The messages about groups with a real broker, at every version that it and kiel speak."""
import time

import pytest

from kiel.protocol import errors
from kiel.protocol.api_versions import ApiVersionsRequest
from kiel.protocol.coordinator import GroupCoordinatorRequest
from kiel.protocol.describe_groups import DescribeGroupsRequest
from kiel.protocol.heartbeat import HeartbeatRequest
from kiel.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kiel.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from kiel.protocol.list_groups import ListGroupsRequest
from kiel.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kiel.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic
from kiel.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.testing.wire import Wire

REQUESTS = (
    GroupCoordinatorRequest, JoinGroupRequest, SyncGroupRequest, HeartbeatRequest, LeaveGroupRequest,
    OffsetCommitRequest, OffsetFetchRequest, DescribeGroupsRequest, ListGroupsRequest,
)
ROUNDS = 1 + max(cls.versions[1] for cls in REQUESTS)
TOPIC = u"of-groups"
GROUPS = [u"group-at-%d" % version for version in range(ROUNDS)]


class Broker(object):
    """Asks in the version that is nearest to `version`."""

    def __init__(self, wire, port):
        self.wire, self.port = wire, port
        spoken = wire.ask(ApiVersionsRequest(), 0).api_keys
        self.spoken = {each.api_key: (each.min_version, each.max_version) for each in spoken}

    def ask(self, request, version):
        low, high = self.spoken[request.key]
        version = max(low, min(version, high, request.versions[1]))
        return self.wire.ask(request, version)


@pytest.fixture(scope="module")
def broker(kafka):
    kafka.create_topic(TOPIC, partitions=2)
    with Wire(kafka.bootstrap[0]) as wire:
        broker = Broker(wire, kafka.port(1))
        wait_for_coordinators(broker)
        yield broker


def name_of(code):
    return errors.lookup(code).name


def wait_for_coordinators(broker):
    """The first request makes the broker create the topic that offsets are kept in, and load it."""
    deadline = time.time() + 30
    for group in GROUPS:
        while True:
            coordinator = broker.ask(GroupCoordinatorRequest(coordinator_keys=[group]), 4).coordinator(group)
            code = coordinator.error_code
            if not code:
                asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group)])
                code = broker.ask(asked, 8).group(group).error_code
            if not code:
                break
            assert errors.lookup(code).retriable and time.time() < deadline, name_of(code)
            time.sleep(0.05)


def join(broker, group, version):
    """The response of the second attempt, where the first is told its member id and no more (KIP-394)."""
    request = JoinGroupRequest(
        group_id=group, session_timeout_ms=10000, rebalance_timeout_ms=10000, protocol_type=u"consumer",
        protocols=[JoinGroupRequestProtocol(name=u"mine", metadata=b"meta")], reason=u"a test",
    )
    joined = broker.ask(request, version)
    if version >= 4:
        assert name_of(joined.error_code) == "MEMBER_ID_REQUIRED"
        request.member_id = joined.member_id
        joined = broker.ask(request, version)
    return joined


def check_membership(broker, group, version):
    """Join alone, be assigned what it hands in, be seen; returns (generation, member id)."""
    joined = join(broker, group, version)
    assert (name_of(joined.error_code), joined.protocol_name) == ("NONE", u"mine")
    assert joined.leader == joined.member_id and not joined.skip_assignment
    assert [(each.member_id, each.metadata) for each in joined.members] == [(joined.member_id, b"meta")]
    me = {"group_id": group, "generation_id": joined.generation_id, "member_id": joined.member_id}
    synced = broker.ask(SyncGroupRequest(
        protocol_type=u"consumer", protocol_name=u"mine",
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"yours")], **me
    ), version)
    assert (name_of(synced.error_code), synced.assignment) == ("NONE", b"yours")
    assert name_of(broker.ask(HeartbeatRequest(**me), version).error_code) == "NONE"
    (described,) = broker.ask(DescribeGroupsRequest(groups=[group]), version).groups
    assert (described.group_id, described.group_state, described.protocol_data) == (group, u"Stable", u"mine")
    assert [(each.member_id, each.member_metadata, each.member_assignment) for each in described.members] == [
        (joined.member_id, b"meta", b"yours")
    ]
    listed = broker.ask(ListGroupsRequest(), version)
    assert (group, u"consumer") in [(each.group_id, each.protocol_type) for each in listed.groups]
    return joined.generation_id, joined.member_id


def check_offsets(broker, group, version, generation, member_id):
    """What is committed is fetched, and nothing of a partition that nothing is committed of."""
    partition = OffsetCommitRequestPartition(
        partition_index=1, committed_offset=7, committed_leader_epoch=0, committed_metadata=u"note"
    )
    committed = broker.ask(OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=generation, member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    ), version)
    (topic,) = committed.topics
    assert [(each.partition_index, name_of(each.error_code)) for each in topic.partitions] == [(1, "NONE")]
    asked = OffsetFetchRequestGroup(
        group_id=group, topics=[OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0, 1])]
    )
    fetched = broker.ask(OffsetFetchRequest(groups=[asked], require_stable=True), version).group(group)
    (topic,) = fetched.topics
    found = sorted((each.partition_index, each.committed_offset, each.metadata) for each in topic.partitions)
    assert (name_of(fetched.error_code), topic.name) == ("NONE", TOPIC)
    assert found == [(0, -1, u""), (1, 7, u"note")]


@pytest.mark.parametrize("version", range(ROUNDS))
def test_a_group_from_its_first_member_to_its_last(broker, version):
    group = GROUPS[version]
    coordinator = broker.ask(GroupCoordinatorRequest(coordinator_keys=[group]), version).coordinator(group)
    assert (name_of(coordinator.error_code), coordinator.port) == ("NONE", broker.port)
    generation, member_id = check_membership(broker, group, version)
    check_offsets(broker, group, version, generation, member_id)
    for expected in ("NONE", "UNKNOWN_MEMBER_ID"):
        members = [MemberIdentity(member_id=member_id, reason=u"a test")]
        left = broker.ask(LeaveGroupRequest(group_id=group, members=members), version)
        assert name_of(left.member_error(member_id)) == expected
    assert name_of(broker.ask(HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member_id
    ), version).error_code) == "UNKNOWN_MEMBER_ID"


@pytest.mark.parametrize("version", range(GroupCoordinatorRequest.versions[1] + 1))
def test_a_group_that_there_is_not(broker, version):
    (group,) = broker.ask(DescribeGroupsRequest(groups=[u"nobody"]), version).groups
    assert group.group_state == u"Dead"
    assert name_of(group.error_code) == ("GROUP_ID_NOT_FOUND" if version >= 6 else "NONE")


def test_several_at_once(broker):
    found = broker.ask(GroupCoordinatorRequest(coordinator_keys=[u"a", u"b"]), 6)
    assert found.coordinator(u"a").port == found.coordinator(u"b").port == broker.port
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in (u"a", u"b")]
    fetched = broker.ask(OffsetFetchRequest(groups=groups), 9)
    assert fetched.group(u"a").topics == fetched.group(u"b").topics == []
