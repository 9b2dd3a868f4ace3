import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiel.exc import ProtocolError
from kiel.protocol import schema
from kiel.protocol.api_versions import ApiVersionsRequest
from kiel.protocol.coordinator import (
    TRANSACTION,
    Coordinator,
    GroupCoordinatorRequest,
    GroupCoordinatorResponse,
)
from kiel.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from kiel.protocol.init_producer_id import InitProducerIdRequest
from kiel.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kiel.protocol.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from kiel.protocol.list_offsets import EARLIEST, ListOffsetsPartition, ListOffsetsTopic, OffsetRequest
from kiel.protocol.metadata import MetadataRequest, MetadataRequestTopic
from kiel.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kiel.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kiel.protocol.primitives import Span
from kiel.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.messages import by_name, instances, messages, messages_at_versions, versions

MESSAGES = messages()
REQUESTS = [cls for cls in MESSAGES if issubclass(cls, schema.Request)]


def test_messages_are_found():
    assert len(REQUESTS) >= 15 and len(MESSAGES) == 2 * len(REQUESTS)


@pytest.mark.parametrize("cls", MESSAGES, ids=by_name)
def test_no_field_hides_what_a_message_is(cls):
    assert [field.name for field in cls.parts if hasattr(cls, field.name)] == []


@pytest.mark.parametrize("cls, version", messages_at_versions(), ids=by_name)
def test_the_defaults_come_back_at_every_version(cls, version):
    assert cls.decode(cls().encode(version), version) == cls()


@pytest.mark.parametrize("cls", MESSAGES, ids=by_name)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_what_is_encoded_is_decoded_again(cls, data):
    """Invariant: at each of its versions, every message with any values for that version's fields comes back
    equal, from any place in the data, and with nothing left over."""
    version = data.draw(st.sampled_from(list(versions(cls))))
    message = data.draw(instances(cls, version))
    before = data.draw(st.binary(max_size=3))
    encoded = message.encode(version)
    decoded = cls.decode(before + encoded, version, len(before))
    assert decoded == message
    assert decoded.encode(version) == encoded


@pytest.mark.parametrize("cls", REQUESTS, ids=by_name)
def test_requests_and_responses_agree(cls):
    response = cls.response
    assert (response.api, response.key, response.versions) == (cls.api, cls.key, cls.versions)
    assert all(response.is_flexible(version) == cls.is_flexible(version) for version in versions(cls))
    assert cls.kafka


@pytest.mark.parametrize("cls", REQUESTS, ids=by_name)
def test_a_response_that_may_throttle_tells_for_how_long(cls):
    if cls.throttle_from is None:
        return
    (field,) = [field for field in cls.response.parts if field.name == "throttle_time_ms"]
    assert field.exists_at(cls.throttle_from)


def commit(**values):
    partition = OffsetCommitRequestPartition(partition_index=1, committed_offset=5, **values)
    topics = [OffsetCommitRequestTopic(name=u"t", partitions=[partition])]
    return OffsetCommitRequest(group_id=u"g", generation_id_or_member_epoch=3, member_id=u"m", topics=topics)


def fetch_of(**values):
    topics = [OffsetFetchRequestTopic(name=u"t", partition_indexes=[1])]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=u"g", topics=topics)], **values)


