"""What a client knows of its cluster, and how it stays right while brokers and topics come and go."""
import datetime
import time

import pytest
from tornado import gen

from kiel import settings
from kiel.cluster import Cluster
from kiel.connection import Settings
from kiel.exc import (
    AuthorizationError,
    BrokerConnectionError,
    DeadlineError,
    InvalidTopicError,
    KielError,
    NoBrokersError,
    UnknownTopicError,
)
from kiel.protocol.metadata import MetadataRequest
from tests.support import scripted
from tests.support.loop import on_loop
from tests.support.scripted import Body, Error, Frame, HangUp, Late, Never, ScriptedBroker, ScriptedCluster
from tests.support.waiting import failure, until

LEADER_NOT_AVAILABLE = 5
INVALID_TOPIC_EXCEPTION = 17
TOPIC_AUTHORIZATION_FAILED = 29

NOBODY = "127.0.0.1:1"


def cluster_of(addresses, max_age=300, request_timeout=1.0, connect_timeout=1.0, reconnect=lambda attempt: 0.05):
    return Cluster(
        settings.addresses("brokers", addresses),
        Settings("kiel", "1.0", request_timeout, connect_timeout),
        reconnect_delay=reconnect,
        retry_delay=lambda attempt: 0.02,
        max_age=max_age,
    )


@gen.coroutine
def started(addresses, **changed):
    cluster = cluster_of(addresses, **changed)
    yield cluster.start()
    raise gen.Return(cluster)


def asked(call):
    """The topics that a metadata request asks for."""
    return [topic.name for topic in call.body.topics]


def leaders(partitions):
    return {number: partition.leader for number, partition in partitions.items()}


# -- finding the cluster


@on_loop()
def test_brokers_are_learnt_from_any_of_them():
    with ScriptedCluster(brokers=3) as kafka:
        kafka.brokers[1].rack = "r2"
        cluster = yield started(kafka.addresses[2])
        assert {number: (each.id, each.host, each.port, each.rack) for number, each in cluster.brokers.items()} == {
            1: (1, "127.0.0.1", kafka.brokers[0].port, None),
            2: (2, "127.0.0.1", kafka.brokers[1].port, "r2"),
            3: (3, "127.0.0.1", kafka.brokers[2].port, None),
        }
        assert cluster.cluster_id == "scripted" and cluster.controller_id == 1
        yield cluster.stop()


@on_loop()
def test_the_bootstrap_connection_is_kept_as_that_brokers():
    with ScriptedBroker() as broker:
        cluster = yield started(broker.address)
        yield cluster.connection(1)
        assert len(broker.connections) == 1
        assert cluster.api_versions(1, MetadataRequest.key) == scripted.KAFKA_4_4["metadata"]
        assert cluster.api_versions(1, 9999) is None and cluster.api_versions(2, 3) is None
        yield cluster.stop()
        yield until(lambda: broker.open_connections == 0)


@on_loop()
def test_a_bootstrap_address_that_refuses_is_passed_over():
    with ScriptedBroker() as broker:
        cluster = yield started([NOBODY, broker.address])
        assert set(cluster.brokers) == {1}
        yield cluster.stop()


@on_loop()
def test_a_bootstrap_address_that_never_answers_doesnt_hold_up_the_others():
    with ScriptedBroker() as silent:
        silent.on("connect", Never())
        with ScriptedBroker() as broker:
            began = time.time()
            cluster = yield started([silent.address, broker.address], connect_timeout=10)
            assert time.time() - began < 2
            yield cluster.stop()
            # ... and the attempt that lost leaves nothing behind.
            yield until(lambda: silent.open_connections == 0)


