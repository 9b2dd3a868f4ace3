"""What all clients share: settings, the cluster, and the dispatch of responses to their handlers."""
import logging
import os
import random

from tornado import gen, ioloop
from tornado.concurrent import Future

from kiel import __version__, backoff, futures, settings
from kiel.cluster import Cluster
from kiel.connection import Settings
from kiel.exc import (
    BrokerConnectionError,
    ClosedError,
    DeadlineError,
    KielError,
    ProtocolError,
    UnhandledResponseError,
    UsageError,
)

log = logging.getLogger(__name__)


class Client(object):
    """A client of one cluster, on the IOLoop that is current when it connects.

    :param brokers: where to start from: "host:port,host:port" or a list of "host:port" (IPv6 as "[::1]:9092")
    :param client_id: the name that brokers log and set quotas by
    :param request_timeout_ms: how long a response may take before its connection is given up
    :param connect_timeout_ms: how long it may take to connect, handshake included
    :param api_timeout_ms: how long a call that needs several requests goes on trying (offsets, metadata)
    :param reconnect_backoff_ms: the wait after a failed connect, doubled each time
        up to `reconnect_backoff_max_ms`
    :param retry_backoff_ms: the wait before a request is tried again, doubled each time
        up to `retry_backoff_max_ms`
    :param metadata_max_age_ms: how old metadata may become before it is asked for anew
    """

    def __init__(
        self,
        brokers,
        client_id="kiel",
        request_timeout_ms=30000,
        connect_timeout_ms=10000,
        api_timeout_ms=60000,
        reconnect_backoff_ms=50,
        reconnect_backoff_max_ms=1000,
        retry_backoff_ms=100,
        retry_backoff_max_ms=1000,
        metadata_max_age_ms=300000,
    ):
        self.brokers = settings.addresses("brokers", brokers)
        self.client_id = client_id
        self.request_timeout_ms = settings.number("request_timeout_ms", request_timeout_ms, 1)
        self.connect_timeout_ms = settings.number("connect_timeout_ms", connect_timeout_ms, 1)
        self.api_timeout_ms = settings.number("api_timeout_ms", api_timeout_ms, 1)
        self.reconnect_backoff_ms = settings.number("reconnect_backoff_ms", reconnect_backoff_ms, 1)
        self.reconnect_backoff_max_ms = settings.number("reconnect_backoff_max_ms", reconnect_backoff_max_ms, 1)
        self.retry_backoff_ms = settings.number("retry_backoff_ms", retry_backoff_ms, 1)
        self.retry_backoff_max_ms = settings.number("retry_backoff_max_ms", retry_backoff_max_ms, 1)
        self.metadata_max_age_ms = settings.number("metadata_max_age_ms", metadata_max_age_ms, 1000)
        self.cluster = None
        self.loop = None
        self.closing = False
        self.heal_cluster = False
        self._process = None
        self._is_connected = False
        self._tasks = set()
        self._close_ended = None
        self._closing_bell = futures.Bell()

    @gen.coroutine
    def connect(self):
        """Reach the cluster; NoBrokersError lists each broker's address with the reason that it can't be reached."""
        if self.cluster is not None or self.closing:
            raise UsageError("this %s was connected before; make a new one" % type(self).__name__)
        self.loop = ioloop.IOLoop.current()
        self._process = os.getpid()
        cluster = Cluster(
            self.brokers,
            Settings(
                self.client_id, __version__, self.request_timeout_ms / 1000.0, self.connect_timeout_ms / 1000.0
            ),
            reconnect_delay=self._reconnect_delay,
            retry_delay=self.backoff,
            max_age=self.metadata_max_age_ms / 1000.0,
        )
        self.cluster = cluster
        try:
            yield cluster.start()
        except KielError:
            cluster.stop()
            if not self.closing:
                self.cluster = None
            raise
        self._is_connected = True

    @gen.coroutine
    def close(self, timeout_ms=30000):
        """Finish what is under way and give back every socket and task; a second call waits for the first one's end.

        DeadlineError if that takes longer than `timeout_ms`: all is given back then too.
        """
        settings.number("timeout_ms", timeout_ms)
        if self.closing:
            yield self._close_ended
            return
        self.closing, self._close_ended = True, Future()
        try:
            if self.cluster is not None:
                yield futures.within(timeout_ms / 1000.0, self.wind_down())
        except gen.TimeoutError:
            raise DeadlineError("%s could not finish its work within %d ms" % (type(self).__name__, timeout_ms))
        finally:
            self._closing_bell.ring()
            if self.cluster is not None:
                yield self.cluster.stop()
            yield futures.ended(list(self._tasks))
            self._close_ended.set_result(None)

    @gen.coroutine
    def wind_down(self):
        """What a client has to do before its connections close."""

    def check_usable(self):
        """UsageError unless the client is connected, open, and in the process that connected it."""
        if self.closing:
            self._check_process()
            raise ClosedError("this %s is closed" % type(self).__name__)
        self._check_connected()

    def _check_process(self):
        if self._process is not None and self._process != os.getpid():
            raise UsageError(
                "this %s was connected before a fork: make one in each process instead" % type(self).__name__
            )

    def _check_connected(self):
        self._check_process()
        if not self._is_connected:
            raise UsageError("this %s isn't connected: yield its connect() first" % type(self).__name__)
        if self.cluster.stopped:
            raise ClosedError("this %s is closed" % type(self).__name__)

    def spawn(self, task):
        """Look after a Future that nobody waits for: close() waits for its end, and an error is logged."""
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task):
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            log.error("%s: a background task failed: %r", type(self).__name__, error, exc_info=_exc_info(error))

    def rest(self, seconds):
        """A Future that ends after `seconds`, or when the client closes."""
        return self._closing_bell.wait(0 if self.closing else seconds)

    def backoff(self, attempt):
        """Seconds to wait before a request is tried again after failure number `attempt` (from 0)."""
        return backoff.delay(attempt, self.retry_backoff_ms, self.retry_backoff_max_ms, random.random()) / 1000.0

    def _reconnect_delay(self, attempt):
        return (
            backoff.delay(attempt, self.reconnect_backoff_ms, self.reconnect_backoff_max_ms, random.random()) / 1000.0
        )

    @gen.coroutine
    def send(self, requests, timeout_ms=None):
        """Send {broker_id: request} and give {broker_id: result}.

        Each response goes to this client's ``handle_<api>_response(response)`` as it comes in, with
        ``response.request`` and ``response.broker_id`` set; the result is what that returns. Where there is no
        response, the result is the KielError that says why; where Kafka sends none (produce with acks=0), it is None.
        After the last one, the cluster is healed if a handler set ``heal_cluster`` or a broker couldn't be reached.

        `timeout_ms` stands in for ``request_timeout_ms``. UnhandledResponseError if there is no such handler,
        UsageError before connect(), after close() and in a forked child.
        """
        self._check_connected()
        for request in requests.values():
            self._handler(request)
        asked = {broker_id: self._ask(broker_id, request, timeout_ms) for broker_id, request in requests.items()}
        results = yield asked
        if self.heal_cluster:
            self.heal_cluster = False
            yield self.cluster.heal()
        raise gen.Return(results)

    @gen.coroutine
    def _ask(self, broker_id, request, timeout_ms):
        try:
            connection = yield self.cluster.connection(broker_id)
            response = yield connection.send(request, timeout_ms)
        except (BrokerConnectionError, ProtocolError) as error:
            self.heal_cluster = True
            raise gen.Return(error)
        except KielError as error:
            raise gen.Return(error)
        if response is None:
            return
        response.broker_id = broker_id
        raise gen.Return(self._handler(request)(response))

    def _handler(self, request):
        name = "handle_%s_response" % request.api
        handler = getattr(self, name, None)
        if handler is None:
            raise UnhandledResponseError("%s has no method %s" % (type(self).__name__, name))
        return handler


def _exc_info(error):
    return (type(error), error, getattr(error, "__traceback__", None))
