import os
import socket
import threading
import time

import pytest

from kiel.exc import ConfigurationError, UsageError
from kiel.protocol import errors
from kiel.protocol.fetch import FetchRequest
from kiel.protocol.metadata import MetadataRequest, MetadataRequestTopic
from kiel.protocol.produce import ProduceRequest
from tests.support.embedded import embedded_cluster
from tests.testing.wire import Hangup, Wire, batch_of, values_of

pytestmark = pytest.mark.embedded

NOT_LEADER = 6
DOWN = (socket.error, Hangup)


@pytest.fixture
def cluster():
    with embedded_cluster() as cluster:
        yield cluster


@pytest.fixture
def three():
    with embedded_cluster(brokers=3) as cluster:
        yield cluster


def test_addresses(three):
    assert len(set(three.brokers)) == 3
    assert three.bootstrap == ",".join(three.brokers)
    with Wire(three.brokers[0]) as wire:
        brokers = wire.metadata().brokers
    assert ["%s:%d" % (broker.host, broker.port) for broker in brokers] == three.brokers
    assert [broker.node_id for broker in brokers] == [1, 2, 3]


def test_what_is_produced_can_be_fetched(cluster):
    cluster.create_topic("events", partitions=2)
    with Wire(cluster.brokers[0]) as wire:
        assert wire.produce("events", batch_of(b"a", b"b"), 1).base_offset == 0
        assert wire.produce("events", batch_of(b"c", codec=1), 1).base_offset == 2
        assert values_of(wire.fetch("events", 0, 1)) == [b"a", b"b"]
        assert values_of(wire.fetch("events", 2, 1)) == [b"c"]
        assert values_of(wire.fetch("events", 3, 1)) == []
        assert values_of(wire.fetch("events", 0, 0)) == []
        assert (wire.offset("events", -2, 1), wire.offset("events", -1, 1)) == (0, 3)


def test_create_topic(three):
    three.create_topic("events", 4, replication=2)
    with Wire(three.brokers[0]) as wire:
        topic = wire.metadata("events").topics[0]
    assert [part.partition_index for part in topic.partitions] == [0, 1, 2, 3]
    assert set(len(part.replica_nodes) for part in topic.partitions) == {2}
    with pytest.raises(ConfigurationError, match="events.*exists"):
        three.create_topic("events")


def test_delete_topic(cluster):
    cluster.create_topic("events")
    cluster.delete_topic("events")
    with Wire(cluster.brokers[0]) as wire:
        assert wire.metadata("events").topics[0].error_code == 3
    with pytest.raises(ConfigurationError, match="events"):
        cluster.delete_topic("events")


def test_delete_records(cluster):
    cluster.create_topic("events")
    with Wire(cluster.brokers[0]) as wire:
        for value in (b"a", b"b", b"c"):
            wire.produce("events", batch_of(value))
        cluster.delete_records("events", 0, 2)
        assert wire.offset("events", -2) == 2
        assert wire.fetch("events", 0).error_code == 1
        assert values_of(wire.fetch("events", 2)) == [b"c"]
    with pytest.raises(ConfigurationError, match="events"):
        cluster.delete_records("events", 0, 4)


def test_topic_error(cluster):
    with Wire(cluster.brokers[0]) as wire:
        for error, code in (("TOPIC_AUTHORIZATION_FAILED", 29), (errors.lookup(5), 5), (0, 0)):
            cluster.topic_error("events", error)
            assert wire.metadata("events").topics[0].error_code == code


@pytest.mark.parametrize("api", ["produce", 0, ProduceRequest])
@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", NOT_LEADER, errors.lookup(NOT_LEADER)])
def test_pushed_errors_come_in_their_order(cluster, api, error):
    cluster.create_topic("events")
    cluster.push_errors(api, [error, 0, "REQUEST_TIMED_OUT"])
    with Wire(cluster.brokers[0]) as wire:
        codes = [wire.produce("events", batch_of(b"a")).error_code for _ in range(4)]
        assert codes == [NOT_LEADER, 0, 7, 0]
        assert wire.offset("events", -1) == 2


def test_errors_pushed_for_one_broker(three):
    three.create_topic("events", 2)
    three.set_leader("events", 0, 1)
    three.set_leader("events", 1, 2)
    three.push_errors("fetch", ["KAFKA_STORAGE_ERROR"], broker_id=2)
    three.push_errors("fetch", ["UNKNOWN_SERVER_ERROR"])
    with Wire(three.brokers[0]) as one, Wire(three.brokers[1]) as two:
        assert two.fetch("events", 0, 1).error_code == 56
        assert one.fetch("events", 0, 0).error_code == -1
        assert two.fetch("events", 0, 1).error_code == 0