@on_loop()
def test_nothing_to_connect_to(logbook):
    with ScriptedBroker() as closed:
        pass
    with ScriptedBroker() as silent:
        silent.on("connect", Never())
        cluster = cluster_of([closed.address, silent.address, "no-such-host.invalid"], connect_timeout=0.3)
        began = time.time()
        error = yield failure(cluster.start())
        assert time.time() - began < 3
        assert isinstance(error, NoBrokersError)
        for part in (closed.address, "refused", silent.address, "time", "no-such-host.invalid:9092", "resolved"):
            assert part in str(error)
        yield cluster.stop()
        yield until(lambda: silent.open_connections == 0)
        logbook.expect("no broker could be reached")


@on_loop()
def test_unreachable_brokers_are_logged_once_and_their_return_too(logbook):
    with ScriptedBroker() as broker:
        cluster = yield started(broker.address)
        broker.down()
        for _ in range(3):
            assert isinstance((yield failure(cluster.refresh())), NoBrokersError)
        assert len(logbook.expect("no broker could be reached")) == 1
        broker.up()
        yield until_it_works(cluster.refresh)
        broker.down()
        assert isinstance((yield failure(cluster.refresh())), NoBrokersError)
        assert len(logbook.expect("no broker could be reached")) == 1
        yield cluster.stop()


@gen.coroutine
def until_it_works(attempt, seconds=3):
    end = time.time() + seconds
    while True:
        try:
            result = yield attempt()
            raise gen.Return(result)
        except KielError:
            if time.time() > end:
                raise
        yield gen.sleep(0.01)


@on_loop()
def test_a_port_that_speaks_something_else_says_so(logbook):
    with ScriptedBroker() as broker:
        broker.on("api_versions", Frame(scripted.TLS_ALERT, hang_up=True))
        error = yield failure(cluster_of(broker.address).start())
        assert isinstance(error, NoBrokersError) and "TLS" in str(error)
        broker.on("api_versions", Frame(scripted.HTTP_ANSWER, hang_up=True))
        error = yield failure(cluster_of(broker.address).start())
        assert isinstance(error, NoBrokersError) and "HTTP" in str(error)
        logbook.expect("TLS")
        logbook.expect("HTTP")


@on_loop()
def test_a_broker_whose_metadata_makes_no_sense(logbook):
    with ScriptedCluster(brokers=2) as kafka:
        kafka.brokers[0].on("metadata", Body(b"\xff" * 40))
        cluster = cluster_of(kafka.addresses)
        error = yield failure(cluster.start())
        assert isinstance(error, NoBrokersError) and "metadata" in str(error)
        logbook.expect(kafka.addresses[0])
        logbook.allow("no broker could be reached")
        yield cluster.stop()


@on_loop()
def test_an_advertised_listener_that_cant_be_reached_is_named_as_such():
    with ScriptedBroker() as broker:
        broker.advertised = ("127.0.0.1", 1)
        cluster = yield started(broker.address)
        error = yield failure(cluster.connection(1))
        assert isinstance(error, BrokerConnectionError)
        assert NOBODY in str(error) and "advertised" in str(error)
        yield cluster.stop()


@on_loop()
def test_a_broker_that_stays_out_of_reach_is_logged_once(logbook, monkeypatch):
    monkeypatch.setattr("kiel.cluster.AWAY_SECONDS", 0.3)
    with ScriptedCluster(brokers=2) as kafka:
        kafka.brokers[1].advertised = ("127.0.0.1", 1)
        cluster = yield started(kafka.addresses[0])
        end = time.time() + 0.2
        while time.time() < end:
            yield failure(cluster.connection(2))
        assert logbook.lines() == []
        end = time.time() + 0.5
        while time.time() < end:
            yield failure(cluster.connection(2))
        line, = logbook.expect("broker 2")
        assert NOBODY in line and "advertised" in line
        yield cluster.stop()


# -- topics


@on_loop()
def test_leaders_of_a_topic():
    with ScriptedCluster(brokers=2) as kafka:
        kafka.topics = {"t": {0: 1, 1: 2, 2: None}}
        kafka.epochs = {("t", 1): 7}
        cluster = yield started(kafka.addresses)
        partitions = yield cluster.topic("t", 1000)
        assert leaders(partitions) == {0: 1, 1: 2, 2: None}
        assert [partitions[number].leader_epoch for number in range(3)] == [0, 7, 0]
        assert partitions[0].replicas == (1, 2) and partitions[0].isr == (1, 2)
        assert [cluster.leader("t", number) for number in range(4)] == [1, 2, None, None]
        assert cluster.leader("other", 0) is None
        yield cluster.stop()


