"""The cluster as this client knows it: brokers, the leaders of the topics in use, and one connection a broker."""
import collections
import logging

from tornado import gen, ioloop

from kiel import connection, futures
from kiel.exc import (
    LONGEST_TOPIC,
    BrokerConnectionError,
    BrokerError,
    DeadlineError,
    KielError,
    NoBrokersError,
    UnknownTopicError,
    place_of,
    text_of,
)
from kiel.protocol import errors
from kiel.protocol.metadata import MetadataRequest, MetadataRequestTopic

log = logging.getLogger(__name__)

# A bootstrap address that hasn't answered after this many seconds gets company from the next one.
STAGGER = 1.0

# How often metadata may be asked for in any one second, however many retries want it.
REFRESHES_PER_SECOND = 10

# A broker that is out of reach for so many seconds is worth a log line: its partitions wait, and nothing else tells.
AWAY_SECONDS = 30.0

Broker = collections.namedtuple("Broker", ("id", "host", "port", "rack"))

# ``leader`` is None while there is none; ``leader_epoch`` is -1 where the broker doesn't tell.
Partition = collections.namedtuple("Partition", ("leader", "leader_epoch", "replicas", "isr"))


class Cluster(object):
    """Metadata of just the topics that are asked for, kept fresh, and connections that are opened when needed.

    :param addresses: [(host, port)] to start from; they are used again whenever no known broker answers
    :param settings: what each connection needs (kiel.connection.Settings)
    :param reconnect_delay: attempt -> seconds to wait before connecting again to a broker that couldn't be reached
    :param retry_delay: attempt -> seconds to wait before asking again for a topic that isn't ready
    :param max_age: seconds after which metadata is asked for anew
    """

    def __init__(self, addresses, settings, reconnect_delay, retry_delay, max_age):
        self.brokers = {}
        self.topics = {}
        self.topic_errors = {}
        self.topic_ids = {}
        self.controller_id = None
        self.cluster_id = None
        self.auto_create = False
        self.on_change = []
        self._addresses = addresses
        self._settings = settings
        self._reconnect_delay = reconnect_delay
        self._retry_delay = retry_delay
        self._max_age = max_age
        self._loop = ioloop.IOLoop.current()
        self._tracked = set()
        self._connections = {}
        self._alive = set()
        self._opening = {}
        self._reached = set()
        self._failures = collections.Counter()
        self._away_since = {}
        self._told_away = set()
        self._retry_at = {}
        self._refreshing = None
        self._refreshes = collections.deque(maxlen=REFRESHES_PER_SECOND)
        self._aging = None
        self.stopped = False
        self._stopping = futures.Bell()
        self._unreachable = False

    @gen.coroutine
    def start(self):
        """Reach one of the brokers and learn of the others; NoBrokersError tells why each address failed."""
        yield self.refresh()

    def stop(self):
        """Close every connection; whatever waits on one fails. A Future of the end of all that was under way here."""
        self.stopped = True
        self._stopping.ring()
        if self._aging is not None:
            self._loop.remove_timeout(self._aging)
        for each in list(self._alive):
            each.close()
        under_way = list(self._opening.values())
        if self._refreshing is not None:
            under_way.append(self._refreshing)
        return futures.ended(under_way)

    def leader(self, topic, partition):
        """The id of the broker that leads the partition, or None if that isn't known or there is none."""
        found = self.topics.get(topic, {}).get(partition)
        return found.leader if found is not None else None

    def api_versions(self, broker_id, key):
        """(lowest, highest) version of the API that the broker speaks; None if it doesn't, or isn't connected."""
        found = self._connections.get(broker_id)
        return found.versions.get(key) if found is not None else None

    # -- metadata

    @gen.coroutine
    def topic(self, name, timeout_ms):
        """{partition: Partition} of a topic, which is tracked from then on.

        A topic that the broker refuses raises its BrokerError at once (InvalidTopicError, AuthorizationError); one that
        doesn't exist, or isn't ready, after `timeout_ms` (UnknownTopicError, or DeadlineError with the last failure).
        """
        _check_name(name)
        self._tracked.add(name)
        deadline = self._loop.time() + timeout_ms / 1000.0
        attempt, cause = 0, None
        while name not in self.topics:
            # A refusal from before isn't raised unasked: it may have been lifted since.
            try:
                yield futures.within(deadline - self._loop.time(), self.refresh())
                cause = self.topic_errors.get(name)
            except gen.TimeoutError:
                raise self._not_ready(name, timeout_ms, cause)
            except NoBrokersError as failure:
                cause = failure
            if name in self.topics:
                break
            if isinstance(cause, BrokerError) and not cause.retriable:
                raise cause
            pause = self._retry_delay(attempt)
            attempt += 1
            if self._loop.time() + pause > deadline:
                raise self._not_ready(name, timeout_ms, cause)
            yield self._stopping.wait(pause)
        raise gen.Return(self.topics[name])

    def _not_ready(self, name, timeout_ms, cause):
        if isinstance(cause, (UnknownTopicError, NoBrokersError)):
            return cause
        return DeadlineError("topic %s was not ready within %d ms: %s" % (name, timeout_ms, cause), cause)

    def forget(self, name):
        """Stop asking for the topic's metadata."""
        self._tracked.discard(name)
        self.topics.pop(name, None)
        self.topic_errors.pop(name, None)

    def refresh(self):
        """A Future that ends with the next answer about the tracked topics; NoBrokersError if no broker gives one.

        Calls at the same time share one request, and there are at most REFRESHES_PER_SECOND.
        """
        if self._refreshing is None:
            self._refreshing = futures.keep_quiet(self._refresh())
            self._refreshing.add_done_callback(self._refreshed)
        return self._refreshing

    def _refreshed(self, _):
        self._refreshing = None
        if self._aging is not None:
            self._loop.remove_timeout(self._aging)
        if not self.stopped:
            self._aging = self._loop.call_later(self._max_age, self.heal)

    @gen.coroutine
    def heal(self):
        """Refresh, but leave it to the callers' next tries to find that no broker can be reached."""
        try:
            yield self.refresh()
        except KielError as error:
            log.debug("the cluster could not be healed: %s", error)

    @gen.coroutine
    def _refresh(self):
        if len(self._refreshes) == REFRESHES_PER_SECOND:
            yield self._stopping.wait(max(0, self._refreshes[0] + 1 - self._loop.time()))
        self._check_running()
        self._refreshes.append(self._loop.time())
        response = yield self._ask_anyone(sorted(self._tracked))
        self._update(response)
        for callback in list(self.on_change):
            callback()

    @gen.coroutine
    def _ask_anyone(self, names):
        """The metadata response of the first broker that gives one: connected ones first, the idlest before."""
        reasons = []
        known = sorted(self.brokers, key=self._busyness)
        for broker_id in known:
            if broker_id not in self._connections and self._loop.time() < self._retry_at.get(broker_id, 0):
                continue
            try:
                chosen = yield self.connection(broker_id)
                response = yield self._ask(chosen, names)
                raise gen.Return(response)
            except KielError as error:
                reasons.append(_reason("broker %d" % broker_id, error))
        chosen = yield self._bootstrap(reasons)
        try:
            response = yield self._ask(chosen, names)
        except KielError as error:
            chosen.close()
            raise self._no_brokers(reasons + [_reason(chosen.address, error)])
        self._adopt(chosen, response)
        raise gen.Return(response)

    def _busyness(self, broker_id):
        found = self._connections.get(broker_id)
        return (found is None, found.pending if found is not None else 0, broker_id)

    @gen.coroutine
    def _ask(self, chosen, names):
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
        if chosen.version_for(request) >= 4:
            request.allow_auto_topic_creation = self.auto_create
        response = yield chosen.send(request)
        raise gen.Return(response)

    @gen.coroutine
    def _bootstrap(self, reasons):
        """A Connection to the first bootstrap address that answers; the slow ones don't hold up the others."""
        waiting = list(self._addresses)
        racing = []
        while waiting or racing:
            if waiting:
                racing.append(futures.keep_quiet(self._connect(*waiting.pop(0))))
            step = STAGGER if waiting else self._settings.connect_timeout
            winner = yield _first(racing, step)
            if winner is None:
                continue
            racing.remove(winner)
            if winner.exception() is None:
                for loser in racing:
                    loser.add_done_callback(_close_result)
                self._check_running(winner.result())
                raise gen.Return(winner.result())
            reasons.append(text_of(winner.exception()))
        raise self._no_brokers(reasons)

    def _no_brokers(self, reasons):
        self._check_running()
        error = NoBrokersError("no broker could be reached: %s" % "; ".join(reasons))
        if not self._unreachable:
            self._unreachable = True
            log.warning("%s", error)
        return error

    def _adopt(self, chosen, response):
        """Keep a bootstrap connection as that of the broker that is advertised at the same address."""
        for broker in response.brokers:
            same = (broker.host, broker.port) == (chosen.host, chosen.port)
            if same and chosen.state == "ready" and broker.node_id not in self._connections:
                self._reached.add((broker.host, broker.port))
                self._keep(broker.node_id, chosen)
                return
        chosen.close()

    def _update(self, response):
        if self._unreachable:
            self._unreachable = False
            log.info("brokers can be reached again")
        if response.brokers:
            self.brokers = {
                each.node_id: Broker(each.node_id, each.host, each.port, each.rack) for each in response.brokers
            }
        self.controller_id, self.cluster_id = response.controller_id, response.cluster_id
        for topic in response.topics:
            if topic.name in self._tracked:
                self._update_topic(topic)
        for broker_id, used in list(self._connections.items()):
            known = self.brokers.get(broker_id)
            if known is not None and (known.host, known.port) != (used.host, used.port):
                used.close()

    def _update_topic(self, topic):
        if topic.error_code:
            error = errors.exception(topic.error_code, about="topic %s" % topic.name)
            self.topic_errors[topic.name] = error
            if isinstance(error, UnknownTopicError) or not error.retriable:
                self.topics.pop(topic.name, None)
            return
        self.topic_errors.pop(topic.name, None)
        self.topic_ids[topic.name] = topic.topic_id
        self.topics[topic.name] = {
            each.partition_index: Partition(
                each.leader_id if each.leader_id >= 0 else None,
                each.leader_epoch,
                tuple(each.replica_nodes),
                tuple(each.isr_nodes),
            )
            for each in topic.partitions
        }

    # -- connections

    def connection(self, broker_id):
        """A Future of a Connection to the broker that is ready; calls at the same time share one attempt."""
        if broker_id not in self._opening:
            future = futures.keep_quiet(self._open(broker_id))
            if future.done():
                return future
            self._opening[broker_id] = future
            future.add_done_callback(lambda _: self._opened(broker_id))
        return self._opening[broker_id]

    def _opened(self, broker_id):
        # Nothing is returned: Tornado 5 would wait for a Future that a callback returns, and log its error.
        del self._opening[broker_id]

    @gen.coroutine
    def _open(self, broker_id):
        self._check_running()
        found = self._connections.get(broker_id)
        if found is not None:
            raise gen.Return(found)
        pause = self._retry_at.get(broker_id, 0) - self._loop.time()
        if pause > 0:
            yield self._stopping.wait(pause)
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise BrokerConnectionError("broker %d" % broker_id, "resolve", "the cluster doesn't list it")
        try:
            opened = yield self._connect(broker.host, broker.port)
            if opened.state == "broken":
                raise opened.cause
        except KielError as error:
            self._retry_at[broker_id] = self._loop.time() + self._reconnect_delay(self._failures[broker_id])
            self._failures[broker_id] += 1
            error = self._with_hint(broker, error)
            self._tell_away(broker_id, error)
            raise error
        self._check_running(opened)
        self._failures.pop(broker_id, None)
        self._reached.add((broker.host, broker.port))
        if broker_id in self._connections:
            # In the meantime a bootstrap connection has turned out to be that broker's.
            opened.close()
        else:
            self._keep(broker_id, opened)
        raise gen.Return(self._connections[broker_id])

    def _tell_away(self, broker_id, error):
        """Log a broker that stays out of reach, once; if it is all of them, that is told already."""
        away = self._loop.time() - self._away_since.setdefault(broker_id, self._loop.time())
        if away >= AWAY_SECONDS and broker_id not in self._told_away and not self._unreachable and not self.stopped:
            self._told_away.add(broker_id)
            log.warning("broker %d can't be reached for %d s, and its partitions wait: %s", broker_id, away, error)

    def _with_hint(self, broker, error):
        """`error`; of an address that never worked it says where the address came from."""
        stage = getattr(error, "stage", None)
        if stage not in ("resolve", "connect") or (broker.host, broker.port) in self._reached:
            return error
        reason = "%s; the cluster advertises broker %d there: its advertised.listeners have to be reachable from here"
        return BrokerConnectionError(error.address, stage, reason % (error.reason, broker.id))

    def _connect(self, host, port):
        return connection.connect(host, port, self._settings, self._alive)

    def _keep(self, broker_id, opened):
        self._connections[broker_id] = opened
        self._away_since.pop(broker_id, None)
        if broker_id in self._told_away:
            self._told_away.remove(broker_id)
            log.info("broker %d can be reached again", broker_id)
        opened.on_fail.append(lambda broken: self._lost(broker_id, broken))

    def _lost(self, broker_id, broken):
        log.debug("broker %d: %s", broker_id, broken.cause)
        if self._connections.get(broker_id) is broken:
            del self._connections[broker_id]

    def _check_running(self, opened=None):
        if self.stopped:
            if opened is not None:
                opened.close()
            raise BrokerConnectionError("any address", "closed", "the client is closed")


