"""One connection against a scripted broker: whatever the broker does, each request ends, once, in time."""
import contextlib
import socket
import struct
import threading
import time

import pytest
from tornado import gen, tcpclient
from tornado.concurrent import Future
from tornado.ioloop import IOLoop

from kiel import connection
from kiel.exc import (
    BrokerConnectionError,
    ProtocolError,
    RequestTimeoutError,
    UnsupportedVersionError,
)
from kiel.protocol.init_producer_id import InitProducerIdRequest
from kiel.protocol.metadata import MetadataRequest, MetadataRequestTopic
from kiel.protocol.produce import ProduceRequest
from tests.support import scripted
from tests.support.loop import on_loop
from tests.support.scripted import Body, Frame, HangUp, Late, Never, ScriptedBroker, Skip, WrongId
from tests.support.waiting import Ticker, failure, until

SETTINGS = connection.Settings("kiel", "1.0", request_timeout=0.3, connect_timeout=0.4)
PATIENT = SETTINGS._replace(request_timeout=5.0, connect_timeout=5.0)


def connect(broker, settings=SETTINGS):
    return connection.connect(broker.host, broker.port, settings, set())


def ask(topic="t"):
    return MetadataRequest(topics=[MetadataRequestTopic(name=topic)])


def named(response):
    return [topic.name for topic in response.topics]


# -- requests in flight


@on_loop()
def test_many_requests_are_in_flight_and_answered_in_order():
    with ScriptedBroker() as broker:
        broker.on("metadata", [Late(0.15)])
        opened = yield connect(broker, PATIENT)
        asked = [opened.send(ask("topic-%d" % number)) for number in range(50)]
        yield until(lambda: len(broker.seen("metadata")) == 50)
        assert not any(future.done() for future in asked)
        assert opened.pending == 50
        responses = yield asked
        assert [named(response) for response in responses] == [["topic-%d" % number] for number in range(50)]
        assert opened.pending == 0
        opened.close()


@on_loop()
def test_a_response_knows_its_request():
    with ScriptedBroker() as broker:
        opened = yield connect(broker)
        request = ask()
        response = yield opened.send(request)
        assert response.request is request
        opened.close()


@on_loop()
def test_the_client_id_is_sent():
    with ScriptedBroker() as broker:
        opened = yield connect(broker, SETTINGS._replace(client_id=u"caf\u00e9"))
        yield opened.send(ask())
        opened.close()
        assert {call.client_id for call in broker.seen()} == {u"caf\u00e9"}


@on_loop()
def test_ten_thousand_produces_without_acknowledgement_and_then_a_request_with_one():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        opened = yield connect(broker, PATIENT)
        request = ProduceRequest(transactional_id=None, acks=0, timeout_ms=1000, topic_data=[])
        results = yield [opened.send(request) for _ in range(10000)]
        assert results == [None] * 10000
        response = yield opened.send(ask("t"))
        assert named(response) == ["t"]
        assert len(broker.seen("produce")) == 10000
        opened.close()


@on_loop()
def test_a_request_without_acknowledgement_that_cant_be_written_has_its_time_out():
    with contextlib.closing(socket.socket()) as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(1)
        opened = connection.Connection("127.0.0.1", deaf.getsockname()[1], SETTINGS)
        yield opened.open(knows_produce, IOLoop.current().time() + 1)
        large = ProduceRequest(transactional_id=u"x" * 30000, acks=0, timeout_ms=1000, topic_data=[])
        began = time.time()
        asked = [opened.send(large) for _ in range(1000)]
        assert opened.pending == 1000
        error = yield failure(asked[-1])
        assert isinstance(error, RequestTimeoutError) and error.stage == "write"
        assert "produce" in str(error) and time.time() - began < 2
        assert opened.state == "broken" and opened.pending == 0
        for each in asked:
            yield outcome(each)


@gen.coroutine
def knows_produce(_):
    raise gen.Return({ProduceRequest.key: (3, 3)})


@gen.coroutine
def outcome(future):
    """What `future` ends with: a result, or a BrokerConnectionError."""
    try:
        result = yield future
    except BrokerConnectionError as error:
        result = error
    raise gen.Return(result)


