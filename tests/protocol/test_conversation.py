import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiel.exc import ProtocolError
from kiel.protocol.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kiel.protocol.conversation import Conversation
from kiel.protocol.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kiel.protocol.metadata import MetadataRequest, MetadataResponse
from kiel.protocol.produce import ProduceRequest


def answer(correlation_id, body, tags=b""):
    return struct.pack(">ii", 4 + len(tags) + len(body), correlation_id) + tags + body


def metadata_answer(correlation_id, version=1, controller_id=1):
    tags = b"\0" if version >= 9 else b""
    return answer(correlation_id, MetadataResponse(controller_id=controller_id).encode(version), tags)


def asking(*versions, **options):
    """A conversation in which Metadata was asked for in each of the versions."""
    conversation = Conversation(u"kiel", **options)
    for version in versions:
        conversation.send(MetadataRequest(), version)
    return conversation


def test_a_request_has_a_header_before_it():
    conversation = Conversation(u"kiel", first_correlation_id=7)
    assert conversation.send(MetadataRequest(topics=None), 1) == (
        7, b"\x00\x00\x00\x12" b"\x00\x03\x00\x01" b"\x00\x00\x00\x07" b"\x00\x04kiel" b"\xff\xff\xff\xff"
    )


def test_a_flexible_request_has_tags_in_its_header_and_the_client_id_as_ever():
    conversation = Conversation(u"kiel")
    assert conversation.send(MetadataRequest(topics=None), 9) == (
        0,
        b"\x00\x00\x00\x14" b"\x00\x03\x00\x09" b"\x00\x00\x00\x00" b"\x00\x04kiel" b"\x00"
        b"\x00\x01\x00\x00\x00"
    )


def test_a_client_may_have_no_id():
    assert Conversation(None).send(MetadataRequest(topics=None), 1)[1][12:14] == b"\xff\xff"


def test_a_client_id_that_is_no_text_is_refused():
    with pytest.raises(ProtocolError, match="client_id"):
        Conversation(5)


def test_each_response_comes_with_its_request():
    conversation = Conversation(u"kiel")
    one, other = MetadataRequest(topics=None), MetadataRequest()
    first, _ = conversation.send(one, 1)
    second, _ = conversation.send(other, 12)
    assert conversation.pending == 2
    ((got, response),) = conversation.receive(metadata_answer(first, 1, controller_id=5))
    assert got == first and response.request is one and response.controller_id == 5
    assert conversation.pending == 1
    ((got, response),) = conversation.receive(metadata_answer(second, 12, controller_id=6))
    assert got == second and response.request is other and response.controller_id == 6
    assert conversation.pending == 0


def test_correlation_ids_wrap():
    conversation = Conversation(u"kiel", first_correlation_id=2147483646)
    ids = [conversation.send(MetadataRequest(), 1)[0] for _ in range(5)]
    assert ids == [2147483646, 2147483647, 0, 1, 2]
    received = conversation.receive(b"".join(metadata_answer(each) for each in ids))
    assert [each for each, _ in received] == ids


def test_what_is_not_answered_is_not_waited_for():
    conversation = Conversation(u"kiel")
    for expected in range(3):
        assert conversation.send(ProduceRequest(acks=0), 7, answered=False)[0] == expected
    assert conversation.pending == 0
    asked, _ = conversation.send(MetadataRequest(), 1)
    assert asked == 3
    assert [got for got, _ in conversation.receive(metadata_answer(3))] == [3]


def test_a_request_that_cannot_be_encoded_changes_nothing():
    conversation = Conversation(u"kiel")
    with pytest.raises(ProtocolError, match="allow_auto_topic_creation"):
        conversation.send(MetadataRequest(allow_auto_topic_creation=False), 1)
    assert conversation.pending == 0
    assert conversation.send(MetadataRequest(), 1)[0] == 0


def test_wanted_leads_from_length_to_frame():
    conversation = asking(1, 1)
    data = metadata_answer(0) + metadata_answer(1)
    received = []
    while data:
        wanted = conversation.wanted
        assert 0 < wanted <= len(data)
        received += conversation.receive(data[:wanted])
        data = data[wanted:]
    assert [got for got, _ in received] == [0, 1]
    assert conversation.wanted == 4


def test_wanted_is_what_is_missing():
    conversation = asking(1)
    data = metadata_answer(0)
    assert conversation.receive(data[:1]) == [] and conversation.wanted == 3
    assert conversation.receive(data[1:6]) == [] and conversation.wanted == len(data) - 6
    assert conversation.receive(b"") == [] and conversation.wanted == len(data) - 6
    assert len(conversation.receive(data[6:])) == 1


def test_a_frame_given_whole_is_not_copied():
    conversation = Conversation(u"kiel")
    conversation.send(FetchRequest(), 11)
    part = PartitionData(partition_index=3, records=b"records")
    body = FetchResponse(responses=[FetchableTopicResponse(topic=u"t", partitions=[part])]).encode(11)
    data = answer(0, body)
    frame = data[4:]
    assert conversation.receive(data[:4]) == []
    ((_, response),) = conversation.receive(frame)
    span = response.responses[0].partitions[0].records
    assert span.data is frame and span == b"records"