def _check_name(name):
    """InvalidTopicError for what a request can't carry: no metadata would come any more. Brokers judge the rest."""
    try:
        size = len(name) if isinstance(name, bytes) else len(name.encode("utf-8"))
    except UnicodeError:
        size = None
    if size is None or size > LONGEST_TOPIC:
        reason = "it isn't UTF-8" if size is None else "it has %d bytes, of at most %d" % (size, LONGEST_TOPIC)
        code = errors.named("INVALID_TOPIC_EXCEPTION").code
        raise errors.exception(code, about="topic %s" % place_of(name), text=reason)


def _reason(who, error):
    """What to say of a broker that didn't answer; a BrokerConnectionError names it already."""
    return text_of(error) if isinstance(error, BrokerConnectionError) else "%s: %s" % (who, text_of(error))


def _close_result(ended):
    if not ended.cancelled() and ended.exception() is None:
        ended.result().close()


@gen.coroutine
def _first(racing, seconds):
    """The first of the Futures in `racing` to end, or None after `seconds`."""
    bell = futures.Bell()
    ended = [each for each in racing if each.done()]
    if not ended:
        for each in racing:
            each.add_done_callback(lambda _: bell.ring())
        yield bell.wait(seconds)
        ended = [each for each in racing if each.done()]
    raise gen.Return(ended[0] if ended else None)