KNOWN = [
    (ApiVersionsRequest(), 0, b""),
    (ApiVersionsRequest(client_software_name=u"k", client_software_version=u"1"), 3, b"\x02k\x021\x00"),
    (MetadataRequest(topics=None), 1, b"\xff\xff\xff\xff"),
    (MetadataRequest(topics=[MetadataRequestTopic(name=u"ab")]), 4, b"\x00\x00\x00\x01\x00\x02ab\x01"),
    (
        MetadataRequest(topics=[MetadataRequestTopic(name=u"ab")], allow_auto_topic_creation=False), 12,
        b"\x02" + b"\0" * 16 + b"\x03ab\x00" b"\x00\x00\x00",
    ),
    (
        ProduceRequest(
            acks=-1, timeout_ms=1000,
            topic_data=[TopicProduceData(
                name=u"t", partition_data=[PartitionProduceData(index=1, records=[b"a", b"bc"])],
            )],
        ),
        9,
        b"\x00\xff\xff\x00\x00\x03\xe8" b"\x02\x02t" b"\x02\x00\x00\x00\x01\x04abc\x00" b"\x00" b"\x00",
    ),
    (
        FetchRequest(
            max_wait_ms=500, min_bytes=1, max_bytes=1048576,
            topics=[FetchTopic(
                topic=u"t",
                partitions=[FetchPartition(partition=2, fetch_offset=5, partition_max_bytes=1024)],
            )],
        ),
        4,
        b"\xff\xff\xff\xff\x00\x00\x01\xf4\x00\x00\x00\x01\x00\x10\x00\x00\x00"
        b"\x00\x00\x00\x01\x00\x01t"
        b"\x00\x00\x00\x01\x00\x00\x00\x02" b"\0\0\0\0\0\0\0\x05" b"\x00\x00\x04\x00",
    ),
    (
        OffsetRequest(
            replica_id=-1,
            topics=[ListOffsetsTopic(
                name=u"t", partitions=[ListOffsetsPartition(partition_index=2, timestamp=EARLIEST)],
            )],
        ),
        1,
        b"\xff\xff\xff\xff" b"\x00\x00\x00\x01\x00\x01t"
        b"\x00\x00\x00\x01\x00\x00\x00\x02" + b"\xff" * 7 + b"\xfe",
    ),
    (
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60000), 4,
        b"\x00" b"\x00\x00\xea\x60" + b"\xff" * 8 + b"\xff\xff" b"\x00",
    ),
    (GroupCoordinatorRequest(coordinator_keys=[u"g"]), 0, b"\x00\x01g"),
    (GroupCoordinatorRequest(coordinator_keys=[u"x"], key_type=TRANSACTION), 3, b"\x02x\x01\x00"),
    (GroupCoordinatorRequest(coordinator_keys=[u"g", u"h"]), 4, b"\x00" b"\x03\x02g\x02h" b"\x00"),
    (
        JoinGroupRequest(
            group_id=u"g", session_timeout_ms=10, rebalance_timeout_ms=20, protocol_type=u"consumer",
            protocols=[JoinGroupRequestProtocol(name=u"range", metadata=b"ab")], reason=u"why",
        ),
        1,
        b"\x00\x01g" b"\x00\x00\x00\x0a" b"\x00\x00\x00\x14" b"\x00\x00" b"\x00\x08consumer"
        b"\x00\x00\x00\x01\x00\x05range\x00\x00\x00\x02ab",
    ),
    (
        LeaveGroupRequest(group_id=u"g", members=[MemberIdentity(member_id=u"m", reason=u"why")]), 2,
        b"\x00\x01g" b"\x00\x01m",
    ),
    (
        LeaveGroupRequest(group_id=u"g", members=[MemberIdentity(member_id=u"m", group_instance_id=u"i")]), 3,
        b"\x00\x01g" b"\x00\x00\x00\x01\x00\x01m\x00\x01i",
    ),
    (
        commit(), 0,
        b"\x00\x01g" b"\0\0\0\x01\x00\x01t" b"\0\0\0\x01\0\0\0\x01" b"\0\0\0\0\0\0\0\x05" b"\x00\x00",
    ),
    (
        commit(commit_timestamp=9), 1,
        b"\x00\x01g" b"\0\0\0\x03" b"\x00\x01m" b"\0\0\0\x01\x00\x01t"
        b"\0\0\0\x01\0\0\0\x01" b"\0\0\0\0\0\0\0\x05" b"\0\0\0\0\0\0\0\x09" b"\x00\x00",
    ),
    (fetch_of(require_stable=True), 1, b"\x00\x01g" b"\0\0\0\x01\x00\x01t" b"\0\0\0\x01\0\0\0\x01"),
    (fetch_of(require_stable=True), 7, b"\x02g" b"\x02\x02t" b"\x02\0\0\0\x01\x00" b"\x01" b"\x00"),
    (fetch_of(), 8, b"\x02" b"\x02g" b"\x02\x02t" b"\x02\0\0\0\x01\x00" b"\x00" b"\x00" b"\x00"),
]


