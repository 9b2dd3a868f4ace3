"""What every client does, whatever it is for: settings, connecting, dispatch, healing, closing."""
import os
import socket
import threading
import time

import pytest
from tornado import gen
from tornado.ioloop import IOLoop

from kiel.clients.client import Client
from kiel.exc import (
    BrokerConnectionError,
    ConfigurationError,
    DeadlineError,
    KielError,
    NoBrokersError,
    ProtocolError,
    RequestTimeoutError,
    UnhandledResponseError,
    UnsupportedVersionError,
    UsageError,
)
from kiel.protocol.init_producer_id import InitProducerIdRequest
from kiel.protocol.list_offsets import ListOffsetsPartition, ListOffsetsTopic, OffsetRequest
from kiel.protocol.produce import ProduceRequest
from tests.support import scripted
from tests.support.loop import on_loop
from tests.support.scripted import Body, Error, Frame, HangUp, Late, Never, ScriptedBroker, ScriptedCluster, WrongId
from tests.support.waiting import Ticker, failure, until

QUICK = dict(
    request_timeout_ms=400,
    connect_timeout_ms=400,
    api_timeout_ms=1000,
    reconnect_backoff_ms=20,
    reconnect_backoff_max_ms=100,
    retry_backoff_ms=20,
    retry_backoff_max_ms=100,
)


class Probe(Client):
    """A client with handlers for two APIs; it keeps what it was handed, and on which thread."""

    def __init__(self, brokers, **options):
        super(Probe, self).__init__(brokers, **dict(QUICK, **options))
        self.handled, self.threads = [], set()

    def handle_offset_response(self, response):
        self.handled.append(response)
        self.threads.add((threading.current_thread(), IOLoop.current()))
        code = response.topics[0].partitions[0].error_code
        if code:
            self.heal_cluster = True
        return code, response.topics[0].partitions[0].offset

    def handle_produce_response(self, response):
        raise AssertionError("nothing answers a request with acks=0")


def ask(partition=0):
    part = ListOffsetsPartition(partition_index=partition, timestamp=-1)
    return OffsetRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[part])])


def fire_and_forget():
    return ProduceRequest(transactional_id=None, acks=0, timeout_ms=100, topic_data=[])


@gen.coroutine
def connected(kafka, **options):
    client = Probe(getattr(kafka, "addresses", None) or kafka.address, **options)
    yield client.connect()
    raise gen.Return(client)


# -- brokers and settings


@pytest.mark.parametrize("given, addresses", [
    ("kafka", [("kafka", 9092)]),
    (u"kafka:9093", [("kafka", 9093)]),
    ("a:1,b:2, c", [("a", 1), ("b", 2), ("c", 9092)]),
    (["a:1", "b"], [("a", 1), ("b", 9092)]),
    (("a:1", u"b:2"), [("a", 1), ("b", 2)]),
    ("[::1]:9092", [("::1", 9092)]),
    (["[2001:db8::7]", "127.0.0.1:65535"], [("2001:db8::7", 9092), ("127.0.0.1", 65535)]),
    ("a:1,", [("a", 1)]),
])
def test_addresses(given, addresses):
    assert Client(given).brokers == addresses


@pytest.mark.parametrize("given", [
    "", ",", [], [""], None, 9092, [9092], "a:b", "a:0", "a:65536", "a:-1", ":9092", "::1", "::1:9092", "[::1", "[]:1",
    "[::1]9092", "http://kafka:9092", "PLAINTEXT://kafka:9092", "kafka:9092/path", {"kafka": 9092}.items(),
    [b"\xff:1:2"],
])
def test_addresses_that_cant_be_right(given):
    error = pytest.raises(ConfigurationError, Client, given)
    assert "brokers" in str(error.value)