@on_loop()
def test_only_the_topics_in_use_are_asked_for():
    with ScriptedBroker() as broker:
        broker.topics = {"a": {0: 1}, "b": {0: 1}, "c": {0: 1}}
        cluster = yield started(broker.address)
        yield cluster.topic("a", 1000)
        yield cluster.topic("b", 1000)
        yield cluster.topic("a", 1000)
        cluster.forget("a")
        yield cluster.refresh()
        assert [asked(call) for call in broker.seen("metadata")] == [[], ["a"], ["a", "b"], ["b"]]
        assert set(cluster.topics) == {"b"}
        yield cluster.stop()


@on_loop()
def test_topics_are_created_by_asking_only_where_that_is_wanted():
    with ScriptedBroker() as broker:
        broker.cluster.auto_create = 2
        cluster = yield started(broker.address)
        assert isinstance((yield failure(cluster.topic("t", 200))), UnknownTopicError)
        assert broker.topics == {}
        cluster.auto_create = True
        partitions = yield cluster.topic("t", 1000)
        assert leaders(partitions) == {0: 1, 1: 1}
        yield cluster.stop()


@on_loop()
def test_a_new_topic_without_leaders_is_waited_for_with_few_requests():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        cluster = yield started(broker.address)
        broker.on("metadata", [Error(LEADER_NOT_AVAILABLE)] * 4)
        partitions = yield cluster.topic("t", 5000)
        assert leaders(partitions) == {0: 1}
        assert len(broker.seen("metadata")) == 6
        yield cluster.stop()


@on_loop()
def test_a_topic_that_doesnt_exist():
    with ScriptedBroker() as broker:
        cluster = yield started(broker.address)
        began = time.time()
        error = yield failure(cluster.topic("missing", 500))
        assert isinstance(error, UnknownTopicError) and "missing" in str(error)
        assert 0.3 < time.time() - began < 1
        assert 2 <= len(broker.seen("metadata")) <= 11
        yield cluster.stop()


@on_loop()
def test_a_topic_that_is_never_ready():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        cluster = yield started(broker.address)
        broker.on("metadata", Error(LEADER_NOT_AVAILABLE))
        error = yield failure(cluster.topic("t", 300))
        assert isinstance(error, DeadlineError)
        assert "t was not ready" in str(error) and "LEADER_NOT_AVAILABLE" in str(error)
        yield cluster.stop()


@on_loop()
def test_a_topic_while_metadata_is_never_answered():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        cluster = yield started(broker.address, request_timeout=5)
        broker.on("metadata", Never())
        began = time.time()
        error = yield failure(cluster.topic("t", 300))
        assert isinstance(error, DeadlineError)
        assert time.time() - began < 1
        yield cluster.stop()


@pytest.mark.parametrize("code, kind", [
    (INVALID_TOPIC_EXCEPTION, InvalidTopicError), (TOPIC_AUTHORIZATION_FAILED, AuthorizationError)
])
@on_loop()
def test_a_topic_that_the_broker_refuses_fails_at_once_and_alone(code, kind):
    with ScriptedBroker() as broker:
        broker.topics = {"good": {0: 1}}
        broker.cluster.topic_errors = {"bad": code}
        cluster = yield started(broker.address)
        yield cluster.topic("good", 1000)
        began = time.time()
        error = yield failure(cluster.topic("bad", 5000))
        assert type(error) is kind
        assert error.code == code and "bad" in str(error)
        assert time.time() - began < 1
        assert len(broker.seen("metadata")) <= 2 + 3
        assert leaders((yield cluster.topic("good", 1000))) == {0: 1}
        yield cluster.stop()