def test_disconnect_in_place_of_an_answer(cluster):
    cluster.create_topic("events")
    cluster.push_errors("produce", [cluster.DISCONNECT])
    with Wire(cluster.brokers[0]) as wire:
        with pytest.raises(DOWN):
            wire.produce("events", batch_of(b"a"))
    with Wire(cluster.brokers[0]) as wire:
        assert wire.produce("events", batch_of(b"a")).error_code == 0


def test_clear_errors(cluster):
    cluster.create_topic("events")
    cluster.push_errors("produce", [NOT_LEADER] * 10)
    cluster.clear_errors("produce")
    with Wire(cluster.brokers[0]) as wire:
        assert wire.produce("events", batch_of(b"a")).error_code == 0


def test_broker_down_and_up(three):
    with Wire(three.brokers[1]) as wire:
        three.broker_down(2)
        with pytest.raises(DOWN):
            wire.metadata()
    with pytest.raises(DOWN):
        Wire(three.brokers[1])
    with Wire(three.brokers[0]) as wire:
        assert [broker.node_id for broker in wire.metadata().brokers] == [1, 3]
    three.broker_up(2)
    with Wire(three.brokers[1]) as wire:
        assert [broker.node_id for broker in wire.metadata().brokers] == [1, 2, 3]


def test_all_brokers_down_and_up(three):
    three.broker_down()
    for address in three.brokers:
        with pytest.raises(DOWN):
            Wire(address)
    three.broker_up()
    for address in three.brokers:
        with Wire(address) as wire:
            assert len(wire.metadata().brokers) == 3


def test_set_leader(three):
    three.create_topic("events", replication=3)
    with Wire(three.brokers[0]) as wire:
        for leader in (2, 3, 1):
            before = wire.metadata("events").topics[0].partitions[0].leader_epoch
            three.set_leader("events", 0, leader)
            partition = wire.metadata("events").topics[0].partitions[0]
            assert (partition.leader_id, partition.leader_epoch) == (leader, before + 1)
            assert wire.produce("events", batch_of(b"a")).error_code == (0 if leader == 1 else NOT_LEADER)


def test_without_a_leader_the_cluster_stays_alive(cluster):
    cluster.create_topic("events")
    with Wire(cluster.brokers[0]) as agreed_before:
        agreed_before.produce("events", batch_of(b"a"), version=10)
        cluster.set_leader("events", 0, None)
        with pytest.raises(DOWN):
            agreed_before.produce("events", batch_of(b"a"), version=10)
    versions = cluster.api_versions()
    assert versions[0][1] == 9 and versions[1][1] == 11
    with Wire(cluster.brokers[0]) as wire:
        assert wire.metadata("events").topics[0].partitions[0].leader_id == -1
        assert wire.produce("events", batch_of(b"a")).error_code == NOT_LEADER
        assert wire.fetch("events", 0).error_code == NOT_LEADER
        cluster.set_leader("events", 0, 1)
        assert wire.produce("events", batch_of(b"a")).error_code == 0


def test_rtt(three):
    with Wire(three.brokers[0]) as slow, Wire(three.brokers[1]) as quick:
        three.set_rtt(1, 300)
        began = time.time()
        quick.metadata()
        assert time.time() - began < 0.3
        slow.metadata()
        assert time.time() - began >= 0.25
        three.set_rtt(None, 0)
        began = time.time()
        slow.metadata()
        assert time.time() - began < 0.3


def test_requests_seen(three):
    with pytest.raises(UsageError, match="track_requests"):
        three.requests()
    three.create_topic("events")
    three.set_leader("events", 0, 2)
    three.track_requests()
    with Wire(three.brokers[0]) as one, Wire(three.brokers[1]) as two:
        one.metadata("events")
        two.produce("events", batch_of(b"a"))
        two.fetch("events", 0)
        seen = three.requests()
        assert [(r.broker_id, r.api_key, r.api) for r in seen] == [
            (1, 3, "metadata"),
            (2, 0, "produce"),
            (2, 1, "fetch"),
        ]
        assert 0 <= seen[2].timestamp - seen[0].timestamp < 10000
        assert three.requests("produce") == three.requests(ProduceRequest) == [seen[1]]
        three.clear_requests()
        assert three.requests() == []
        one.metadata("events")
        assert len(three.requests()) == 1


def test_api_versions(cluster):
    assert cluster.api_versions()[0][1] >= 9
    cluster.set_api_versions("produce", 3, 7)
    assert cluster.api_versions()[0] == (3, 7)
    cluster.create_topic("events")
    with Wire(cluster.brokers[0]) as wire:
        assert wire.produce("events", batch_of(b"a"), version=7).error_code == 0
        with pytest.raises(DOWN):
            wire.produce("events", batch_of(b"a"), version=8)
    cluster.set_api_versions("init_producer_id", None, None)
    assert 22 not in cluster.api_versions()
    with pytest.raises(ConfigurationError, match="highest"):
        cluster.set_api_versions("produce", 0, 99)
    with pytest.raises(ConfigurationError, match="lowest"):
        cluster.set_api_versions("produce", 5, 4)