@pytest.mark.parametrize("name", [
    "request_timeout_ms", "connect_timeout_ms", "api_timeout_ms", "reconnect_backoff_ms", "reconnect_backoff_max_ms",
    "retry_backoff_ms", "retry_backoff_max_ms", "metadata_max_age_ms",
])
@pytest.mark.parametrize("value", [0, -1, "1000", None, True, float("nan"), float("inf")])
def test_durations_that_cant_be_right(name, value):
    error = pytest.raises(ConfigurationError, Client, "kafka", **{name: value})
    assert name in str(error.value)


# -- connecting


@on_loop()
def test_connect_and_close():
    with ScriptedCluster(brokers=2) as kafka:
        client = yield connected(kafka)
        assert set(client.cluster.brokers) == {1, 2}
        assert client.loop is IOLoop.current()
        assert not client.closing
        yield client.close()
        assert client.closing
        yield client.close()
        yield until(lambda: not any(broker.open_connections for broker in kafka.brokers))


@on_loop()
def test_an_ipv6_address_in_brackets():
    with ScriptedBroker(host="::1") as broker:
        client = yield connected(broker)
        yield client.close()


@on_loop()
def test_nothing_to_connect_to(logbook):
    with ScriptedBroker() as closed:
        pass
    with ScriptedBroker() as silent:
        with ScriptedBroker() as secure:
            silent.on("connect", Never())
            secure.on("api_versions", Frame(scripted.TLS_ALERT, hang_up=True))
            client = Probe([closed.address, silent.address, secure.address])
            began = time.time()
            error = yield failure(client.connect())
            assert time.time() - began < 5
            assert isinstance(error, NoBrokersError)
            for part in (closed.address, "refused", silent.address, "in time", secure.address, "TLS"):
                assert part in str(error)
            yield client.close()
            yield until(lambda: silent.open_connections == 0)
            logbook.expect("no broker could be reached")


@on_loop()
def test_connect_can_be_tried_again(logbook):
    with ScriptedBroker() as broker:
        broker.down()
        client = Probe(broker.address)
        assert isinstance((yield failure(client.connect())), NoBrokersError)
        logbook.expect("no broker could be reached")
        broker.up()
        yield client.connect()
        yield client.close()


@on_loop()
def test_a_resolver_that_takes_3_seconds_doesnt_hold_the_loop(monkeypatch):
    genuine = socket.getaddrinfo

    def slow(host, *args, **kwargs):
        time.sleep(3)
        return genuine("127.0.0.1", *args, **kwargs)

    with ScriptedBroker() as broker:
        broker.advertised = ("broker.test", broker.port)
        monkeypatch.setattr(socket, "getaddrinfo", slow)
        client = Probe("broker.test:%d" % broker.port, connect_timeout_ms=8000)
        ticker = Ticker()
        yield client.connect()
        yield ticker.stop()
        assert ticker.gap < 0.25
        yield client.close()


# -- use at the wrong time


@on_loop()
def test_use_at_the_wrong_time():
    with ScriptedBroker() as broker:
        client = Probe(broker.address)
        assert isinstance((yield failure(client.send({1: ask()}))), UsageError)
        yield client.connect()
        assert isinstance((yield failure(client.connect())), UsageError)
        yield client.close()
        assert isinstance((yield failure(client.send({1: ask()}))), UsageError)
        assert isinstance((yield failure(client.connect())), UsageError)
        with pytest.raises(UsageError) as error:
            client.check_usable()
        assert "closed" in str(error.value)


@on_loop()
def test_a_client_that_was_never_connected_can_be_closed():
    client = Probe("127.0.0.1:1")
    yield client.close()
    assert isinstance((yield failure(client.connect())), UsageError)


@on_loop()
def test_a_forked_child_is_told_not_to_use_its_parents_client():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        client = yield connected(broker)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = exit_code_of_use(client)
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 42
        # ... and the parent's goes on as if nothing had been.
        assert (yield client.send({1: ask()})) == {1: (0, 0)}
        yield client.close()