@on_loop()
def test_a_refused_topic_works_once_it_is_allowed():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.cluster.topic_errors = {"t": TOPIC_AUTHORIZATION_FAILED}
        cluster = yield started(broker.address)
        assert isinstance((yield failure(cluster.topic("t", 1000))), AuthorizationError)
        broker.cluster.topic_errors = {}
        partitions = yield until_it_works(lambda: cluster.topic("t", 1000))
        assert leaders(partitions) == {0: 1}
        yield cluster.stop()


@on_loop()
def test_a_deleted_topic_is_not_brought_back():
    with ScriptedBroker() as broker:
        broker.cluster.auto_create = 1
        broker.topics = {"gone": {0: 1}, "kept": {0: 1}}
        cluster = yield started(broker.address)
        yield cluster.topic("gone", 1000)
        yield cluster.topic("kept", 1000)
        broker.cluster.delete("gone")
        yield cluster.refresh()
        assert set(cluster.topics) == {"kept"} == set(broker.topics)
        assert isinstance(cluster.topic_errors["gone"], UnknownTopicError)
        broker.topics["gone"] = {0: 1, 1: 1}
        yield cluster.refresh()
        assert leaders(cluster.topics["gone"]) == {0: 1, 1: 1}
        assert cluster.topic_errors == {}
        yield cluster.stop()


@on_loop()
def test_partitions_are_added():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        cluster = yield started(broker.address)
        yield cluster.topic("t", 1000)
        heard = []
        cluster.on_change.append(lambda: heard.append(sorted(cluster.topics["t"])))
        broker.topics["t"].update({1: 1, 2: 1})
        yield cluster.refresh()
        assert heard == [[0, 1, 2]]
        yield cluster.stop()


# -- staying fresh


@on_loop()
def test_refreshes_at_the_same_time_share_one_request():
    with ScriptedBroker() as broker:
        broker.on("metadata", [None, Late(0.1)])
        cluster = yield started(broker.address)
        yield [cluster.refresh() for _ in range(5)] + [cluster.heal() for _ in range(5)]
        assert len(broker.seen("metadata")) == 2
        yield cluster.stop()


@on_loop()
def test_refreshes_one_after_the_other_are_at_most_ten_a_second():
    with ScriptedBroker() as broker:
        cluster = yield started(broker.address)
        for _ in range(24):
            yield cluster.refresh()
        times = [call.time for call in broker.seen("metadata")]
        assert len(times) == 25
        assert min(later - time for time, later in zip(times, times[10:])) > 0.95
        yield cluster.stop()


@on_loop()
def test_metadata_is_asked_for_again_before_it_is_too_old():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        cluster = yield started(broker.address, max_age=0.15)
        yield cluster.topic("t", 1000)
        broker.topics["t"][1] = 1
        yield until(lambda: len(cluster.topics["t"]) == 2)
        yield cluster.stop()
        yield gen.sleep(0.05)
        count = len(broker.seen("metadata"))
        yield gen.sleep(0.3)
        assert len(broker.seen("metadata")) == count


@on_loop()
def test_periodic_refreshes_survive_a_broker_that_is_away_for_a_while(logbook):
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        cluster = yield started(broker.address, max_age=0.1)
        yield cluster.topic("t", 1000)
        broker.down()
        yield gen.sleep(0.4)
        broker.topics["t"][1] = 1
        broker.up()
        yield until(lambda: len(cluster.topics["t"]) == 2)
        yield cluster.stop()
        logbook.allow("no broker could be reached")


@on_loop()
def test_a_stop_in_the_middle_of_a_periodic_refresh_is_quiet():
    with ScriptedBroker() as broker:
        cluster = yield started(broker.address, max_age=0.1)
        broker.on("metadata", Never())
        yield until(lambda: len(broker.seen("metadata")) == 2)
        yield cluster.stop()
        yield gen.sleep(0.1)


