"""One connection to one broker: the socket, the handshake, requests in flight and their time-outs.

A Connection lives as long as its socket. It starts in "new", ends in "broken" and never comes back: whoever needs
the broker again makes another one. All that ends it goes through ``_fail``, which keeps the cause and gives it to
everyone who waits; a response can thus never reach a request that it wasn't meant for.
"""
import collections
import logging
import socket

from tornado import gen, ioloop, iostream, tcpclient
from tornado.concurrent import Future

from kiel import constants, futures
from kiel.exc import (
    BrokerConnectionError,
    KielError,
    ProtocolError,
    RequestTimeoutError,
    UnsupportedVersionError,
)
from kiel.protocol import errors
from kiel.protocol.api_versions import ApiVersionsRequest
from kiel.protocol.conversation import Conversation
from kiel.protocol.metadata import MetadataRequest

log = logging.getLogger(__name__)

# The one table of a connection's life. Anything else is a fault in kiel.
TRANSITIONS = {
    ("new", "open"): "connecting",
    ("connecting", "connected"): "handshaking",
    ("handshaking", "agreed"): "ready",
    ("new", "fail"): "broken",
    ("connecting", "fail"): "broken",
    ("handshaking", "fail"): "broken",
    ("ready", "fail"): "broken",
}

# Kafka 0.8 and 0.9 have no ApiVersions request; of what kiel sends, this is what they understand.
VERSIONS_BEFORE_API_VERSIONS = {MetadataRequest.key: (0, 0)}

Settings = collections.namedtuple("Settings", ("client_id", "client_version", "request_timeout", "connect_timeout"))
Settings.__new__.__defaults__ = ("kiel", "", 30.0, 10.0)

_Waiting = collections.namedtuple("_Waiting", ("future", "deadline", "request", "version"))


@gen.coroutine
def connect(host, port, settings, alive):
    """A Connection that is ready for requests; BrokerConnectionError says at which stage it failed.

    It is in the set `alive` until it breaks, from the first attempt on, so that the set's owner can close it any time.
    A broker that hangs up on the ApiVersions request is asked once more on a new socket, since that may have been
    chance. If it does so again it may be older than Kafka 0.10: it is then asked, on a third socket, something that
    those know.
    """
    deadline = ioloop.IOLoop.current().time() + settings.connect_timeout
    for probe in (_ask_versions, _ask_versions, _ask_metadata):
        connection = Connection(host, port, settings)
        alive.add(connection)
        connection.on_fail.append(alive.discard)
        try:
            yield connection.open(probe, deadline)
            raise gen.Return(connection)
        except BrokerConnectionError as error:
            hung_up = error.stage == "handshake" and not isinstance(error, RequestTimeoutError)
            if not hung_up:
                raise
            reason = error.reason
        except ProtocolError as error:
            raise BrokerConnectionError(connection.address, "handshake", str(error))
    hint = "; a port that speaks TLS does so, or one that isn't Kafka's"
    raise BrokerConnectionError(connection.address, "handshake", reason + hint)


@gen.coroutine
def _ask_versions(connection):
    request = ApiVersionsRequest(
        client_software_name="kiel", client_software_version=connection.settings.client_version
    )
    version = ApiVersionsRequest.versions[1]
    response = yield connection.transmit(request, version)
    if response.error_code == errors.named("UNSUPPORTED_VERSION").code:
        offered = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        low, high = offered.get(ApiVersionsRequest.key, (0, 0))
        response = yield connection.transmit(request, max(low, min(high, version - 1)))
    if response.error_code:
        raise errors.exception(response.error_code, about="the API versions of %s" % connection.address)
    raise gen.Return({api.api_key: (api.min_version, api.max_version) for api in response.api_keys})


@gen.coroutine
def _ask_metadata(connection):
    yield connection.transmit(MetadataRequest(topics=[]), 0)
    raise gen.Return(VERSIONS_BEFORE_API_VERSIONS)