def exit_code_of_use(client):
    """In the child: 42 if each use of the client fails with an error that names the fork."""
    with pytest.raises(UsageError) as checked:
        client.check_usable()
    sent = IOLoop(make_current=False).run_sync(lambda: failure(client.send({1: ask()})))
    told = all("fork" in str(error) for error in (checked.value, sent))
    return 42 if told and isinstance(sent, UsageError) else 2


# -- dispatch


@on_loop()
def test_responses_go_to_their_handlers_and_results_come_by_broker():
    with ScriptedCluster(brokers=2) as kafka:
        kafka.topics = {"t": {0: 1, 1: 2}}
        kafka.log("t", 0).end, kafka.log("t", 1).end = 5, 7
        client = yield connected(kafka)
        requests = {1: ask(0), 2: ask(1)}
        results = yield client.send(requests)
        assert results == {1: (0, 5), 2: (0, 7)}
        assert {response.broker_id: response.request for response in client.handled} == requests
        assert client.threads == {(threading.current_thread(), IOLoop.current())}
        yield client.close()


@on_loop()
def test_responses_are_handled_as_they_come():
    with ScriptedCluster(brokers=2) as kafka:
        kafka.topics = {"t": {0: 1, 1: 2}}
        kafka.brokers[0].on("offset", [Late(0.2)])
        client = yield connected(kafka)
        sent = client.send({1: ask(0), 2: ask(1)})
        yield until(lambda: client.handled)
        assert [response.broker_id for response in client.handled] == [2]
        assert not sent.done()
        assert set((yield sent)) == {1, 2}
        assert [response.broker_id for response in client.handled] == [2, 1]
        yield client.close()


@on_loop()
def test_nothing_asked_nothing_answered():
    with ScriptedBroker() as broker:
        client = yield connected(broker)
        assert (yield client.send({})) == {}
        yield client.close()


@on_loop()
def test_a_request_without_acknowledgement_gives_none():
    with ScriptedBroker() as broker:
        client = yield connected(broker)
        assert (yield client.send({1: fire_and_forget()})) == {1: None}
        yield until(lambda: broker.seen("produce"))
        yield client.close()


@on_loop()
def test_a_response_without_a_handler():
    with ScriptedBroker() as broker:
        client = yield connected(broker)
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        error = yield failure(client.send({1: request}))
        assert isinstance(error, UnhandledResponseError)
        assert "handle_init_producer_id_response" in str(error) and "Probe" in str(error)
        yield client.close()


@pytest.mark.parametrize("answer, kind", [
    (HangUp(), BrokerConnectionError),
    (Never(), RequestTimeoutError),
    (WrongId(), ProtocolError),
    (Body(b"\xff" * 20), ProtocolError),
    (Frame(b"\xff" * 20), ProtocolError),
])
@on_loop()
def test_where_there_is_no_response_the_result_is_the_error(answer, kind, logbook):
    with ScriptedCluster(brokers=2) as kafka:
        kafka.topics = {"t": {0: 1, 1: 2}}
        kafka.brokers[1].on("offset", answer)
        client = yield connected(kafka)
        began = time.time()
        results = yield client.send({1: ask(0), 2: ask(1)})
        assert time.time() - began < 2
        assert results[1] == (0, 0)
        assert type(results[2]) is kind
        logbook.allow(kafka.addresses[1])
        # The next call connects again.
        kafka.brokers[1].on("offset", None)
        assert (yield client.send({2: ask(1)})) == {2: (0, 0)}
        yield client.close()


@on_loop()
def test_brokers_that_cant_be_asked_are_in_the_results_too():
    with ScriptedCluster(brokers=3) as kafka:
        kafka.topics = {"t": {0: 1}}
        kafka.brokers[2].versions["offset"] = (0, 0)
        client = yield connected(kafka.brokers[0])
        kafka.brokers[1].down()
        results = yield client.send({1: ask(), 2: ask(), 3: ask(), 9: ask()})
        assert set(results) == {1, 2, 3, 9}
        assert results[1] == (0, 0)
        assert type(results[2]) is BrokerConnectionError
        assert type(results[3]) is UnsupportedVersionError
        assert type(results[9]) is BrokerConnectionError
        yield client.close()


