import os
import subprocess
import sys

import pytest
from hypothesis import given, strategies

from kiel.clients import partitioner

# What org.apache.kafka.common.utils.Utils.murmur2 gives, as signed 32-bit numbers (from Kafka's UtilsTest).
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}

# (key, number of partitions, partition)
PLACES = [(u"100:48069", 12, 9), (u"wu", 10, 0), (u"k0", 6, 5)]


@pytest.mark.parametrize("key, hashed", sorted(JAVA.items()))
def test_murmur2_is_that_of_java(key, hashed):
    assert partitioner.murmur2(key) == hashed & 0xFFFFFFFF


@pytest.mark.parametrize(
    "kind", [lambda text: text, lambda text: text.encode(), lambda text: bytearray(text.encode())]
)
@pytest.mark.parametrize("key, count, place", PLACES)
def test_a_key_goes_where_java_sends_it_whatever_type_it_has(key, count, place, kind):
    assert partitioner.keyed(kind(key), list(range(count))) == place


@pytest.mark.parametrize("seed", ["0", "1", "4711"])
def test_the_place_of_a_key_does_not_depend_on_the_hash_seed(seed):
    code = "from kiel.clients.partitioner import keyed; print([keyed(k, list(range(n))) for k, n in %r])" % (
        [(key, count) for key, count, _ in PLACES],
    )
    environment = dict(os.environ, PYTHONHASHSEED=seed)
    said = subprocess.check_output([sys.executable, "-c", code], env=environment)
    assert said.decode().strip() == repr([place for _, _, place in PLACES])


def test_text_beyond_ascii_is_hashed_as_its_utf_8():
    assert partitioner.murmur2(u"m\u00fcnchen") == partitioner.murmur2(u"m\u00fcnchen".encode("utf-8"))


def test_an_empty_key_is_a_key():
    # murmur2(new byte[0]) in Java is 275646681.
    assert partitioner.murmur2(b"") == 275646681
    assert partitioner.keyed(b"", list(range(7))) == 275646681 % 7


@given(strategies.binary(max_size=64), strategies.integers(min_value=1, max_value=64))
def test_any_key_has_a_place_that_is_one_of_the_partitions(key, count):
    """Invariant: a 32-bit hash, and always the same partition out of those that there are."""
    assert 0 <= partitioner.murmur2(key) < 1 << 32
    partitions = list(range(10, 10 + count))
    assert partitioner.keyed(key, partitions) in partitions
    assert partitioner.keyed(key, partitions) == partitioner.keyed(bytearray(key), partitions)


@pytest.mark.parametrize("value", [1, 1.5, ["a"], object()])
def test_a_key_of_another_type_is_refused(value):
    with pytest.raises(TypeError) as caught:
        partitioner.to_bytes(value)
    assert type(value).__name__ in str(caught.value)


def test_what_becomes_bytes():
    assert partitioner.to_bytes(None) is None
    for given_key in (u"key", b"key", bytearray(b"key"), memoryview(b"key")):
        assert partitioner.to_bytes(given_key) == b"key"
        assert type(partitioner.to_bytes(given_key)) is bytes


def test_the_sticky_partition_changes_and_every_other_one_is_as_likely():
    chosen = [partitioner.sticky(1, [0, 1, 2, 3], chance / 300.0) for chance in range(300)]
    assert sorted(set(chosen)) == [0, 2, 3]
    assert [chosen.count(each) for each in (0, 2, 3)] == [100, 100, 100]


def test_the_sticky_partition_stays_where_there_is_no_other():
    assert partitioner.sticky(1, [1], 0.5) == 1
    assert partitioner.sticky(None, [3, 4], 0.99999) == 4
