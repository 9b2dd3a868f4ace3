"""A broker that a test scripts, on the test's own IOLoop: exact bytes, and every kind of bad behaviour.

    with ScriptedCluster(brokers=2) as cluster:
        cluster.topics = {"events": {0: 1, 1: 2}}
        first = cluster.brokers[0]
        first.on("metadata", [Error(5), Error(5)])      # its next two answers, and then as usual
        first.on("fetch", Late(0.5))                    # from now on
        first.on("produce", lambda call: HangUp())      # whatever a function of the request says
        ...
        assert len(first.seen("metadata")) == 3

An answer is a response, one of the classes below, None (what the broker would say unscripted), a function
of the Call that gives one of these, or a Future of one. A request that no Kafka could read fails the test when
its broker closes.
"""
import collections
import datetime
import socket
import struct

from tornado import gen, iostream, locks, netutil, tcpserver
from tornado.ioloop import IOLoop

from tests.support import answers
from tests.support.partition_log import PartitionLog

Call = collections.namedtuple("Call", ("api", "version", "body", "time", "connection", "correlation_id", "client_id"))


class Error(object):
    """The usual answer, with error `code` in it: for the (topic, partition) pairs or topics of `about`, or for all."""

    def __init__(self, code, about=None):
        self.code, self.about = code, about

    def covers(self, topic, partition=None):
        return self.about is None or topic in self.about or (topic, partition) in self.about


class HangUp(object):
    """Close the connection instead of answering."""


class Never(object):
    """Answer neither this request nor any later one of its connection."""


class Skip(object):
    """Leave this request out, and answer the later ones."""


class Late(object):
    """Give `answer` after `seconds`; what comes after it on the connection waits too, as with a real broker."""

    def __init__(self, seconds, answer=None):
        self.seconds, self.answer = seconds, answer


class WrongId(object):
    """Give `answer` with a correlation id that is `by` too high."""

    def __init__(self, by=1, answer=None):
        self.by, self.answer = by, answer


class Body(object):
    """Give exactly these bytes after the response's header."""

    def __init__(self, data):
        self.data = data


class Frame(object):
    """Write exactly these bytes, length prefix and all, and then hang up if told to."""

    def __init__(self, data, hang_up=False):
        self.data, self.hang_up = data, hang_up


# What Kafka's brokers list in their ApiVersions response, for the APIs that the broker here answers.
KAFKA_4_4 = {
    "produce": (0, 13), "fetch": (4, 18), "offset": (1, 11), "metadata": (0, 13), "api_versions": (0, 5),
    "init_producer_id": (0, 6),
}
KAFKA_2_0 = {
    "produce": (0, 6), "fetch": (0, 8), "offset": (0, 3), "metadata": (0, 6), "api_versions": (0, 2),
    "init_producer_id": (0, 1),
}
KAFKA_0_11 = {
    "produce": (0, 3), "fetch": (0, 5), "offset": (0, 2), "metadata": (0, 4), "api_versions": (0, 1),
    "init_producer_id": (0, 0),
}
KAFKA_0_10 = {"produce": (0, 2), "fetch": (0, 2), "offset": (0, 0), "metadata": (0, 1), "api_versions": (0, 0)}

# What a port that speaks TLS answers to a plain request: an alert, "protocol version".
TLS_ALERT = b"\x15\x03\x03\x00\x02\x02\x46"
HTTP_ANSWER = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"


def frame_of(answer, call, shift=0):
    """The bytes on the wire of a response or a Body; `shift` makes its correlation id wrong."""
    if isinstance(answer, Body):
        data = answer.data
    else:
        # A request in a version that the broker doesn't know is refused in version 0.
        data = answer.encode(call.version if call.body is not None else 0)
    header = struct.pack(">i", call.correlation_id + shift)
    response_class = answers.REQUESTS[answers.KEYS[call.api]].response
    if response_class.flexible_header and response_class.is_flexible(call.version):
        header += b"\0"
    return struct.pack(">i", len(header) + len(data)) + header + data


def at_offset(data, offset):
    """A batch with another base offset, which its checksum doesn't cover."""
    return struct.pack(">q", offset) + data[8:]