@on_loop()
def test_a_leader_that_moves_is_followed():
    with ScriptedCluster(brokers=2) as kafka:
        kafka.topics = {"t": {0: 1}}
        cluster = yield started(kafka.addresses)
        yield cluster.topic("t", 1000)
        kafka.move("t", 0, 2)
        yield cluster.heal()
        assert cluster.leader("t", 0) == 2
        assert cluster.topics["t"][0].leader_epoch == 1
        yield cluster.stop()


@on_loop()
def test_a_broker_that_moves_to_another_address_is_followed():
    with ScriptedCluster(brokers=2) as kafka:
        first, second = kafka.brokers
        cluster = yield started(first.address)
        old = yield cluster.connection(2)
        with ScriptedBroker(node_id=2) as moved:
            second.advertised = (moved.host, moved.port)
            yield cluster.refresh()
            assert old.state == "broken"
            new = yield cluster.connection(2)
            assert new.port == moved.port
            yield cluster.stop()


@on_loop()
def test_metadata_comes_from_another_broker_when_one_is_down():
    with ScriptedCluster(brokers=3) as kafka:
        kafka.topics = {"t": {0: 2}}
        cluster = yield started(kafka.addresses[0])
        kafka.brokers[0].down()
        kafka.brokers[1].down()
        partitions = yield cluster.topic("t", 2000)
        assert leaders(partitions) == {0: 2}
        yield cluster.stop()


@on_loop()
def test_a_broker_that_leaves_metadata_unanswered_is_given_up_for_another():
    with ScriptedCluster(brokers=2) as kafka:
        cluster = yield started(kafka.addresses[0], request_timeout=0.3)
        kafka.brokers[0].on("metadata", Never())
        began = time.time()
        yield cluster.refresh()
        assert time.time() - began < 1
        assert len(kafka.brokers[1].seen("metadata")) == 1
        yield cluster.stop()


@on_loop()
def test_the_bootstrap_addresses_are_used_again_when_no_known_broker_answers():
    with ScriptedBroker(node_id=1) as old:
        with ScriptedBroker(node_id=5) as new:
            cluster = yield started([old.address, new.address])
            assert set(cluster.brokers) == {1}
            old.down()
            yield cluster.refresh()
            assert set(cluster.brokers) == {5}
            yield cluster.stop()


# -- connections


@on_loop()
def test_one_of_two_brokers_refuses_and_the_others_partitions_work():
    with ScriptedCluster(brokers=2) as kafka:
        kafka.topics = {"t": {0: 1, 1: 2}}
        kafka.brokers[0].down()
        began = time.time()
        cluster = yield started(kafka.addresses)
        assert time.time() - began < 5
        yield cluster.topic("t", 1000)
        opened = yield cluster.connection(cluster.leader("t", 1))
        yield opened.send(MetadataRequest(topics=[]))
        assert isinstance((yield failure(cluster.connection(1))), BrokerConnectionError)
        yield cluster.stop()


@on_loop()
def test_callers_at_the_same_time_share_one_connection():
    with ScriptedCluster(brokers=2) as kafka:
        cluster = yield started(kafka.addresses[0])
        opened = yield [cluster.connection(2) for _ in range(10)]
        assert len(set(map(id, opened))) == 1
        assert len(kafka.brokers[1].connections) == 1
        assert (yield cluster.connection(2)) is opened[0]
        yield cluster.stop()


@on_loop()
def test_a_connection_that_broke_is_made_anew():
    with ScriptedBroker() as broker:
        cluster = yield started(broker.address)
        old = yield cluster.connection(1)
        broker.disconnect()
        yield until(lambda: old.state == "broken")
        new = yield cluster.connection(1)
        yield new.send(MetadataRequest(topics=[]))
        assert len(broker.connections) == 2
        yield cluster.stop()


