import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiel.protocol import schema
from kiel.protocol.api_versions import ApiVersionsRequest
from kiel.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from kiel.protocol.init_producer_id import InitProducerIdRequest
from kiel.protocol.list_offsets import EARLIEST, ListOffsetsPartition, ListOffsetsTopic, OffsetRequest
from kiel.protocol.metadata import MetadataRequest, MetadataRequestTopic
from kiel.protocol.primitives import Span
from kiel.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.messages import by_name, instances, messages, messages_at_versions, versions

MESSAGES = messages()
REQUESTS = [cls for cls in MESSAGES if issubclass(cls, schema.Request)]


def test_messages_are_found():
    assert len(REQUESTS) >= 6 and len(MESSAGES) == 2 * len(REQUESTS)


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
]


@pytest.mark.parametrize("request_, version, encoded", KNOWN, ids=lambda part: getattr(type(part), "api", ""))
def test_requests_have_their_bytes(request_, version, encoded):
    assert request_.encode(version) == encoded


def test_records_of_a_produce_request_are_read_where_they_are():
    topic = TopicProduceData(name=u"t", partition_data=[PartitionProduceData(index=1, records=b"abc")])
    encoded = ProduceRequest(acks=1, topic_data=[topic]).encode(9)
    records = ProduceRequest.decode(encoded, 9).topic_data[0].partition_data[0].records
    assert isinstance(records, Span) and records.data is encoded and records == b"abc"
