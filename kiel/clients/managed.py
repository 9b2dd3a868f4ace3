"""ManagedConsumer: a member of a group that one of Kafka's brokers coordinates."""
import collections
import logging
import os
import platform
import random

import six
from tornado import gen

from kiel import backoff, futures, settings
from kiel.clients.any_topic import AnyTopic
from kiel.clients.broker_loop import RESETS
from kiel.clients.consumer import BaseConsumer, check_topic
from kiel.clients.coordinator import GroupMember
from kiel.clients.group_offsets import GroupOffsets
from kiel.clients.presence import Presence
from kiel.clients.watchdog import Watchdog
from kiel.exc import ConfigurationError, KielError, NoOffsetsError, UnknownTopicError, UsageError
from kiel.groups import RangeProtocol, events
from kiel.groups.membership import Settings

log = logging.getLogger(__name__)

# Topics that don't exist are looked for so often.
MISSING_SECONDS = 1.0

# A callback that doesn't end keeps a close that is out of time no longer than this.
CALLBACK_SECONDS = 0.1

_Adoption = collections.namedtuple("_Adoption", ("places", "given_up"))


class ManagedConsumer(BaseConsumer):
    """Shares the partitions of its topics with the other members of its group (Kafka 0.9 and later).

        consumer = ManagedConsumer(["localhost:9092"], "billing", ["orders"])
        yield consumer.connect()
        while serving:
            for order in (yield consumer.consume("orders")):
                handle(order)

    Each partition has one member that consumes it. It begins at the offset that the group has committed, or where
    `auto_offset_reset` says if there is none. Whoever joins, leaves or dies starts a rebalance, which this
    consumer takes part in when the application asks for its next batch.

    :param group: the group's name; members in Java share it, with the same protocol
    :param topics: a list of topics, or a compiled regular expression that their names have to match from the
        first character on; new topics that it matches are found when metadata is refreshed
        (`metadata_max_age_ms`)
    :param membership_protocol: how the group shares partitions out: a class or instance of
        GroupMembershipProtocol, or a list of them in order of preference
    :param autocommit: commit acknowledged offsets without being asked: the first at once, then at most every
        `auto_commit_interval_ms`, and always before partitions are given up and on close
    :param heartbeat_interval_ms: how often the coordinator hears of this member
    :param session_timeout_ms: how long it may hear nothing before the partitions go to others
    :param max_poll_interval_ms: how long the application may stay away from ``consume`` before the partitions go
        to others
    :param rebalance_max_retries: after so many failures in a row to join, a call raises RebalanceError
    :param rebalance_backoff_ms: the wait between them
    :param rebalance_drain_ms: when several topics are consumed at once, how long a rebalance waits until no batch
        is in the application's hands
    :param pre_rebalance_callback: function (consumer, revoked) that is called before partitions, a set of
        (topic, partition), are given up in order; what is acknowledged then is committed after it. It may be a
        coroutine.
    :param post_rebalance_callback: function (consumer, old, new) that is called with the partitions before and
        after a rebalance, before anything of the new ones is handed out, and when partitions were lost. It may be
        a coroutine, and may give {(topic, partition): offset} to start from.
    :param group_instance_id: makes this a static member (KIP-345): it doesn't leave when it is closed, and gets
        its old share when it is back within `session_timeout_ms`

    The other arguments are those of BaseConsumer.
    """

    def __init__(
        self,
        brokers,
        group,
        topics,
        deserializer=None,
        membership_protocol=RangeProtocol,
        autocommit=True,
        auto_commit_interval_ms=100,
        heartbeat_interval_ms=3000,
        session_timeout_ms=30000,
        max_poll_interval_ms=300000,
        rebalance_max_retries=5,
        rebalance_backoff_ms=2000,
        auto_offset_reset="latest",
        post_rebalance_callback=None,
        pre_rebalance_callback=None,
        group_instance_id=None,
        rebalance_drain_ms=30000,
        **options
    ):
        super(ManagedConsumer, self).__init__(
            brokers, deserializer=deserializer, auto_offset_reset=auto_offset_reset, **options
        )
        self.group_name = _check_name("group", group)
        self.group_instance_id = None
        if group_instance_id is not None:
            self.group_instance_id = _check_name("group_instance_id", group_instance_id)
        self._pattern = topics if hasattr(topics, "match") else None
        self.subscribed = [] if self._pattern else _check_topics(topics)
        self.protocols = _check_protocols(membership_protocol)
        self.autocommit = bool(autocommit)
        self.auto_commit_interval_ms = settings.number("auto_commit_interval_ms", auto_commit_interval_ms, 0)
        self.session_timeout_ms = settings.whole("session_timeout_ms", session_timeout_ms, 1, 2 ** 30)
        self.heartbeat_interval_ms = settings.number("heartbeat_interval_ms", heartbeat_interval_ms, 1)
        if heartbeat_interval_ms >= session_timeout_ms:
            raise ConfigurationError("heartbeat_interval_ms has to be less than session_timeout_ms")
        self.max_poll_interval_ms = settings.whole("max_poll_interval_ms", max_poll_interval_ms, 1, 2 ** 30)
        self.rebalance_max_retries = settings.whole("rebalance_max_retries", rebalance_max_retries, 1)
        self.rebalance_backoff_ms = settings.number("rebalance_backoff_ms", rebalance_backoff_ms, 0)
        self.rebalance_drain_ms = settings.number("rebalance_drain_ms", rebalance_drain_ms, 0)
        self._post_callback = settings.function("post_rebalance_callback", post_rebalance_callback)
        self._pre_callback = settings.function("pre_rebalance_callback", pre_rebalance_callback)
        self.name = u"%s@%s:%d" % (self.client_id, platform.node(), os.getpid())
        self._told = None
        self._jobs = collections.deque()
        self._is_working, self._idle = False, futures.Bell()
        self._adoptions = []
        self._adopted = frozenset()
        self._announced = frozenset()
        self._from_end = set()
        self._moved = {}
        self._any = AnyTopic(self)
        self._member = self._presence = self._group_offsets = self._watchdog = None

    # -- life

    @gen.coroutine
    def connect(self):
        """Reach the cluster, and begin to join the group; ``consume`` hands records out as soon as it has.

        NoBrokersError lists each broker's address with the reason that it can't be reached.
        """
        yield super(ManagedConsumer, self).connect()
        seconds = self.session_timeout_ms / 1000.0
        machine_settings = Settings(
            group=self.group_name,
            topics=self.subscribed,
            cooperative=all(protocol.is_cooperative for protocol in self.protocols),
            static=self.group_instance_id is not None,
            session_timeout=seconds,
            heartbeat_interval=self.heartbeat_interval_ms / 1000.0,
            max_poll_interval=self.max_poll_interval_ms / 1000.0,
            max_retries=self.rebalance_max_retries,
            retry_backoff=self.backoff,
            rebalance_backoff=self._rebalance_backoff,
        )
        rebalance_timeout_ms = self.max_poll_interval_ms + self.session_timeout_ms
        self._member = GroupMember(
            self, machine_settings, self.protocols, self.session_timeout_ms, rebalance_timeout_ms
        )
        self._group_offsets = GroupOffsets(self, self._member, self.auto_commit_interval_ms)
        self._presence = Presence(
            self.loop, self._member, self._is_waiting, self._is_holding, self.rebalance_drain_ms / 1000.0
        )
        self._watchdog = Watchdog(
            self.loop,
            self.heartbeat_interval_ms / 1000.0,
            "heartbeats of group %s were late; after session_timeout_ms (%d) without, it throws this member out"
            % (self.group_name, self.session_timeout_ms),
        )
        self._watchdog.start()
        self.cluster.on_change.append(self._follow_metadata)
        for topic in self.subscribed:
            self.cluster.track(topic)
        if self._pattern is not None:
            self.cluster.wants = self._matches
            self.spawn(self.cluster.heal())
        self.spawn(self._look_for_missing())
        self._member.post(events.Start())

    def _rebalance_backoff(self, attempt):
        return backoff.delay(0, self.rebalance_backoff_ms, self.rebalance_backoff_ms, random.random()) / 1000.0

    @gen.coroutine
    def wind_down(self):
        """Commit what is acknowledged, and leave the group."""
        yield super(ManagedConsumer, self).wind_down()
        if self._member is None:
            return
        try:
            self._member.want(events.Leave())
            while self._member.machine.state != "left":
                yield self._member.changed.wait(self.session_timeout_ms / 1000.0)
            while self._is_working:
                yield self._idle.wait(MISSING_SECONDS)
        finally:
            self._stop()

    @gen.coroutine
    def close(self, acknowledge=False, timeout_ms=30000):
        """As for any consumer; besides, what is acknowledged is committed, and the group is left at once."""
        try:
            yield super(ManagedConsumer, self).close(acknowledge, timeout_ms)
        finally:
            self._stop()

    def _stop(self):
        if self._member is not None:
            self._member.stop()
            self._presence.stop()
            self._watchdog.stop()

    # -- what is consumed

    def consume(self, topic, start=None, max_records=None):
        self._check_call(topic, start)
        return super(ManagedConsumer, self).consume(topic, None, max_records)

    consume.__doc__ = BaseConsumer.consume.__doc__

    def consume_records(self, topic=None, start=None, max_records=None):
        """The same as ``consume``, with a :class:`~kiel.Record` for each record.

        Without a topic it gives the next records of any topic, a topic at a time; that acknowledges what the last
        such call gave.
        """
        self._check_call(topic, start)
        if topic is None:
            return self._any.ask(max_records)
        return super(ManagedConsumer, self).consume_records(topic, None, max_records)

    def _check_call(self, topic, start):
        self.check_usable()
        if start is not None:
            raise ConfigurationError(
                "a group goes on where it has committed; `auto_offset_reset` says where it begins, not `start`"
            )
        if topic is not None:
            check_topic(topic)
            if not (self._matches(topic) if self._pattern is not None else topic in self.subscribed):
                raise UsageError("this consumer's topics don't include %s: %r" % (topic, self.subscribed))

    @gen.coroutine
    def _prepare(self, topic, start, deadline):
        """Partitions come with the group's rebalances."""
        error = self.cluster.topic_errors.get(topic)
        if error is not None and not error.retriable and not isinstance(error, UnknownTopicError):
            yield self.rest(min(MISSING_SECONDS, max(0, deadline - self.loop.time())))
            raise error

    def _tell_errors(self, topic):
        """Whenever a call looks for records: raise what is to be told, else say that the application is here."""
        super(ManagedConsumer, self)._tell_errors(topic)
        self.raise_told()
        self._presence.looks(topic, self._fetcher.has_buffered(topic))
        # What that has brought about may concern this very call.
        self.raise_told()

    def raise_told(self):
        """Raise what the group has to tell the application, once."""
        if self._told is not None:
            error, self._told = self._told, None
            raise error

    def _handed_out(self, topic, call, ended):
        super(ManagedConsumer, self)._handed_out(topic, call, ended)
        self._note_moves(topic)
        self._presence.ended(topic)

    def ready_record(self, topic):
        if self._told is not None:
            return None
        ready = super(ManagedConsumer, self).ready_record(topic)
        if ready is not None:
            self._note_moves(topic)
            self._presence.looks(topic, True)
            self._presence.ended(topic)
        return ready

    def _note_moves(self, topic):
        for partition in self._in_hand.get(topic, ()):
            self._moved[topic, partition] = self.loop.time()

    def has_news(self, topic):
        """Whether a call for the topic, of which none is under way, would have something to give or to raise."""
        if topic in self._calls:
            return False
        held = self._fetcher.readers.get(topic, {}).values()
        return topic in self._news or self._fetcher.has_buffered(topic) or any(
            reader.error is not None and not reader.leaving for reader in held
        )

    def look_around(self):
        """A call for any topic has found nothing so far."""
        self._presence.looks(None, False)

    def looked_around(self):
        """A call for any topic looks no more."""
        self._presence.ended(None)

    def stop_waiting(self):
        """Have a call for any topic look whether it is still asked for."""
        self._fetcher.ring(None)

    def wait_for_any(self, seconds):
        """A Future that ends when something about any topic has changed, or after `seconds`."""
        return self._fetcher.wait(None, seconds)

    def _is_waiting(self):
        return bool(self._calls) or self._any.is_waiting

    def _is_holding(self):
        return any(count for held in self._in_hand.values() for _, count in held.values())

    def acknowledge(self, topic=None):
        handed = {name: dict(self._in_hand.get(name, ())) for name in ([topic] if topic is not None else self._in_hand)}
        super(ManagedConsumer, self).acknowledge(topic)
        if self._group_offsets is None:
            return
        for name, partitions in handed.items():
            for partition, (offset, _) in partitions.items():
                self._group_offsets.commits.acknowledge((name, partition), offset)
        if self.autocommit:
            self._group_offsets.wake()

    acknowledge.__doc__ = BaseConsumer.acknowledge.__doc__

    # -- the group

    @property
    def coordinator_id(self):
        """The id of the broker that coordinates the group; None while that isn't known."""
        return self._member.machine.coordinator if self._member is not None else None

    @property
    def default_metadata(self):
        return u"committed by %s" % self.name

    def membership_changed(self):
        """After each event of the membership."""
        for topic, partition in self._member.machine.giving_up:
            reader = self._fetcher.readers.get(topic, {}).get(partition)
            if reader is not None:
                reader.leaving = True
        self._presence.membership_changed()

    def tell(self, error):
        """Have the application hear of `error` from its next call, or from one that waits."""
        self._told = error
        for topic in [None] + list(self._calls):
            self._fetcher.ring(topic)

    def revoke(self, action):
        """Give partitions up: at once if they are lost, else after the callback and a commit."""
        places = action.partitions
        starts = {} if action.lost else self._starts(places)
        had = self._adopted & places
        self._give_up(places)
        if action.lost:
            self._forget(places)
            self._do(lambda: self._after_loss(had))
        else:
            self._do(lambda: self._before_rebalance(action, had, starts))

    def _starts(self, places):
        """Where partitions began that the group had no offset of, and of which nothing was acknowledged.

        "latest" would be another place by the time that somebody asks again: what came meanwhile would be lost.
        """
        readers = {place: self._fetcher.readers.get(place[0], {}).get(place[1]) for place in self._from_end & places}
        return {
            place: reader.start
            for place, reader in readers.items()
            if reader is not None and reader.start is not None and place[1] not in self.acknowledged.get(place[0], {})
        }

    def _give_up(self, places):
        """Hand out nothing more of these; what is in the application's hands isn't to be acknowledged any more."""
        self._adopted -= places
        for adoption in self._adoptions:
            adoption.places.difference_update(places)
        for call in self._calls.values():
            call.delivery.take_back(places)
        for topic, partition in sorted(places):
            self._from_end.discard((topic, partition))
            self._moved.pop((topic, partition), None)
            if partition in self._fetcher.readers.get(topic, {}):
                self._fetcher.drop_partitions(topic, [partition])
            _, count = self._in_hand.get(topic, {}).pop(partition, (None, 0))
            if count and not self.closing:
                log.info(
                    "group %s: %s[%d] is given up; the last %d records of it were not acknowledged and will come again",
                    self.group_name, topic, partition, count,
                )
            self._fetcher.ring(topic)
        self.synced_offsets = {topic for topic, held in self._fetcher.readers.items() if held}

    def _forget(self, places):
        self._group_offsets.commits.drop(places)
        for topic, partition in places:
            self.acknowledged.get(topic, {}).pop(partition, None)

    def adopt(self, action):
        """Begin with partitions, when it is known where."""
        adoption = _Adoption(set(action.added), not action.added)
        self._adoptions.append(adoption)
        self._do(lambda: self._after_rebalance(adoption))

    def _do(self, job):
        """What concerns the application is done one after another, in the order of the machine's actions."""
        self._jobs.append(job)
        if not self._is_working:
            self._is_working = True
            self.spawn(self._work())

    @gen.coroutine
    def _work(self):
        try:
            while self._jobs and not self.cluster.stopped:
                yield self._jobs.popleft()()
        finally:
            self._is_working = False
            self._idle.ring()

    @gen.coroutine
    def _before_rebalance(self, action, had, starts):
        try:
            if had and self._pre_callback is not None:
                yield self._call_back(self._pre_callback, set(had))
            if self.autocommit:
                for place, offset in starts.items():
                    self._group_offsets.commits.acknowledge(place, offset)
                yield self._group_offsets.flush(action.partitions, self.session_timeout_ms / 1000.0)
        finally:
            self._forget(action.partitions)
            self._member.post(events.Revoked(action.attempt))

    @gen.coroutine
    def _after_loss(self, had):
        if had:
            yield self._announce()

    @gen.coroutine
    def _announce(self, added=frozenset()):
        """Call post_rebalance_callback, and give the offsets that it gave."""
        old, self._announced = self._announced, self._adopted | added
        given = None
        if self._post_callback is not None:
            given = yield self._call_back(self._post_callback, set(old), set(self._announced))
        raise gen.Return(given)

    @gen.coroutine
    def _after_rebalance(self, adoption):
        try:
            found = yield self._group_offsets.fetch(lambda: adoption.places)
            if adoption.places or adoption.given_up:
                given = yield self._announce(frozenset(adoption.places))
                self._begin(adoption.places, found, self._check_offsets(given))
        finally:
            self._adoptions.remove(adoption)

    def _check_offsets(self, given):
        """{(topic, partition): offset} of what a post_rebalance_callback gave; other things are told."""
        try:
            offsets = dict(given or {})
            for (topic, partition), offset in offsets.items():
                settings.whole("the offset for %s[%d]" % (topic, partition), offset, 0)
            return offsets
        except (TypeError, ValueError, KielError) as error:
            text = "post_rebalance_callback has to give {(topic, partition): offset} or nothing, not %r: %s"
            self.tell(ConfigurationError(text % (given, error)))
            return {}

    def _begin(self, places, found, given):
        self._adopted |= places
        for topic, partition in sorted(places):
            offset = given.get((topic, partition), found.get((topic, partition)))
            if offset is None and self.auto_offset_reset == "latest":
                self._from_end.add((topic, partition))
            self._fetcher.add_partitions(topic, {partition: offset}, RESETS.get(self.auto_offset_reset))
            if offset is None and self.auto_offset_reset == "none":
                text = '%s[%d]: group %s has committed no offset, and auto_offset_reset is "none": seek to begin'
                error = NoOffsetsError(text % (topic, partition, self.group_name))
                self._fetcher.fail(self._fetcher.readers[topic][partition], error)
        for (topic, partition), offset in given.items():
            if (topic, partition) in self._adopted - places:
                self.seek(topic, partition, offset)
        self.synced_offsets = {topic for topic, held in self._fetcher.readers.items() if held}

    @gen.coroutine
    def _call_back(self, callback, *partitions):
        """What the application's callback gives; an error of it is logged, and told by the next call."""
        try:
            answer = callback(self, *partitions)
            if gen.is_future(answer) or hasattr(answer, "__await__"):
                answer = gen.convert_yielded(answer)
                over = futures.Bell()
                answer.add_done_callback(lambda _: over.ring())
                while not answer.done() and not self.cluster.stopped:
                    yield over.wait(CALLBACK_SECONDS)
                answer = answer.result() if answer.done() else None
        except Exception as error:
            name = getattr(callback, "__name__", callback)
            log.exception("group %s: %s failed", self.group_name, name)
            self.tell(error)
            answer = None
        raise gen.Return(answer)

    # -- topics

    def _matches(self, topic):
        return self._pattern.match(topic) is not None

    def _follow_metadata(self):
        """Join anew when there are other topics, or the leader's shares don't cover their partitions any more."""
        topics = self.subscribed
        if self._pattern is not None:
            topics = sorted(topic for topic in self.cluster.topics if self._matches(topic))
        if topics != self.subscribed or self._member.notice_metadata():
            self.subscribed = topics
            self._member.want(events.SubscriptionChanged(topics))

    @gen.coroutine
    def _look_for_missing(self):
        """Topics that don't exist yet are found soon after they do."""
        warned = set()
        while not self.closing:
            yield self.rest(MISSING_SECONDS)
            wanted = set(self.subscribed) | set(self._member.group_topics)
            missing = {topic for topic in wanted if topic not in self.cluster.topics}
            if missing and not self.closing:
                yield self.cluster.heal()
            for topic in sorted(missing - warned - set(self.cluster.topics)):
                if isinstance(self.cluster.topic_errors.get(topic), UnknownTopicError):
                    log.warning("group %s: topic %s doesn't exist; it is waited for", self.group_name, topic)
                    warned.add(topic)

    # -- what the application asks

    @gen.coroutine
    def commit_offsets(self, offsets=None, metadata=None):
        """Commit {topic: {partition: offset of the next record}} (default: what is acknowledged).

        `metadata` is a text to be kept along with them: "committed by NAME" unless given; one that is too large for
        the broker is left out. Tried again until `api_timeout_ms` have passed: DeadlineError then.

        :raises UsageError: a partition isn't allocated to this consumer
        :raises BrokerError: what the broker refuses for good; partitions that it doesn't refuse are committed
        """
        self.check_usable()
        named = self.acknowledged if offsets is None else offsets
        places = {(topic, partition): offset for topic in named for partition, offset in named[topic].items()}
        for (topic, partition), offset in places.items():
            settings.whole("offset", offset, 0)
            if (topic, partition) not in self._adopted:
                self._reader(topic, partition)
        if places:
            text = self.default_metadata if metadata is None else metadata
            yield self._group_offsets.commit(places, text, self.api_timeout_ms / 1000.0)

    @gen.coroutine
    def committed(self, topic, partitions=None):
        """{partition: offset that the group has committed, or None}, of some partitions or (default) of all."""
        self.check_usable()
        if partitions is None:
            partitions = yield self.cluster.topic(topic, self.api_timeout_ms)
        places = {(topic, partition) for partition in partitions}
        found = yield self._group_offsets.fetch(lambda: places, self.api_timeout_ms / 1000.0)
        raise gen.Return({partition: offset for (_, partition), offset in found.items()})

    def health(self):
        """A dict that says how this member is doing, for a web handler or a log.

        ``state`` (that of the membership), ``member_id``, ``generation`` (-1 while no member), ``coordinator_id``,
        ``assigned`` ({topic: [partitions]}), ``heartbeat_age_ms`` (since the coordinator answered last; None before),
        and ``partitions``: {topic: {partition: {"position", "lag", "moved_ms"}}}, with the milliseconds since the
        position moved last, or None if it hasn't since the partition came.
        """
        self.check_usable()
        machine, now = self._member.machine, self.loop.time()
        lags = {topic: self.lag(topic) for topic in self.allocation}
        answered = machine.heartbeat_answered_at
        return {
            "state": machine.state,
            "member_id": machine.member_id,
            "generation": machine.generation,
            "coordinator_id": machine.coordinator,
            "assigned": self.allocation,
            "heartbeat_age_ms": None if answered is None else (now - answered) * 1000,
            "partitions": {
                topic: {
                    partition: {
                        "position": reader.position,
                        "lag": lags[topic][partition],
                        "moved_ms": self._since(now, topic, partition),
                    }
                    for partition, reader in held.items()
                }
                for topic, held in self._fetcher.readers.items()
            },
        }

    def _since(self, now, topic, partition):
        moved = self._moved.get((topic, partition))
        return None if moved is None else (now - moved) * 1000

    # -- answers

    def handle_group_coordinator_response(self, response):
        """Who coordinates the group."""
        return self._member.read_coordinator(response)

    def handle_join_group_response(self, response):
        """Take in that the group has a new generation."""
        self._member.read(response)

    def handle_sync_group_response(self, response):
        """Take in this member's share."""
        self._member.read(response)

    def handle_heartbeat_response(self, response):
        """Take in that the coordinator has heard of this member."""
        self._member.read(response)

    def handle_leave_group_response(self, response):
        """Take in that the group was left."""
        self._member.read(response)

    def handle_offset_fetch_response(self, response):
        """{(topic, partition): committed offset, None or BrokerError}, or a BrokerError for all."""
        return self._group_offsets.read_fetch(response)

    def handle_offset_commit_response(self, response):
        """{(topic, partition): None, or the BrokerError}."""
        return self._group_offsets.read_commit(response)


def _check_name(setting, name):
    if not isinstance(name, six.string_types) or not name:
        raise ConfigurationError("%s has to be a text, not %r" % (setting, name))
    return name


def _check_topics(topics):
    if not isinstance(topics, (list, tuple, set, frozenset)) or not topics:
        raise ConfigurationError("topics has to be a list of them or a compiled regular expression, not %r" % (topics,))
    for topic in topics:
        check_topic(topic)
    return sorted(set(topics))


def _check_protocols(given):
    """The instances of what `membership_protocol` names, in order."""
    listed = given if isinstance(given, (list, tuple)) else [given]
    protocols = [each() if isinstance(each, type) else each for each in listed]
    for protocol in protocols:
        for needed in ("assign", "join_metadata", "read_metadata"):
            if not callable(getattr(protocol, needed, None)):
                raise ConfigurationError("membership_protocol: %r is no GroupMembershipProtocol" % (protocol,))
        if not isinstance(protocol.name, six.string_types) or not protocol.name:
            raise ConfigurationError("membership_protocol: %r has no name" % (protocol,))
    if not protocols or len({protocol.name for protocol in protocols}) != len(protocols):
        raise ConfigurationError("membership_protocol has to be one or several, of different names: %r" % (given,))
    return protocols