@pytest.mark.parametrize("size", [100, 1000 * 1000])
@on_loop()
def test_a_response_of_any_size(size):
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.topics.update({"%050d" % number: {0: 1} for number in range(size // 100)})
        opened = yield connect(broker, PATIENT)
        response = yield opened.send(MetadataRequest(topics=None))
        assert sorted(named(response)) == sorted(broker.topics)
        opened.close()


# -- the ways in which a connection ends


@on_loop()
def test_a_broker_that_reads_a_request_and_hangs_up():
    with ScriptedBroker() as broker:
        opened = yield connect(broker, PATIENT)
        broker.on("metadata", HangUp())
        began = time.time()
        error = yield failure(opened.send(ask()))
        assert time.time() - began < 2
        assert type(error) is BrokerConnectionError
        assert error.address == broker.address and error.stage == "read"
        assert opened.state == "broken" and opened.pending == 0


@on_loop()
def test_all_who_wait_fail_with_the_one_cause():
    with ScriptedBroker() as broker:
        opened = yield connect(broker, PATIENT)
        broken = []
        opened.on_fail.append(broken.append)
        broker.on("metadata", [None, HangUp()])
        asked = [opened.send(ask()) for _ in range(5)]
        assert named((yield asked[0])) == ["t"]
        errors = []
        for future in asked[1:]:
            errors.append((yield failure(future)))
        errors.append((yield failure(opened.send(ask()))))
        assert isinstance(errors[0], BrokerConnectionError)
        assert all(error is errors[0] for error in errors)
        assert opened.cause is errors[0] and broken == [opened]


@on_loop()
def test_an_overdue_response_closes_the_connection_and_fails_all_who_wait():
    with ScriptedBroker() as broker:
        opened = yield connect(broker)
        broker.on("metadata", Never())
        began = time.time()
        asked = [opened.send(ask()) for _ in range(3)]
        asked.append(opened.send(ask(), timeout_ms=60000))
        errors = []
        for future in asked:
            errors.append((yield failure(future)))
        assert 0.25 < time.time() - began < 1
        assert isinstance(errors[0], RequestTimeoutError) and "metadata" in str(errors[0])
        assert all(error is errors[0] for error in errors)
        yield until(lambda: broker.open_connections == 0)


@on_loop()
def test_a_request_can_have_a_time_out_of_its_own():
    with ScriptedBroker() as broker:
        broker.on("metadata", [Late(0.6), Never()])
        opened = yield connect(broker)
        yield opened.send(ask(), timeout_ms=3000)
        began = time.time()
        error = yield failure(opened.send(ask(), timeout_ms=50))
        assert isinstance(error, RequestTimeoutError)
        assert time.time() - began < 0.25


@on_loop()
def test_a_late_response_is_given_to_nobody_else():
    with ScriptedBroker() as broker:
        broker.on("metadata", [Late(0.4)])
        first = yield connect(broker)
        assert isinstance((yield failure(first.send(ask("first")))), RequestTimeoutError)
        second = yield connect(broker)
        response = yield second.send(ask("second"))
        assert named(response) == ["second"]
        yield gen.sleep(0.2)
        assert named((yield second.send(ask("third")))) == ["third"]
        second.close()


@on_loop()
def test_closing_fails_what_still_waits():
    with ScriptedBroker() as broker:
        broker.on("metadata", Never())
        opened = yield connect(broker)
        asked = opened.send(ask())
        opened.close()
        opened.close()
        error = yield failure(asked)
        assert isinstance(error, BrokerConnectionError) and error.stage == "closed"
        yield until(lambda: broker.open_connections == 0)


@on_loop()
def test_a_request_that_cant_be_written_fails_alone():
    with ScriptedBroker() as broker:
        opened = yield connect(broker)
        request = ProduceRequest(transactional_id=None, acks="all", timeout_ms=1000, topic_data=[])
        assert isinstance((yield failure(opened.send(request))), ProtocolError)
        assert named((yield opened.send(ask()))) == ["t"]
        opened.close()


# -- bytes that are wrong


def frame(body):
    return struct.pack(">i", len(body)) + body


WRONG = {
    "a negative length": (Frame(struct.pack(">i", -5) + b"x" * 8), "-5"),
    "a length above the limit": (Frame(struct.pack(">i", 101 * 1024 * 1024) + b"x" * 8), "105906176"),
    "a huge length": (Frame(struct.pack(">i", 0x7FFFFFFF) + b"x" * 8), "2147483647"),
    "TLS": (Frame(scripted.TLS_ALERT, hang_up=True), "TLS"),
    "HTTP": (Frame(scripted.HTTP_ANSWER, hang_up=True), "HTTP"),
    "a frame of nothing": (Frame(frame(b"")), ""),
    "a correlation id that was never sent": (WrongId(by=7), "correlation"),
    "a body that is too short": (Body(b"\0\0"), "metadata"),
    "bytes left over": (Body(b"\0" * 400), "metadata"),
    "an array too long": (Body(b"\0\0\0\0" + b"\xff\xff\xff\xff\x07" * 20), "metadata"),
}


@pytest.mark.parametrize("name", sorted(WRONG))
@on_loop()
def test_wrong_bytes_end_the_connection(name, logbook):
    answer, hint = WRONG[name]
    with ScriptedBroker() as broker:
        opened = yield connect(broker, PATIENT)
        broker.on("metadata", [answer])
        asked = [opened.send(ask()) for _ in range(3)]
        error = yield failure(asked[0])
        assert isinstance(error, ProtocolError)
        assert hint in str(error)
        for future in asked[1:]:
            assert (yield failure(future)) is error
        assert opened.state == "broken"
        yield until(lambda: broker.open_connections == 0)
        logbook.expect(broker.address)


@on_loop()
def test_a_response_out_of_turn(logbook):
    with ScriptedBroker() as broker:
        opened = yield connect(broker, PATIENT)
        broker.on("metadata", [Skip()])
        asked = [opened.send(ask("first")), opened.send(ask("second"))]
        error = yield failure(asked[0])
        assert isinstance(error, ProtocolError)
        assert (yield failure(asked[1])) is error
        logbook.expect(broker.address)


@on_loop()
def test_a_response_that_nobody_asked_for(logbook):
    with ScriptedBroker() as broker:
        opened = yield connect(broker, PATIENT)
        broker.on("metadata", [lambda call: Frame(frame(struct.pack(">i", call.correlation_id) + b"\0") * 2)])
        asked = opened.send(ask())
        assert isinstance((yield failure(asked)), ProtocolError)
        logbook.expect(broker.address)


@on_loop()
def test_half_a_response_and_then_a_hang_up():
    with ScriptedBroker() as broker:
        opened = yield connect(broker, PATIENT)
        broker.on("metadata", Frame(struct.pack(">i", 100) + b"x" * 50, hang_up=True))
        error = yield failure(opened.send(ask()))
        assert type(error) is BrokerConnectionError


# -- the handshake


@on_loop()
def test_the_highest_shared_version_is_spoken():
    with ScriptedBroker() as broker:
        broker.versions["metadata"] = (3, 7)
        opened = yield connect(broker)
        yield opened.send(ask())
        assert broker.seen("metadata")[0].version == 7
        opened.close()


@on_loop()
def test_a_broker_that_knows_only_older_versions_of_api_versions():
    with ScriptedBroker() as broker:
        broker.versions["api_versions"] = (0, 2)
        opened = yield connect(broker)
        yield opened.send(ask())
        assert [call.version for call in broker.seen("api_versions")][1:] == [2]
        assert len(broker.connections) == 1
        opened.close()


@on_loop()
def test_api_versions_refused_with_a_bare_version_0_body():
    with ScriptedBroker() as broker:
        # Kafka 0.10 to 2.3 say nothing but "unsupported version", whatever was asked.
        broker.on("api_versions", [Body(struct.pack(">hi", 35, 0))])
        opened = yield connect(broker)
        assert [call.version for call in broker.seen("api_versions")][1:] == [0]
        assert named((yield opened.send(ask()))) == ["t"]
        assert len(broker.connections) == 1
        opened.close()


@on_loop()
def test_a_broker_that_always_refuses_api_versions():
    with ScriptedBroker() as broker:
        broker.on("api_versions", Body(struct.pack(">hi", 35, 0)))
        error = yield failure(connect(broker))
        assert "UNSUPPORTED_VERSION" in str(error)
        assert len(broker.seen("api_versions")) < 10


@on_loop()
def test_one_hang_up_during_the_handshake_doesnt_mark_a_broker_as_old():
    with ScriptedBroker() as broker:
        broker.on("api_versions", [HangUp()])
        opened = yield connect(broker)
        assert opened.versions[InitProducerIdRequest.key] == scripted.KAFKA_4_4["init_producer_id"]
        assert len(broker.connections) == 2
        opened.close()


@on_loop()
def test_a_broker_that_hangs_up_on_api_versions_is_asked_something_older():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.versions["metadata"] = (0, 0)
        broker.on("api_versions", HangUp())
        opened = yield connect(broker)
        assert named((yield opened.send(ask()))) == ["t"]
        error = yield failure(opened.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)))
        assert isinstance(error, UnsupportedVersionError)
        assert "init_producer_id" in str(error) and "Kafka 0.11 or later is needed" in str(error)
        opened.close()


@on_loop()
def test_an_unsupported_version_names_the_api_both_ranges_and_the_kafka_that_is_needed():
    with ScriptedBroker() as broker:
        broker.versions["produce"] = (0, 2)
        opened = yield connect(broker)
        request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=1000, topic_data=[])
        error = yield failure(opened.send(request))
        assert isinstance(error, UnsupportedVersionError)
        for part in ("produce", "0 to 2", "3 to 12", "Kafka 0.11", broker.address):
            assert part in str(error)
        assert named((yield opened.send(ask()))) == ["t"]
        opened.close()