@pytest.mark.parametrize("request_, version, encoded", KNOWN, ids=lambda part: getattr(type(part), "api", ""))
def test_requests_have_their_bytes(request_, version, encoded):
    assert request_.encode(version) == encoded


def test_records_of_a_produce_request_are_read_where_they_are():
    topic = TopicProduceData(name=u"t", partition_data=[PartitionProduceData(index=1, records=b"abc")])
    encoded = ProduceRequest(acks=1, topic_data=[topic]).encode(9)
    records = ProduceRequest.decode(encoded, 9).topic_data[0].partition_data[0].records
    assert isinstance(records, Span) and records.data is encoded and records == b"abc"


@pytest.mark.parametrize("request_, version", [
    (GroupCoordinatorRequest(coordinator_keys=[u"a", u"b"]), 3),
    (GroupCoordinatorRequest(coordinator_keys=[u"a"], key_type=TRANSACTION), 0),
    (LeaveGroupRequest(members=[MemberIdentity(member_id=u"a"), MemberIdentity(member_id=u"b")]), 2),
    (LeaveGroupRequest(members=[MemberIdentity(member_id=u"a", group_instance_id=u"b")]), 2),
    (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(), OffsetFetchRequestGroup()]), 7),
    (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(topics=None)]), 1),
    (JoinGroupRequest(group_instance_id=u"a"), 4),
    (commit(commit_timestamp=9), 2),
], ids=lambda part: getattr(type(part), "api", ""))
def test_what_an_old_version_can_not_carry_is_refused(request_, version):
    with pytest.raises(ProtocolError) as refused:
        request_.encode(version)
    assert (refused.value.api, refused.value.version) == (request_.api, version)


def read_back(response, version):
    return type(response).decode(response.encode(version), version)


@pytest.mark.parametrize("version", versions(GroupCoordinatorResponse))
def test_a_coordinator_is_read_alike_at_every_version(version):
    values = {"node_id": 2, "host": u"h", "port": 9, "error_code": 15}
    if version >= 4:
        other = Coordinator(key=u"other")
        response = GroupCoordinatorResponse(coordinators=[other, Coordinator(key=u"g", **values)])
    else:
        response = GroupCoordinatorResponse(**values)
    assert read_back(response, version).coordinator(u"g") == Coordinator(key=u"g", **values)


@pytest.mark.parametrize("version", versions(OffsetFetchResponse))
def test_a_groups_offsets_are_read_alike_at_every_version(version):
    partition = OffsetFetchResponsePartition(partition_index=1, committed_offset=5)
    group = OffsetFetchResponseGroup(
        group_id=u"g", error_code=16 if version >= 2 else 0,
        topics=[OffsetFetchResponseTopic(name=u"t", partitions=[partition])],
    )
    if version >= 8:
        response = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id=u"other"), group])
    else:
        response = OffsetFetchResponse(topics=group.topics, error_code=group.error_code)
    assert read_back(response, version).group(u"g") == group


def test_an_answer_that_leaves_out_what_was_asked_is_no_answer():
    with pytest.raises(ProtocolError, match="no answer about g"):
        read_back(GroupCoordinatorResponse(), 4).coordinator(u"g")
    with pytest.raises(ProtocolError, match="no answer about g"):
        read_back(OffsetFetchResponse(), 8).group(u"g")


def test_a_members_error_or_that_of_all():
    members = [MemberResponse(member_id=u"m", error_code=25), MemberResponse(member_id=u"n")]
    response = read_back(LeaveGroupResponse(members=members), 3)
    assert (response.member_error(u"m"), response.member_error(u"n")) == (25, 0)
    assert read_back(LeaveGroupResponse(error_code=16), 0).member_error(u"m") == 16
