import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiel.exc import ProtocolError
from kiel.protocol.conversation import Conversation
from kiel.protocol.schema import Request
from tests.support.messages import any_message, messages, messages_at_versions

try:
    import tracemalloc
except ImportError:  # Python 2
    tracemalloc = None

MESSAGES_AT_VERSIONS = messages_at_versions()
REQUESTS = [cls for cls in messages() if issubclass(cls, Request)]
REQUESTS_AT_VERSIONS = [(cls, version) for cls, version in MESSAGES_AT_VERSIONS if cls in REQUESTS]


def value_or_error(cls, data, version):
    """Decode; a ProtocolError has to say where."""
    try:
        return cls.decode(data, version)
    except ProtocolError as error:
        assert (error.api, error.version) == (cls.api, version)
        assert 0 <= error.position <= len(data)
        return None


@given(chosen=st.sampled_from(MESSAGES_AT_VERSIONS), data=st.binary(max_size=300))
@settings(max_examples=500, deadline=None)
def test_any_bytes(chosen, data):
    """Invariant: any bytes, read as any message at any version, end in a value or a ProtocolError that tells
    the API, the version and a position inside the data; and a value can be encoded again."""
    cls, version = chosen
    value = value_or_error(cls, data, version)
    if value is not None:
        value.encode(version)


def mutations(data):
    """A strategy for `data` with some of its bytes changed, cut out, doubled or put in."""
    place = st.integers(0, len(data))
    piece = st.sampled_from([b"", b"\x00", b"\xff", b"\x7f", b"\x80", b"\xff" * 5, b"\x7f\xff\xff\xff"])

    def change(steps):
        changed = data
        for start, length, new in steps:
            changed = changed[:start] + new + changed[start + length:]
        return changed

    step = st.tuples(place, st.integers(0, 9), piece | st.binary(max_size=9))
    return st.lists(step, min_size=1, max_size=4).map(change)


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_any_mutation_of_a_valid_message(data):
    """Invariant: as above, for bytes that are nearly a message, which get deeper into the readers."""
    message, version = data.draw(any_message())
    value_or_error(type(message), data.draw(mutations(message.encode(version))), version)


@pytest.mark.skipif(tracemalloc is None, reason="Python 2 can't trace allocations")
@pytest.mark.parametrize(
    "fill", [b"\x00", b"\x01", b"\x02", b"\x7f", b"\x80", b"\xff", b"\x00\x00\x10\x00", b"\x80\x80\x01"]
)
def test_memory_is_bounded_by_the_data(fill):
    """Invariant: decoding n bytes takes memory in proportion to n, whatever lengths are in them."""
    data = (fill * 4096)[:4096]
    for cls, version in MESSAGES_AT_VERSIONS:
        value_or_error(cls, data, version)  # compiles the readers, which stay
        tracemalloc.start()
        try:
            value_or_error(cls, data, version)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 200 * len(data), (cls, version)


@given(
    chosen=st.lists(st.sampled_from(REQUESTS_AT_VERSIONS), max_size=3),
    pieces=st.lists(st.binary(max_size=60), max_size=6),
)
@settings(max_examples=300, deadline=None)
def test_any_stream(chosen, pieces):
    """Invariant: whatever a broker sends and however it is cut, a conversation gives responses or a
    ProtocolError; until then it wants at least one byte more."""
    conversation = Conversation(u"kiel", max_frame_bytes=10000)
    for cls, version in chosen:
        conversation.send(cls(), version)
    before = conversation.pending
    answers = 0
    try:
        for piece in pieces:
            answers += len(conversation.receive(piece))
            assert conversation.wanted > 0
    except ProtocolError:
        pass
    assert conversation.pending + answers <= before


@given(data=st.data(), message=any_message())
@settings(max_examples=300, deadline=None)
def test_any_mutation_of_an_answer(data, message):
    """Invariant: as above, for frames that are nearly right."""
    answer, version = message
    request = next((cls for cls in REQUESTS if cls.response is type(answer)), None)
    if request is None:
        return
    conversation = Conversation(u"kiel", max_frame_bytes=100000)
    conversation.send(request(), version)
    tags = b"\0" if answer.flexible_header and answer.is_flexible(version) else b""
    body = b"\0\0\0\0" + tags + answer.encode(version)
    frame = data.draw(mutations(body))
    length = struct.pack(">i", data.draw(st.sampled_from([len(body), len(frame)])))
    try:
        answers = conversation.receive(length + frame)
    except ProtocolError:
        return
    assert len(answers) <= 1