@on_loop()
def test_a_broker_that_is_too_new():
    with ScriptedBroker() as broker:
        broker.versions["metadata"] = (90, 99)
        opened = yield connect(broker)
        error = yield failure(opened.send(ask()))
        assert isinstance(error, UnsupportedVersionError)
        assert "90 to 99" in str(error) and "newer kiel" in str(error)
        opened.close()


@pytest.mark.parametrize("answer, hint", [
    (Frame(scripted.TLS_ALERT, hang_up=True), "TLS"), (Frame(scripted.HTTP_ANSWER, hang_up=True), "HTTP")
])
@on_loop()
def test_a_port_that_speaks_something_else(answer, hint, logbook):
    with ScriptedBroker() as broker:
        broker.on("api_versions", answer)
        error = yield failure(connect(broker))
        assert hint in str(error)
        logbook.allow(broker.address)


@on_loop()
def test_a_port_that_accepts_and_never_answers():
    with ScriptedBroker() as broker:
        broker.on("connect", Never())
        began = time.time()
        error = yield failure(connect(broker))
        assert isinstance(error, BrokerConnectionError) and error.stage == "handshake"
        assert time.time() - began < 3 * SETTINGS.connect_timeout + 0.5
        yield until(lambda: broker.open_connections == 0)


@on_loop()
def test_a_broker_that_hangs_up_at_once():
    with ScriptedBroker() as broker:
        broker.on("connect", HangUp())
        error = yield failure(connect(broker))
        assert isinstance(error, BrokerConnectionError)
        assert len(broker.connections) <= 3