@on_loop()
def test_a_time_out_of_ones_own():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.on("offset", [Late(0.6), Never()])
        client = yield connected(broker)
        assert (yield client.send({1: ask()}, timeout_ms=2000)) == {1: (0, 0)}
        began = time.time()
        results = yield client.send({1: ask()}, timeout_ms=50)
        assert time.time() - began < 0.35
        assert isinstance(results[1], RequestTimeoutError)
        yield client.close()


@on_loop()
def test_a_handler_that_fails_harms_no_other_request():
    class Clumsy(Probe):
        def handle_offset_response(self, response):
            if response.broker_id == 1:
                raise ValueError("clumsy")
            return super(Clumsy, self).handle_offset_response(response)

    with ScriptedCluster(brokers=2) as kafka:
        kafka.topics = {"t": {0: 2}}
        client = Clumsy(kafka.addresses)
        yield client.connect()
        other = client.send({2: ask()})
        assert isinstance((yield failure(client.send({1: ask()}))), ValueError)
        assert (yield other) == {2: (0, 0)}
        assert (yield client.send({2: ask()})) == {2: (0, 0)}
        assert all(len(broker.connections) <= 2 for broker in kafka.brokers)
        yield client.close()


@on_loop()
def test_many_sends_at_once():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.on("offset", [Late(0.1)])
        client = yield connected(broker)
        sent = [client.send({1: ask()}) for _ in range(100)]
        yield until(lambda: len(broker.seen("offset")) == 100)
        assert client.handled == []
        yield sent
        assert len(client.handled) == 100 and len(broker.connections) == 1
        yield client.close()


# -- healing


@on_loop()
def test_the_cluster_is_healed_once_after_the_last_response():
    with ScriptedCluster(brokers=3) as kafka:
        kafka.topics = {"t": {0: 3}}
        kafka.brokers[0].on("offset", [Late(0.15, Error(6))])
        client = yield connected(kafka)
        results = yield client.send({1: ask(), 2: ask(), 3: ask()})
        assert [results[number][0] for number in (1, 2, 3)] == [6, 6, 0]
        first, healing = kafka.seen("metadata")
        assert healing.time >= max(call.time for call in kafka.seen("offset")) + 0.1
        assert not client.heal_cluster
        yield client.send({3: ask()})
        assert len(kafka.seen("metadata")) == 2
        yield client.close()


@on_loop()
def test_a_broker_that_cant_be_reached_heals_the_cluster():
    with ScriptedCluster(brokers=2) as kafka:
        kafka.topics = {"t": {0: 1}}
        client = yield connected(kafka.brokers[0])
        yield client.cluster.topic("t", 1000)
        kafka.move("t", 0, 1)
        kafka.brokers[1].down()
        yield client.send({2: ask()})
        assert len(kafka.seen("metadata")) == 3
        assert client.cluster.topics["t"][0].leader_epoch == 1
        yield client.close()


@on_loop()
def test_healing_while_nobody_can_be_reached(logbook):
    with ScriptedBroker() as broker:
        client = yield connected(broker)
        broker.down()
        for _ in range(3):
            results = yield client.send({1: ask()})
            assert isinstance(results[1], BrokerConnectionError)
        assert len(logbook.expect("no broker could be reached")) == 1
        broker.up()
        end = time.time() + 3
        while not isinstance((yield client.send({1: ask()}))[1], tuple):
            assert time.time() < end
        yield client.close()


# -- sockets that end


@on_loop()
def test_idle_sockets_that_the_broker_closes_go_unnoticed():
    with ScriptedCluster(brokers=2) as kafka:
        kafka.topics = {"t": {0: 1, 1: 2}}
        client = yield connected(kafka)
        yield client.send({1: ask(0), 2: ask(1)})
        for broker in kafka.brokers:
            broker.disconnect()
        yield gen.sleep(0.05)
        results = yield client.send({1: ask(0), 2: ask(1)})
        assert results == {1: (0, 0), 2: (0, 0)}
        assert len(kafka.seen("offset")) == 4
        yield client.close()