class Connection(object):
    """``state`` is a state of TRANSITIONS, ``cause`` the error that broke it, ``versions`` {api key: (low, high)}."""

    def __init__(self, host, port, settings):
        self.host, self.port, self.settings = host, port, settings
        self.address = "[%s]:%d" % (host, port) if ":" in host else "%s:%d" % (host, port)
        self.state = "new"
        self.cause = None
        self.versions = {}
        self.on_fail = []
        self._loop = ioloop.IOLoop.current()
        self._stream = None
        self._opening = None
        self._conversation = Conversation(settings.client_id)
        self._in_flight = collections.OrderedDict()
        self._timer = None
        self._timer_due = None
        self._muted_until = 0
        self._muted = collections.deque()

    def __repr__(self):
        return "<Connection %s %s>" % (self.address, self.state)

    @property
    def pending(self):
        """How many requests wait for their response, or to be sent."""
        return len(self._in_flight) + len(self._muted)

    @property
    def _stage(self):
        return "handshake" if self.state == "handshaking" else "read"

    @gen.coroutine
    def open(self, probe, deadline):
        """Connect, and learn by `probe` which versions the broker speaks, until `deadline` (the loop's time)."""
        self._move("open")
        try:
            addresses = yield self._resolve_host(deadline)
            self._check_unbroken()
            yield self._reach(addresses, deadline)
            self._check_unbroken()
            self._stream.set_nodelay(True)
            self._move("connected")
            self._read()
            self.versions = yield futures.within(deadline - self._loop.time(), probe(self))
            self._check_unbroken()
            self._move("agreed")
        except gen.TimeoutError:
            self._fail(RequestTimeoutError(self.address, "handshake", "no answer to the handshake in time"))
            raise self.cause
        except KielError as error:
            self._fail(error)
            raise self.cause

    @gen.coroutine
    def _resolve_host(self, deadline):
        if not 0 < self.port < 65536:
            raise BrokerConnectionError(self.address, "resolve", "it has a port that can't be")
        known = _as_it_is(self.host, self.port)
        if known is not None:
            raise gen.Return([known])
        try:
            resolving = gen.convert_yielded(
                tcpclient.Resolver().resolve(self.host, self.port, socket.AF_UNSPEC)
            )
            found = yield futures.within(deadline - self._loop.time(), self._unless_it_fails(resolving))
        except gen.TimeoutError:
            raise BrokerConnectionError(self.address, "resolve", "its name was not resolved in time")
        except (IOError, UnicodeError) as error:
            raise BrokerConnectionError(self.address, "resolve", "its name can't be resolved: %s" % error)
        raise gen.Return(found)

    @gen.coroutine
    def _reach(self, addresses, deadline):
        client = tcpclient.TCPClient(resolver=_Resolved(addresses))
        try:
            connecting = gen.convert_yielded(
                client.connect(
                    self.host,
                    self.port,
                    max_buffer_size=2 * constants.MAX_FRAME_BYTES,
                    timeout=max(0.001, deadline - self._loop.time()),
                )
            )
            connecting.add_done_callback(self._connected)
            yield self._unless_it_fails(connecting)
        except gen.TimeoutError:
            raise BrokerConnectionError(self.address, "connect", "no connection in time")
        except (IOError, iostream.StreamClosedError) as error:
            reason = getattr(error, "real_error", None) or error
            raise BrokerConnectionError(self.address, "connect", "it can't be reached: %s" % reason)

    def _unless_it_fails(self, future):
        """`future`, or the cause as soon as the connection fails: a resolver can't be told to stop."""
        self._opening = Future()
        _pass_on(future, self._opening)
        return self._opening

    def _connected(self, connecting):
        """Have the stream at once, whoever is to go on with it, so that nothing can end the connection without it."""
        if connecting.cancelled() or connecting.exception() is not None:
            return
        self._stream = connecting.result()
        if self.state == "broken":
            self._stream.close()

    def _check_unbroken(self):
        if self.state == "broken":
            raise self.cause

    def version_for(self, request):
        """The highest version of `request` that both sides speak; UnsupportedVersionError if there is none."""
        low, high = request.versions
        theirs = self.versions.get(request.key)
        if theirs and max(low, theirs[0]) <= min(high, theirs[1]):
            return min(high, theirs[1])
        if theirs and theirs[0] > high:
            advice = "a newer kiel is needed"
        else:
            advice = "Kafka %s or later is needed" % request.kafka
        raise UnsupportedVersionError(
            "broker at %s and kiel share no version of %s: the broker speaks %s, kiel %d to %d; %s"
            % (self.address, request.api, "%d to %d" % theirs if theirs else "none", low, high, advice)
        )

    def send(self, request, timeout_ms=None):
        """Send `request` and give a Future of its response (of None, once it is written, where Kafka answers nothing).

        `timeout_ms` stands in for the connection's own time-out. Requests leave in the order of the calls.
        """
        try:
            if self.state != "ready":
                raise self.cause or BrokerConnectionError(self.address, "closed", "the connection isn't open")
            version = self.version_for(request)
        except KielError as error:
            future = Future()
            future.set_exception(error)
            return future
        deadline = self._deadline(timeout_ms)
        if self._muted or self._loop.time() < self._muted_until:
            return self._send_later(request, version, deadline)
        return self.transmit(request, version, deadline)

    def _deadline(self, timeout_ms=None):
        return self._loop.time() + (self.settings.request_timeout if timeout_ms is None else timeout_ms / 1000.0)

    def _send_later(self, request, version, deadline):
        waiting = _Waiting(Future(), deadline, request, version)
        if not self._muted:
            self._loop.call_at(self._muted_until, self._unmute)
        self._muted.append(waiting)
        self._watch(deadline)
        return waiting.future

    def _unmute(self):
        if self.state != "ready":
            return
        if self._loop.time() < self._muted_until:
            self._loop.call_at(self._muted_until, self._unmute)
            return
        while self._muted:
            waiting = self._muted.popleft()
            _pass_on(self.transmit(waiting.request, waiting.version, waiting.deadline), waiting.future)

    def transmit(self, request, version, deadline=None):
        """Write `request` at `version` now, whatever the state of the handshake; `deadline` is the loop's time."""
        future = Future()
        try:
            correlation_id, data = self._conversation.send(request, version, answered=request.answered)
        except ProtocolError as error:
            future.set_exception(error)
            return future
        try:
            written = self._stream.write(data)
        except iostream.StreamClosedError as error:
            self._fail(self._hung_up(error))
            future.set_exception(self.cause)
            return future
        deadline = self._deadline() if deadline is None else deadline
        self._in_flight[correlation_id] = _Waiting(future, deadline, request, version)
        self._watch(deadline)
        if not request.answered:
            written.add_done_callback(lambda ended: self._written(ended, correlation_id))
        return future

    def _written(self, written, correlation_id):
        error = written.exception()
        if error is not None:
            self._fail(self._hung_up(error))
        elif correlation_id in self._in_flight:
            futures.resolve(self._in_flight.pop(correlation_id).future, None)

    @gen.coroutine
    def _read(self):
        try:
            while self.state != "broken":
                data = yield self._stream.read_bytes(self._conversation.wanted)
                for correlation_id, response in self._conversation.receive(data):
                    self._answer(correlation_id, response)
        except iostream.StreamClosedError as error:
            self._fail(self._hung_up(error))
        except ProtocolError as error:
            if self.state == "ready":
                log.warning("broker at %s: %s; the connection is closed", self.address, error)
            self._fail(error)
        except Exception as error:
            log.exception("broker at %s: a response could not be read; the connection is closed", self.address)
            self._fail(BrokerConnectionError(self.address, "read", "a response could not be read: %r" % error))

    def _answer(self, correlation_id, response):
        waiting = self._in_flight.pop(correlation_id)
        throttle = getattr(response, "throttle_time_ms", 0)
        since = waiting.request.throttle_from
        if throttle > 0 and since is not None and waiting.version >= since:
            self._muted_until = max(self._muted_until, self._loop.time() + throttle / 1000.0)
        futures.resolve(waiting.future, response)

    def _hung_up(self, error):
        reason = getattr(error, "real_error", None)
        return BrokerConnectionError(
            self.address, self._stage, "it closed the connection%s" % (": %s" % reason if reason else "")
        )

    def _watch(self, deadline):
        if self._timer is not None:
            if deadline >= self._timer_due:
                return
            self._loop.remove_timeout(self._timer)
        self._timer_due = deadline
        self._timer = self._loop.call_at(deadline, self._look_for_overdue)

    def _look_for_overdue(self):
        self._timer = None
        waiting = list(self._in_flight.values()) + list(self._muted)
        if not waiting:
            return
        first = min(waiting, key=lambda each: each.deadline)
        if first.deadline > self._loop.time():
            self._watch(first.deadline)
            return
        if first.request.answered:
            stage, reason = self._stage, "no answer to %s in time"
        else:
            stage, reason = "write", "%s could not be written in time"
        self._fail(RequestTimeoutError(self.address, stage, reason % first.request.api))

    def close(self):
        """End the connection; whatever still waits fails with BrokerConnectionError."""
        self._fail(BrokerConnectionError(self.address, "closed", "the client closed the connection"))

    def _fail(self, cause):
        if self.state == "broken":
            return
        self._move("fail")
        self.cause = cause
        if self._timer is not None:
            self._loop.remove_timeout(self._timer)
            self._timer = None
        if self._stream is not None:
            self._stream.close()
        if self._opening is not None:
            futures.reject(self._opening, cause)
        waiting = list(self._in_flight.values()) + list(self._muted)
        self._in_flight.clear()
        self._muted.clear()
        for each in waiting:
            futures.reject(each.future, cause)
        for callback in self.on_fail:
            callback(self)

    def _move(self, event):
        self.state = TRANSITIONS[self.state, event]


def _as_it_is(host, port):
    """(family, address) of a host that is an IP address already, or None: those need no resolver, and no thread."""
    for family, rest in ((socket.AF_INET, ()), (socket.AF_INET6, (0, 0))):
        try:
            socket.inet_pton(family, host)
        except (socket.error, ValueError, TypeError):
            continue
        return family, (host, port) + rest
    return None


class _Resolved(object):
    """Hands TCPClient the addresses that are known already, so that each stage has errors of its own."""

    def __init__(self, addresses):
        self._addresses = addresses

    def resolve(self, host, port, family=socket.AF_UNSPEC):
        future = Future()
        future.set_result(self._addresses)
        return future


def _pass_on(source, target):
    def settle(ended):
        error = ended.exception()
        if error is not None:
            futures.reject(target, error)
        else:
            futures.resolve(target, ended.result())

    source.add_done_callback(settle)