@given(st.lists(st.sampled_from([0, 1, 8, 9, 12, 13]), min_size=1, max_size=5), st.data())
@settings(max_examples=100, deadline=None)
def test_any_division_of_the_bytes_gives_the_same(versions, data):
    """Invariant: however the stream is cut into pieces, the same responses come out, in order."""
    conversation = asking(*versions)
    stream = b"".join(metadata_answer(at, version) for at, version in enumerate(versions))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    received = []
    for start, end in zip([0] + cuts, cuts + [len(stream)]):
        received += conversation.receive(stream[start:end])
    assert [got for got, _ in received] == list(range(len(versions)))
    assert conversation.pending == 0 and conversation.wanted == 4


def broken(conversation, data):
    """The ProtocolError with which `data` ends the conversation; it is raised again by all that follows."""
    with pytest.raises(ProtocolError) as caught:
        conversation.receive(data)
    for again in (
        lambda: conversation.receive(metadata_answer(0)),
        lambda: conversation.send(MetadataRequest(), 1),
        lambda: conversation.wanted,
    ):
        with pytest.raises(ProtocolError) as later:
            again()
        assert later.value is caught.value
    return caught.value


@pytest.mark.parametrize(
    "prefix, hint",
    [
        (b"\xff\xff\xff\xff", "-1 bytes"),
        (b"\x80\x00\x00\x00", "-2147483648 bytes"),
        (b"\x00\x00\x00\x00", "0 bytes"),
        (b"\x00\x00\x00\x03", "at least 4"),
        (b"\x00\x00\x10\x01", "at most 4096"),
        (b"\x15\x03\x03\x00", "TLS"),
        (b"\x15\x03\x01\x00", "TLS"),
        (b"\x16\x03\x01\x02", "TLS"),
        (b"HTTP", "HTTP"),
    ],
)
def test_a_length_that_cannot_be_says_what_may_be_there(prefix, hint):
    assert hint in str(broken(asking(1, max_frame_bytes=4096), prefix))


def test_the_largest_frame_is_taken():
    data = metadata_answer(0)
    assert len(asking(1, max_frame_bytes=len(data) - 4).receive(data)) == 1
    broken(asking(1, max_frame_bytes=len(data) - 5), data)


def test_a_correlation_id_that_is_not_the_next_is_an_error():
    assert "correlation id 1 came where 0 is the next" in str(broken(asking(1, 1), metadata_answer(1)))
    assert "correlation id 99 came where 0 is the next" in str(broken(asking(1, 1), metadata_answer(99)))
    assert "correlation id 0 came where no request is unanswered" in str(broken(asking(), metadata_answer(0)))


def test_a_body_that_cannot_be_says_which_api_and_where():
    error = broken(asking(1), answer(0, b"\x00\x00\x00\x01"))
    assert (error.api, error.version, error.position) == ("metadata", 1, 4)
    error = broken(asking(12), answer(0, b"", tags=b"\x05"))
    assert (error.api, error.version, error.position) == ("metadata", 12, 5)
    assert "header" in str(error)


def test_what_was_complete_before_an_error_is_returned():
    conversation = asking(1, 1)
    assert [got for got, _ in conversation.receive(metadata_answer(0) + metadata_answer(7))] == [0]
    for later in (lambda: conversation.wanted, lambda: conversation.receive(b"")):
        with pytest.raises(ProtocolError, match="correlation id 7"):
            later()


def test_tags_in_a_responses_header_are_skipped():
    conversation = asking(12)
    body = MetadataResponse().encode(12)
    assert len(conversation.receive(answer(0, body, tags=b"\x01\x09\x02ab"))) == 1


RANGES = [ApiVersion(api_key=18, min_version=0, max_version=2)]


def test_api_versions_have_a_header_without_tags():
    conversation = Conversation(u"kiel")
    conversation.send(ApiVersionsRequest(), 3)
    ((_, response),) = conversation.receive(answer(0, ApiVersionsResponse(api_keys=RANGES).encode(3)))
    assert response.api_keys == RANGES and response.error_code == 0


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_version_of_api_versions_refused_is_answered_in_version_0(version):
    conversation = Conversation(u"kiel")
    conversation.send(ApiVersionsRequest(), version)
    refusal = ApiVersionsResponse(error_code=35, api_keys=RANGES)
    ((_, response),) = conversation.receive(answer(0, refusal.encode(0)))
    assert response == refusal


@pytest.mark.parametrize("body", [b"\x00\x23", b"\x00\x23\x00\x00", b"\x00\x23" + b"\x00" * 9])
def test_a_refusal_is_one_whatever_follows_its_error(body):
    conversation = Conversation(u"kiel")
    conversation.send(ApiVersionsRequest(), 4)
    ((_, response),) = conversation.receive(answer(0, body))
    assert (response.error_code, response.api_keys) == (35, [])


def test_another_error_in_version_0_is_no_refusal():
    conversation = Conversation(u"kiel")
    conversation.send(ApiVersionsRequest(), 3)
    error = broken(conversation, answer(0, ApiVersionsResponse(error_code=42, api_keys=RANGES).encode(0)))
    assert (error.api, error.version) == ("api_versions", 3)
