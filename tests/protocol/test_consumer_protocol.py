"""The consumer protocol's two messages, at every version, read as leniently as Java reads them."""
import json
import re
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kiel.exc import ProtocolError
from kiel.protocol.consumer_protocol import (
    AssignedTopicPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedTopicPartitions,
)
from tests.protocol.test_conformance import our_fields, their_fields, within
from tests.support import maven, needs
from tests.support.messages import instances

CLASSES = [ConsumerProtocolSubscription, ConsumerProtocolAssignment]
AT_VERSIONS = [(cls, version) for cls in CLASSES for version in range(4)]
SUBSCRIPTION = ConsumerProtocolSubscription(
    topics=["a"],
    user_data=b"u",
    owned_partitions=[OwnedTopicPartitions(topic="a", partitions=[3])],
    generation_id=7,
    rack_id="r",
)
BYTES = [
    b"\0\0" b"\0\0\0\1\0\1a" b"\0\0\0\1u",
    b"\0\1" b"\0\0\0\1\0\1a" b"\0\0\0\1u" b"\0\0\0\1\0\1a\0\0\0\1\0\0\0\3",
    b"\0\2" b"\0\0\0\1\0\1a" b"\0\0\0\1u" b"\0\0\0\1\0\1a\0\0\0\1\0\0\0\3" b"\0\0\0\7",
    b"\0\3" b"\0\0\0\1\0\1a" b"\0\0\0\1u" b"\0\0\0\1\0\1a\0\0\0\1\0\0\0\3" b"\0\0\0\7" b"\0\1r",
]


@pytest.mark.kafka
@pytest.mark.parametrize("cls, version", AT_VERSIONS)
def test_every_version_is_as_apache_defines_it(cls, version):
    needs.kafka()
    with zipfile.ZipFile(maven.clients_jar()) as jar:
        text = jar.read("common/message/%s.json" % cls.__name__).decode("utf-8")
    theirs = json.loads(re.sub(r"(?m)^\s*//.*$", "", text))
    assert theirs["validVersions"] == "%d-%d" % cls.versions
    assert cls.is_flexible(version) == within(theirs["flexibleVersions"], version)
    assert our_fields(cls, version) == their_fields(theirs["fields"], {}, version)


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_in_bytes(version):
    assert SUBSCRIPTION.to_bytes(version) == BYTES[version]
    told = ConsumerProtocolSubscription.from_bytes(BYTES[version])
    assert (told.topics, told.user_data) == (["a"], b"u")
    assert told.owned_partitions == (SUBSCRIPTION.owned_partitions if version >= 1 else [])
    assert (told.generation_id, told.rack_id) == (7 if version >= 2 else -1, "r" if version >= 3 else None)


def test_an_assignment_in_bytes():
    made = ConsumerProtocolAssignment(assigned_partitions=[AssignedTopicPartitions(topic="a", partitions=[3, 1])])
    data = b"\0\3" b"\0\0\0\1\0\1a\0\0\0\2\0\0\0\3\0\0\0\1" b"\xff\xff\xff\xff"
    assert made.to_bytes() == data
    assert ConsumerProtocolAssignment.from_bytes(data) == made


@pytest.mark.parametrize("cls", CLASSES)
def test_a_newer_version_is_read_as_the_newest_known(cls):
    data = cls().to_bytes()
    assert cls.from_bytes(b"\0\x63" + data[2:] + b"and what came later") == cls()


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff\0\0\0\0\xff\xff\xff\xff", b"\0\1", b"\0\0\0\0\0\1\0"])
def test_what_is_none_is_refused(cls, data):
    with pytest.raises(ProtocolError) as caught:
        cls.from_bytes(data)
    assert caught.value.api == cls.api and caught.value.position is not None


@pytest.mark.parametrize("cls, version", AT_VERSIONS)
@given(data=st.data())
def test_what_was_written_is_read(cls, version, data):
    made = data.draw(instances(cls, version))
    assert cls.from_bytes(made.to_bytes(version)) == made


@pytest.mark.parametrize("cls", CLASSES)
@given(version=st.integers(-1, 5), data=st.binary(max_size=60))
def test_any_bytes_end_in_a_message_or_a_protocol_error(cls, version, data):
    try:
        cls.from_bytes(b"\xff\xff" if version < 0 else b"\0" + bytes(bytearray([version])) + data)
    except ProtocolError:
        pass