@on_loop()
def test_a_broker_that_refuses_connections():
    with ScriptedBroker() as broker:
        broker.down()
        error = yield failure(connect(broker))
        assert isinstance(error, BrokerConnectionError)
        assert error.stage == "connect" and "refused" in str(error)


# -- throttling (KIP-219)


@on_loop()
def test_throttle_time_is_waited_for_where_the_broker_leaves_that_to_the_client():
    with ScriptedBroker() as broker:
        broker.versions["metadata"] = (0, 6)
        opened = yield connect(broker, PATIENT)
        broker.throttle_ms = 300
        yield opened.send(ask())
        broker.throttle_ms = 0
        yield [opened.send(ask("a")), opened.send(ask("b"))]
        first, second, third = broker.seen("metadata")
        assert 0.28 < second.time - first.time < 1
        assert [named_in(call) for call in (second, third)] == [["a"], ["b"]]
        opened.close()


def named_in(call):
    return [topic.name for topic in call.body.topics]


@on_loop()
def test_throttle_time_is_not_waited_for_below_that():
    with ScriptedBroker() as broker:
        broker.versions["metadata"] = (0, 5)
        opened = yield connect(broker, PATIENT)
        broker.throttle_ms = 3000
        yield opened.send(ask())
        began = time.time()
        yield opened.send(ask())
        assert time.time() - began < 1
        opened.close()


@on_loop()
def test_a_request_behind_a_throttle_still_has_its_time_out():
    with ScriptedBroker() as broker:
        opened = yield connect(broker)
        broker.throttle_ms = 2 ** 31 - 1
        yield opened.send(ask())
        began = time.time()
        error = yield failure(opened.send(ask()))
        assert isinstance(error, RequestTimeoutError)
        assert time.time() - began < 2


@on_loop()
def test_a_connection_closed_while_throttled():
    with ScriptedBroker() as broker:
        opened = yield connect(broker)
        broker.throttle_ms = 200
        yield opened.send(ask())
        asked = opened.send(ask())
        opened.close()
        assert isinstance((yield failure(asked)), BrokerConnectionError)
        yield gen.sleep(0.25)
        assert len(broker.seen("metadata")) == 1


# -- names and addresses