@on_loop()
def test_a_broker_that_hangs_up_right_after_the_handshake_is_not_lost_for_good():
    with ScriptedCluster(brokers=2) as kafka:
        cluster = yield started(kafka.addresses[0])
        second = kafka.brokers[1]

        def answer_and_hang_up(call):
            return Frame(scripted.frame_of(second.usual(call), call), hang_up=True)

        second.on("api_versions", [answer_and_hang_up] * 3)
        yield until_it_works(lambda: ask_broker(cluster, 2))
        yield cluster.stop()


@gen.coroutine
def ask_broker(cluster, broker_id):
    opened = yield cluster.connection(broker_id)
    response = yield opened.send(MetadataRequest(topics=[]))
    raise gen.Return(response)


@on_loop()
def test_reconnecting_backs_off():
    with ScriptedCluster(brokers=2) as kafka:
        cluster = yield started(kafka.addresses[0], reconnect=lambda attempt: 0.2)
        second = kafka.brokers[1]
        second.on("connect", HangUp())
        end = time.time() + 1
        while time.time() < end:
            assert isinstance((yield failure(cluster.connection(2))), BrokerConnectionError)
        # One attempt is up to three sockets: two for ApiVersions, one for what older brokers know.
        assert 3 <= len(second.connections) <= 3 * 6
        second.on("connect", None)
        yield until_it_works(lambda: cluster.connection(2))
        yield cluster.stop()


@on_loop()
def test_reconnecting_backs_off_further_with_each_failure():
    with ScriptedCluster(brokers=2) as kafka:
        attempts = []
        cluster = yield started(kafka.addresses[0], reconnect=lambda attempt: attempts.append(attempt) or 0.01)
        kafka.brokers[1].down()
        for _ in range(4):
            yield failure(cluster.connection(2))
        kafka.brokers[1].up()
        opened = yield cluster.connection(2)
        opened.close()
        kafka.brokers[1].down()
        yield failure(cluster.connection(2))
        assert attempts == [0, 1, 2, 3, 0]
        yield cluster.stop()


@on_loop()
def test_a_broker_that_comes_back_gets_one_connection_however_it_is_found():
    with ScriptedBroker() as broker:
        cluster = yield started(broker.address, reconnect=lambda attempt: 0.5)
        before = yield cluster.connection(1)
        broker.down()
        yield until(lambda: before.state == "broken")
        yield failure(cluster.connection(1))
        broker.up()
        connecting, refreshing = cluster.connection(1), cluster.refresh()
        yield refreshing
        opened = yield connecting
        assert len(broker.connections) > 2
        assert opened.state == "ready" and (yield cluster.connection(1)) is opened
        yield until(lambda: broker.open_connections == 1)
        yield cluster.stop()


@on_loop()
def test_a_broker_that_the_cluster_doesnt_list():
    with ScriptedBroker() as broker:
        cluster = yield started(broker.address)
        error = yield failure(cluster.connection(9))
        assert isinstance(error, BrokerConnectionError) and "9" in str(error)
        yield cluster.stop()


@on_loop()
def test_after_the_stop_nothing_is_open_and_nothing_opens():
    with ScriptedCluster(brokers=3) as kafka:
        cluster = yield started(kafka.addresses)
        yield [cluster.connection(number) for number in (1, 2, 3)]
        yield cluster.stop()
        assert isinstance((yield failure(cluster.connection(2))), KielError)
        assert isinstance((yield failure(cluster.refresh())), KielError)
        assert isinstance((yield failure(cluster.topic("t", 1000))), KielError)
        yield until(lambda: not any(broker.open_connections for broker in kafka.brokers))


@on_loop()
def test_a_stop_ends_the_attempts_to_connect():
    with ScriptedCluster(brokers=2) as kafka:
        cluster = yield started(kafka.addresses[0], connect_timeout=10)
        kafka.brokers[1].on("connect", Never())
        connecting = cluster.connection(2)
        yield until(lambda: kafka.brokers[1].open_connections == 1)
        yield cluster.stop()
        assert isinstance((yield failure(gen.with_timeout(datetime.timedelta(seconds=1), connecting))), KielError)
        yield until(lambda: kafka.brokers[1].open_connections == 0)