class ScriptedCluster(object):
    """`brokers` brokers, with ids from 1 on, that share topics and logs.

    ``topics`` is {topic: {partition: id of its leader, or None}}, ``topic_errors`` {topic: error code}; a topic
    that a client asks for by name is created where ``auto_create`` says with how many partitions;
    ``served_bytes`` counts what fetches brought.
    """

    def __init__(self, brokers=1, versions=KAFKA_4_4, host="127.0.0.1"):
        self.topics, self.topic_errors, self.auto_create = {}, {}, 0
        self.topic_ids, self.epochs, self.logs = {}, {}, {}
        self.next_producer_id, self.served_bytes = 1000, 0
        self.changed = locks.Condition()
        self.brokers = [ScriptedBroker(number + 1, versions, host, self) for number in range(brokers)]

    def __enter__(self):
        for broker in self.brokers:
            broker.up()
        return self

    def __exit__(self, kind, error, trace):
        for broker in self.brokers:
            broker.down()
        if error is None:
            assert [fault for broker in self.brokers for fault in broker.faults] == []

    @property
    def addresses(self):
        return [broker.address for broker in self.brokers]

    def log(self, topic, partition=0):
        return self.logs.setdefault((topic, partition), PartitionLog())

    def append(self, topic, partition, data):
        """Append batches to a log and wake the fetches that wait; gives (error code, base offset)."""
        outcome = self.log(topic, partition).append(data)
        self.changed.notify_all()
        return outcome

    def move(self, topic, partition, leader):
        """Elect another leader, in a new epoch."""
        self.topics[topic][partition] = leader
        self.epochs[topic, partition] = self.epochs.get((topic, partition), 0) + 1

    def delete(self, topic):
        del self.topics[topic]
        self.topic_ids.pop(topic, None)
        for kept in (self.logs, self.epochs):
            for key in [key for key in kept if key[0] == topic]:
                del kept[key]

    def seen(self, *apis):
        """The requests that came to any broker, in order of time."""
        return sorted((call for broker in self.brokers for call in broker.seen(*apis)), key=lambda call: call.time)