@on_loop()
def test_a_half_open_socket_is_found_by_the_request_time_out():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        client = yield connected(broker)
        broker.on("offset", [Never()])
        began = time.time()
        results = yield client.send({1: ask()})
        assert isinstance(results[1], RequestTimeoutError)
        assert 0.3 < time.time() - began < 1
        assert (yield client.send({1: ask()})) == {1: (0, 0)}
        yield client.close()


@on_loop()
def test_reconnecting_is_bounded():
    with ScriptedCluster(brokers=2) as kafka:
        client = yield connected(kafka.brokers[0], reconnect_backoff_ms=100, reconnect_backoff_max_ms=400)
        second = kafka.brokers[1]
        second.on("connect", HangUp())
        end = time.time() + 1.5
        while time.time() < end:
            yield client.send({2: ask()})
        # Back-offs of at least 50, 100, 200, 200 ... ms, and up to three sockets an attempt.
        assert 3 <= len(second.connections) <= 3 * 9
        yield client.close()


# -- closing


@on_loop()
def test_closing_ends_what_is_in_flight():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        client = yield connected(broker, request_timeout_ms=5000)
        broker.on("offset", Never())
        sent = client.send({1: ask()})
        yield until(lambda: broker.seen("offset"))
        yield client.close()
        began = time.time()
        outcome = yield ending(sent)
        assert isinstance(outcome, KielError)
        assert time.time() - began < 0.5
        yield until(lambda: broker.open_connections == 0)


@gen.coroutine
def ending(sent):
    """The error that a send ends with, as such or as its only broker's result."""
    try:
        results = yield sent
    except KielError as error:
        raise gen.Return(error)
    raise gen.Return(list(results.values())[0])


@on_loop()
def test_closing_during_connect():
    with ScriptedBroker() as broker:
        broker.on("connect", Never())
        client = Probe(broker.address, connect_timeout_ms=10000)
        connecting = client.connect()
        yield until(lambda: broker.open_connections)
        began = time.time()
        yield client.close()
        assert isinstance((yield failure(connecting)), KielError)
        assert time.time() - began < 1
        yield until(lambda: broker.open_connections == 0)


@on_loop()
def test_closing_while_a_name_is_being_resolved(monkeypatch):
    release, released = threading.Event(), threading.Event()

    def getaddrinfo(*args, **kwargs):
        release.wait(5)
        released.set()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    try:
        client = Probe("broker.test", connect_timeout_ms=10000)
        connecting = client.connect()
        yield gen.sleep(0.05)
        began = time.time()
        yield client.close()
        assert isinstance((yield failure(connecting)), KielError)
        assert time.time() - began < 1
    finally:
        release.set()
    # The resolver's thread hands its answer to the loop, which has to be there still.
    yield until(released.is_set)
    yield gen.sleep(0.1)


@on_loop()
def test_wind_down_has_its_connections_still():
    class Polite(Probe):
        @gen.coroutine
        def wind_down(self):
            self.said = yield self.send({1: ask()})

    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        client = Polite(broker.address)
        yield client.connect()
        yield client.close()
        assert client.said == {1: (0, 0)}
        yield until(lambda: broker.open_connections == 0)


@on_loop()
def test_a_close_that_cant_be_done_in_time_gives_back_the_sockets_and_says_so():
    class Stuck(Probe):
        @gen.coroutine
        def wind_down(self):
            yield self.send({1: ask()})

    with ScriptedBroker() as broker:
        broker.on("offset", Never())
        client = Stuck(broker.address, request_timeout_ms=20000)
        yield client.connect()
        began = time.time()
        error = yield failure(client.close(timeout_ms=150))
        assert isinstance(error, DeadlineError) and "150 ms" in str(error)
        assert time.time() - began < 1
        yield until(lambda: broker.open_connections == 0)