@contextlib.contextmanager
def resolver(monkeypatch, answer):
    """The world's resolver says `answer(host)`, a list of addresses, for the name "broker.test"."""
    genuine = socket.getaddrinfo
    threads = set()

    def getaddrinfo(host, port, *args, **kwargs):
        if host != "broker.test":
            return genuine(host, port, *args, **kwargs)
        threads.add(threading.current_thread())
        found = []
        for address in answer():
            found.extend(genuine(address, port, 0, socket.SOCK_STREAM))
        return found

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield threads


@on_loop()
def test_a_name_whose_first_address_refuses(monkeypatch):
    with ScriptedBroker() as broker:
        with resolver(monkeypatch, lambda: ["::1", "127.0.0.1"]):
            opened = yield connection.connect("broker.test", broker.port, SETTINGS, set())
            assert named((yield opened.send(ask()))) == ["t"]
            opened.close()


@pytest.mark.parametrize("port", [-1, 0, 65536, 2 ** 31 - 1])
@on_loop()
def test_an_advertised_port_that_can_not_be(port):
    error = yield failure(connection.connect("127.0.0.1", port, PATIENT, set()))
    assert isinstance(error, BrokerConnectionError) and error.stage == "resolve"


@on_loop()
def test_an_address_that_is_one_already_needs_no_resolver(monkeypatch):
    def resolve(*_):
        raise AssertionError("a resolver was asked")

    with ScriptedBroker() as broker:
        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        opened = yield connect(broker)
        opened.close()


@on_loop()
def test_an_ipv6_address():
    with ScriptedBroker(host="::1") as broker:
        opened = yield connect(broker)
        assert opened.address == broker.address
        opened.close()


@on_loop()
def test_a_resolver_that_takes_3_seconds_doesnt_hold_the_loop(monkeypatch):
    def slow():
        time.sleep(3)
        return ["127.0.0.1"]

    with ScriptedBroker() as broker:
        with resolver(monkeypatch, slow) as threads:
            ticker = Ticker()
            opened = yield connection.connect("broker.test", broker.port, PATIENT, set())
            yield ticker.stop()
            assert ticker.gap < 0.25
            assert threads and threading.current_thread() not in threads
            opened.close()


@on_loop()
def test_a_resolver_that_takes_too_long(monkeypatch):
    release, released = threading.Event(), threading.Event()

    def answer():
        release.wait(5)
        released.set()
        return []

    try:
        with resolver(monkeypatch, answer):
            began = time.time()
            error = yield failure(connection.connect("broker.test", 9092, SETTINGS, set()))
            assert time.time() - began < 1
            assert isinstance(error, BrokerConnectionError)
            assert error.stage == "resolve" and error.address == "broker.test:9092"
    finally:
        release.set()
    # The resolver's thread hands its answer to the loop, which has to be there still.
    yield until(released.is_set)
    yield gen.sleep(0.1)


@pytest.mark.parametrize("host", [u"no-such-host.invalid", u"a" * 70, u"a..b", u"caf\u00e9\u2603." + u"x" * 300])
@on_loop()
def test_a_name_that_cant_be_resolved(host):
    error = yield failure(connection.connect(host, 9092, PATIENT, set()))
    assert isinstance(error, BrokerConnectionError)
    assert error.stage == "resolve"


@on_loop()
def test_responses_are_given_on_the_loops_thread():
    with ScriptedBroker() as broker:
        opened = yield connect(broker)
        where = []
        asked = opened.send(ask())
        asked.add_done_callback(lambda _: where.append((threading.current_thread(), IOLoop.current())))
        yield asked
        yield gen.sleep(0)
        assert where == [(threading.current_thread(), IOLoop.current())]
        opened.close()


class _ResolvesAtOnce(object):
    def resolve(self, host, port, family=socket.AF_UNSPEC):
        future = Future()
        future.set_result([(socket.AF_INET, (host, port))])
        return future


@pytest.mark.parametrize("resolver_class", [tcpclient.Resolver, _ResolvesAtOnce])
@on_loop()
def test_a_connection_can_be_closed_at_any_time_and_leaves_no_socket(resolver_class, monkeypatch):
    monkeypatch.setattr(tcpclient, "Resolver", resolver_class)
    with ScriptedBroker() as broker:
        for turns in range(30):
            alive = set()
            opening = connection.connect(broker.host, broker.port, PATIENT, alive)
            for _ in range(turns):
                yield gen.moment
            closed = list(alive)
            for each in closed:
                each.close()
            result = yield outcome(opening)
            assert isinstance(result, BrokerConnectionError) or result in closed
            assert alive == set()
            yield until(lambda: broker.open_connections == 0)
            yield gen.sleep(0.01)
            assert broker.open_connections == 0