class ScriptedBroker(object):
    """One broker; made alone, it is a cluster of one, with that cluster's topics and logs.

    ``versions`` is {api: (lowest, highest)}; ``connections`` the times at which clients connected;
    ``most_waiting`` is {api: how many of its requests were unanswered at once on one connection};
    ``throttle_ms`` goes into every response that can say it; ``advertised`` is the (host, port) that metadata
    names.
    """

    def __init__(self, node_id=1, versions=KAFKA_4_4, host="127.0.0.1", cluster=None):
        self.node_id, self.host, self.versions = node_id, host, dict(versions)
        if cluster is None:
            cluster = ScriptedCluster(brokers=0)
            cluster.brokers.append(self)
        self.cluster = cluster
        self.rack, self.throttle_ms, self.advertised = None, 0, None
        self.port = None
        self.connections, self.faults, self._seen = [], [], []
        self.most_waiting = collections.Counter()
        self._next, self._always = collections.defaultdict(collections.deque), {}
        self._server, self._lines = None, []

    def __enter__(self):
        self.cluster.__enter__()
        return self

    def __exit__(self, *error):
        self.cluster.__exit__(*error)

    @property
    def address(self):
        return "%s:%d" % ("[%s]" % self.host if ":" in self.host else self.host, self.port)

    @property
    def topics(self):
        return self.cluster.topics

    @topics.setter
    def topics(self, topics):
        self.cluster.topics = topics

    @property
    def is_up(self):
        return self._server is not None

    @property
    def open_connections(self):
        return len(self._lines)

    def up(self):
        """Listen; a broker that was down listens at its old port again."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        sockets = netutil.bind_sockets(self.port or 0, self.host, family)
        self.port = sockets[0].getsockname()[1]
        self._server = _Server(self)
        self._server.add_sockets(sockets)

    def down(self):
        """Refuse connections, and close those that are open."""
        if self._server is not None:
            self._server.stop()
            self._server = None
        self.disconnect()

    def disconnect(self):
        """Close the open connections, as a broker does with idle ones."""
        for line in list(self._lines):
            line.close()

    def on(self, api, answer, times=None):
        """From now on, answer requests of `api` so; a list's answers once each, another `times` times, or for good.

        The API "connect" is the moment at which a client has connected.
        """
        if isinstance(answer, list):
            self._next[api].extend(answer)
        elif times is not None:
            self._next[api].extend([answer] * times)
        else:
            self._next[api].clear()
            self._always[api] = answer

    def seen(self, *apis):
        """The requests that came, as Calls, in order; of all APIs if none is named."""
        return [call for call in self._seen if not apis or call.api in apis]

    def scripted_left(self, api):
        """How many of the answers that were given for one request each are still to come."""
        return len(self._next[api])

    def usual(self, call, error=None):
        """What the broker answers unscripted: a response, or a Future of it."""
        return answers.USUAL[call.api](self, call, error)

    def scripted(self, api):
        if self._next[api]:
            return self._next[api].popleft()
        return self._always.get(api)

    def record(self, call, waiting):
        """Keep a request; its connection has `waiting` of that API unanswered."""
        self._seen.append(call)
        self.most_waiting[call.api] = max(self.most_waiting[call.api], waiting)


class _Server(tcpserver.TCPServer):
    def __init__(self, broker):
        super(_Server, self).__init__()
        self.broker = broker

    def handle_stream(self, stream, address):
        broker = self.broker
        broker.connections.append(IOLoop.current().time())
        line = _Line(broker, stream, len(broker.connections))
        broker._lines.append(line)
        return line.run()


class _Line(object):
    """One connection: reads requests as they come, and answers them one after the other."""

    def __init__(self, broker, stream, number):
        self.broker, self.stream, self.number = broker, stream, number
        self.calls, self.waiting = collections.deque(), collections.Counter()
        self.arrived, self.closed = locks.Condition(), False
        stream.set_nodelay(True)
        stream.set_close_callback(self.close)

    def close(self):
        if not self.closed:
            self.closed = True
            self.broker._lines.remove(self)
            self.stream.close()
            self.arrived.notify_all()
            self.broker.cluster.changed.notify_all()

    @gen.coroutine
    def run(self):
        try:
            yield self._give(self.broker.scripted("connect"), None)
            yield [self._read(), self._answer()]
        except iostream.StreamClosedError:
            self.close()

    @gen.coroutine
    def _read(self):
        try:
            while True:
                size, = struct.unpack(">i", (yield self.stream.read_bytes(4)))
                call = self._parse((yield self.stream.read_bytes(size)))
                self.waiting[call.api] += 1
                self.broker.record(call, self.waiting[call.api])
                self.calls.append(call)
                self.arrived.notify_all()
        except iostream.StreamClosedError:
            self.close()
        except Exception as error:
            # Nothing is raised into the loop: the test hears of it as a fault, and the client as any broken one.
            self.broker.faults.append("%s: %s" % (type(error).__name__, error))
            self.close()

    def _parse(self, data):
        key, version, correlation_id = struct.unpack_from(">hhi", data)
        request_class = answers.REQUESTS[key]
        at, client_id = 8, None
        length, = struct.unpack_from(">h", data, at)
        at += 2
        if length >= 0:
            client_id, at = data[at:at + length].decode("utf-8"), at + length
        if request_class.is_flexible(version):
            assert data[at:at + 1] == b"\0", "tagged fields in a request's header"
            at += 1
        lowest, highest = self.broker.versions[request_class.api]
        if lowest <= version <= highest:
            body = request_class.decode(data[at:], version)
        else:
            # Only ApiVersions may be asked in a version that the broker doesn't know.
            assert request_class.api == "api_versions", "%s version %d" % (request_class.api, version)
            body = None
        time = IOLoop.current().time()
        return Call(request_class.api, version, body, time, self.number, correlation_id, client_id)

    @gen.coroutine
    def _answer(self):
        try:
            while not self.closed:
                while self.calls and not self.closed:
                    call = self.calls.popleft()
                    yield self._give(self.broker.scripted(call.api), call)
                    self.waiting[call.api] -= 1
                if not self.closed:
                    yield self.arrived.wait()
        except iostream.StreamClosedError:
            self.close()
        except Exception as error:
            self.broker.faults.append("%s: %s" % (type(error).__name__, error))
            self.close()

    @gen.coroutine
    def _give(self, answer, call, shift=0):
        while True:
            if callable(answer):
                answer = answer(call)
            elif isinstance(answer, Late):
                yield self._pause(answer.seconds)
                answer = answer.answer
            elif isinstance(answer, WrongId):
                answer, shift = answer.answer, answer.by
            elif isinstance(answer, Error):
                answer = self.broker.usual(call, answer)
            elif answer is None and call is not None:
                answer = self.broker.usual(call)
                if answer is None:
                    return
            elif gen.is_future(answer):
                answer = yield answer
            else:
                break
        yield self._carry_out(answer, call, shift)

    @gen.coroutine
    def _carry_out(self, answer, call, shift):
        if answer is None or isinstance(answer, Skip):
            return
        if isinstance(answer, HangUp):
            self.close()
        elif isinstance(answer, Never):
            yield self._ignore(call)
        elif isinstance(answer, Frame):
            yield self.stream.write(answer.data)
            if answer.hang_up:
                self.close()
        else:
            if hasattr(answer, "throttle_time_ms") and self.broker.throttle_ms:
                answer.throttle_time_ms = self.broker.throttle_ms
            yield self.stream.write(frame_of(answer, call, shift))

    @gen.coroutine
    def _ignore(self, call):
        if call is None:
            # Nothing reads requests yet, and a stream that nobody reads doesn't hear of its end.
            yield self.stream.read_until_close()
        while not self.closed:
            yield self.arrived.wait()

    @gen.coroutine
    def _pause(self, seconds):
        """Wait, but no longer than the connection is open, so that nothing is left when the broker goes down."""
        until = IOLoop.current().time() + seconds
        while not self.closed and IOLoop.current().time() < until:
            yield self.arrived.wait(datetime.timedelta(seconds=until - IOLoop.current().time()))
        if self.closed:
            raise iostream.StreamClosedError()