@pytest.mark.parametrize("partition", [0, 1])
def test_answers_can_be_read_in_all_versions_that_both_sides_would_agree_on(three, partition):
    three.create_topic("events", 2, replication=3)
    three.set_leader("events", 0, 1)
    three.set_leader("events", 1, 2)
    led = partition == 0
    offered = three.api_versions()

    def common(request):
        ranges = (offered[request.key], request.versions)
        return range(max(low for low, high in ranges), min(high for low, high in ranges) + 1)

    with Wire(three.brokers[0]) as wire:
        for version in common(MetadataRequest):
            asked = MetadataRequest(topics=[MetadataRequestTopic(name="events")])
            assert len(wire.ask(asked, version).topics[0].partitions) == 2
        for version in common(ProduceRequest):
            if version != 5:  # it lacks the log's start there, as docs/testing.rst says
                produced = wire.produce("events", batch_of(b"a"), partition, version)
                assert produced.error_code == (0 if led else NOT_LEADER)
        for version in common(FetchRequest):
            assert values_of(wire.fetch("events", 0, partition, version)) == ([b"a"] if led else [])


@pytest.mark.parametrize(
    "call",
    [
        lambda cluster: cluster.create_topic(""),
        lambda cluster: cluster.create_topic(None),
        lambda cluster: cluster.create_topic("events", 0),
        lambda cluster: cluster.create_topic("events", replication=2),
        lambda cluster: cluster.set_leader("events", -1, 1),
        lambda cluster: cluster.set_leader("events", 0, 2),
        lambda cluster: cluster.broker_down(2),
        lambda cluster: cluster.broker_up("1"),
        lambda cluster: cluster.set_rtt(1, -1),
        lambda cluster: cluster.set_coordinator("producer", "id", 1),
        lambda cluster: cluster.set_coordinator("group", "id", 7),
        lambda cluster: cluster.push_errors("produced", [1]),
        lambda cluster: cluster.push_errors("produce", ["NO_SUCH_ERROR"]),
        lambda cluster: cluster.push_errors("produce", [True]),
        lambda cluster: cluster.push_errors("produce", [1], broker_id=2),
        lambda cluster: cluster.set_api_versions("api_77", 0, 1),
    ],
)
def test_bad_arguments(cluster, call):
    with pytest.raises(ConfigurationError):
        call(cluster)
    with Wire(cluster.brokers[0]) as wire:
        assert wire.metadata().brokers


def test_old_batches_are_dropped_past_5_mib_a_partition(cluster):
    cluster.create_topic("events")
    batch = batch_of(os.urandom(2 ** 20))
    with Wire(cluster.brokers[0]) as wire:
        for _ in range(4):
            wire.produce("events", batch)
        assert wire.offset("events", -2) == 0
        for _ in range(4):
            wire.produce("events", batch)
        assert wire.offset("events", -2) == 4
        assert wire.fetch("events", 3).error_code == 1


def test_limits_that_the_documentation_tells_of(cluster):
    cluster.create_topic("events")
    with Wire(cluster.brokers[0]) as wire:
        wire.produce("events", batch_of(b"a"))
        wire.produce("events", batch_of(b"b"))
        assert values_of(wire.fetch("events", 0)) == [b"a"]
        assert wire.offset("events", 1000) == -1


def test_a_cluster_is_closed_once_and_for_all():
    cluster = embedded_cluster()
    address = cluster.brokers[0]
    cluster.close()
    cluster.close()
    with pytest.raises(DOWN):
        Wire(address)
    with pytest.raises(UsageError, match="closed"):
        cluster.create_topic("events")


def test_clusters_side_by_side():
    with embedded_cluster() as one, embedded_cluster() as other:
        one.create_topic("events")
        with Wire(one.brokers[0]) as wire:
            assert wire.metadata("events").topics[0].error_code == 0
        with Wire(other.brokers[0]) as wire:
            assert wire.metadata("events").topics[0].error_code == 3


def test_requests_are_served_beside_busy_threads(cluster):
    cluster.create_topic("events", 4)
    codes = []

    def work(partition):
        with Wire(cluster.brokers[0]) as wire:
            for _ in range(50):
                codes.append(wire.produce("events", batch_of(b"a"), partition).error_code)

    threads = [threading.Thread(target=work, args=(partition,)) for partition in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [0] * 200
