"""Keeps a consumer's partitions supplied: one fetch in flight a broker, and what must be mended before fetching.

A Fetcher holds the PartitionReaders of what its consumer is allocated. For each broker that leads any of them it runs one
loop: build a request, send it, wait for the answer. Beside these runs the tending: partitions whose position has to be
found, that have no leader, or whose topic is gone. Readers change in ``receive`` and in calls of the application's, so
each loop looks at them anew every time around.
"""
import collections
import logging

from tornado import gen

from kiel import futures
from kiel.clients.partition import PartitionReader
from kiel.exc import BrokerConnectionError, KielError, NoOffsetsError, UnknownTopicError
from kiel.protocol import errors
from kiel.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from kiel.protocol.list_offsets import EARLIEST, LATEST

log = logging.getLogger(__name__)

# What auto_offset_reset asks the list-offsets API for.
RESETS = {"earliest": EARLIEST, "latest": LATEST}

# While some partitions of a broker hold all that they may, the others don't wait at the broker but here, so that room
# made in the meantime is used at once.
HELD_BACK_SECONDS = 0.1

# After an error that the application was told of, its partition is fetched again no sooner than this.
ERROR_PAUSE_SECONDS = 1.0

# A topic that the brokers no longer know has to stay unknown for so long before the application is told: a broker that
# has just started may not know all topics yet.
GONE_SECONDS = 1.0


class Fetcher(object):
    """:param client: the consumer that this works for

    ``readers`` is {topic: {partition: PartitionReader}}; ``gone`` holds the topics that were deleted.
    """

    def __init__(self, client):
        self.readers = {}
        self.gone = set()
        self._client = client
        self._bells = {}
        self._tending = futures.Bell()
        self._fetching = set()
        self._room = futures.Bell()
        self._reserved = 0
        self._turn = 0
        self._requests = 0
        self._missing_since = {}
        self._topic_ids = {}

    def start(self):
        self._client.cluster.on_change.append(self._metadata_changed)
        self._client.spawn(self._tend())

    def stop(self):
        """Wake every loop, so that it sees that the client is closing."""
        self._tending.ring()
        self._room.ring()
        for bell in self._bells.values():
            bell.ring()

    # -- what the consumer asks and tells

    def add_partitions(self, topic, partitions, reset=None):
        """Begin with these partitions of a topic; positions are to be set, or found by `reset`."""
        held = self.readers.setdefault(topic, {})
        for partition in partitions:
            reader = PartitionReader(topic, partition, self._client.read_committed)
            reader.reset = reset
            held[partition] = reader
        self._bells.setdefault(topic, futures.Bell())
        self._topic_ids[topic] = self._client.cluster.topic_ids.get(topic)
        self.gone.discard(topic)
        self.wake()

    def drop_topic(self, topic):
        self.readers.pop(topic, None)
        self._missing_since.pop(topic, None)

    def turn(self, topic):
        """The topic's readers that aren't paused, each time beginning with another one."""
        self._turn += 1
        return _rotated(self._unpaused(topic), self._turn)

    def _unpaused(self, topic):
        return [reader for _, reader in sorted(self.readers.get(topic, {}).items()) if not reader.paused]

    def take_error(self, topic):
        """The error that the application has yet to hear of about a partition of the topic, or None.

        What was fetched before it comes first.
        """
        for reader in self._unpaused(topic):
            if reader.error is not None and not reader.buffered:
                error, reader.error = reader.error, None
                reader.not_before = self._client.loop.time() + ERROR_PAUSE_SECONDS
                self.wake()
                return error
        return None

    def wait(self, topic, seconds):
        """A Future that ends when something about the topic has changed, or after `seconds`."""
        return self._bells.setdefault(topic, futures.Bell()).wait(seconds)

    def ring(self, topic):
        """Wake whoever waits for the topic."""
        if topic in self._bells:
            self._bells[topic].ring()

    def wake(self):
        """Have every loop look at the readers again: there is room, or a position, or a partition that wasn't there."""
        self._room.ring()
        self._tending.ring()

    def _all(self):
        return [reader for held in self.readers.values() for reader in held.values()]

    # -- fetching

    def _start_loops(self):
        leader = self._client.cluster.leader
        for broker_id in {leader(reader.topic, reader.partition) for reader in self._all()} - {None}:
            if broker_id not in self._fetching:
                self._fetching.add(broker_id)
                self._client.spawn(self._fetch_from(broker_id))

    @gen.coroutine
    def _fetch_from(self, broker_id):
        client, failures = self._client, 0
        try:
            while not client.closing and self._led_by(broker_id):
                ready, held_back, pause = self._survey(broker_id)
                if held_back or not ready:
                    rung = yield self._room.wait(HELD_BACK_SECONDS if held_back and ready else pause)
                    if rung or not ready:
                        continue
                request = self.build(ready, 0 if held_back else client.max_wait_time / 2.0)
                self._reserved += request.max_bytes
                results = yield client.send({broker_id: request}, request.max_wait_ms + client.request_timeout_ms)
                self._reserved -= request.max_bytes
                if isinstance(results[broker_id], KielError):
                    self._not_fetched(request, results[broker_id])
                    yield client.rest(client.backoff(failures))
                    failures += 1
                else:
                    failures = 0
        finally:
            self._fetching.discard(broker_id)

    def _led_by(self, broker_id):
        leader = self._client.cluster.leader
        return [reader for reader in self._all() if leader(reader.topic, reader.partition) == broker_id]

    def _survey(self, broker_id):
        """(readers to fetch for, whether others are held back, seconds after which to look again).

        Fetched is every partition that the broker leads and that has a position, isn't paused, has no error to tell, and
        holds less than `max_bytes` that the application hasn't taken yet, as long as there is room in all.
        """
        client, now = self._client, self._client.loop.time()
        ready, held_back, pause = [], False, client.max_wait_time / 1000.0
        for reader in self._led_by(broker_id):
            if reader.paused or reader.position is None or reader.error is not None:
                continue
            if reader.buffered >= client.max_bytes:
                held_back = True
            elif reader.not_before > now:
                pause = min(pause, reader.not_before - now)
            else:
                ready.append(reader)
        if self._free_bytes() <= 0:
            ready, held_back = [], True
        return ready, held_back, max(0.001, pause)

    def _free_bytes(self):
        """What one more request may bring: no broker's loop gets more than its share of `prefetch_bytes`."""
        held = sum(reader.buffered for reader in self._all())
        most = self._client.prefetch_bytes
        return min(most // max(1, len(self._fetching)), most - self._reserved - held)

    def build(self, readers, max_wait_ms):
        """The FetchRequest for these readers, each time beginning with another one."""
        client = self._client
        self._requests += 1
        topics = collections.OrderedDict()
        for reader in _rotated(readers, self._requests):
            topics.setdefault(reader.topic, []).append(
                FetchPartition(
                    partition=reader.partition,
                    fetch_offset=reader.fetch_offset,
                    partition_max_bytes=client.max_bytes,
                )
            )
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=int(max_wait_ms),
            min_bytes=client.min_bytes,
            max_bytes=min(self._free_bytes(), client.max_bytes * len(readers)),
            isolation_level=int(client.read_committed),
            topics=[FetchTopic(topic=topic, partitions=asked) for topic, asked in topics.items()],
        )

    def _not_fetched(self, request, error):
        """Tell the application of what doesn't pass by trying again; a broker that can't be reached does."""
        if not isinstance(error, BrokerConnectionError):
            for reader in self._asked(request).values():
                self._fail(reader, error)

    def _fail(self, reader, error):
        reader.error = error
        self.ring(reader.topic)

    def _asked(self, request):
        """{(topic, partition): reader} of a request's partitions, without those that were moved since."""
        return {
            (topic.topic, asked.partition): self.readers[topic.topic][asked.partition]
            for topic in request.topics
            for asked in topic.partitions
            if self._fetch_offset(topic.topic, asked.partition) == asked.fetch_offset
        }

    def _fetch_offset(self, topic, partition):
        reader = self.readers.get(topic, {}).get(partition)
        return None if reader is None else reader.fetch_offset

    def receive(self, response):
        """Take in a FetchResponse: records into the readers, errors by the error table's reactions."""
        if response.error_code:
            error = errors.exception(response.error_code, about="fetch from broker %d" % response.broker_id)
            self._not_fetched(response.request, error)
            return
        asked = self._asked(response.request)
        for topic in response.responses:
            for found in topic.partitions:
                reader = asked.get((topic.topic, found.partition_index))
                if reader is None:
                    continue
                if found.error_code:
                    self._refused(reader, found.error_code)
                else:
                    self._supplied(reader, found)

    def _supplied(self, reader, found):
        reader.failures = 0
        reader.high_watermark, reader.last_stable_offset = found.high_watermark, found.last_stable_offset
        if found.records:
            aborted = [(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()]
            error = reader.add(found.records, aborted)
            if error is not None:
                reader.error = error
            self.ring(reader.topic)

    def _refused(self, reader, code):
        row = errors.lookup(code)
        error = errors.exception(code, about="%s[%d]" % (reader.topic, reader.partition))
        log.debug("fetch: %s", error)
        if row.reaction == errors.RESET_OFFSET:
            self._out_of_range(reader)
        elif row.retriable:
            self._client.heal_cluster = self._client.heal_cluster or row.reaction == errors.REFRESH_METADATA
            reader.not_before = self._client.loop.time() + self._client.backoff(reader.failures)
            reader.failures += 1
        else:
            self._fail(reader, error)

    def _out_of_range(self, reader):
        policy = self._client.auto_offset_reset
        where = "%s[%d]: offset %d is out of range" % (reader.topic, reader.partition, reader.fetch_offset)
        if policy == "none":
            self._fail(reader, NoOffsetsError('%s, and auto_offset_reset is "none": seek to go on' % where))
        else:
            log.warning("%s; it goes on at the %s", where, policy)
            reader.seek_by(policy)
            self._tending.ring()

    # -- tending

    @gen.coroutine
    def _tend(self):
        client, failures = self._client, 0
        while not client.closing:
            self._start_loops()
            lost = [reader for reader in self._all() if reader.reset is not None]
            if lost:
                yield self._find_positions(lost)
            elif self._homeless():
                yield client.cluster.heal()
            else:
                failures = 0
                yield self._tending.wait(client.metadata_max_age_ms / 1000.0)
                continue
            yield client.rest(client.backoff(failures))
            failures += 1

    def _homeless(self):
        leader = self._client.cluster.leader
        return any(leader(reader.topic, reader.partition) is None for reader in self._all())

    @gen.coroutine
    def _find_positions(self, lost):
        wanted = {(reader.topic, reader.partition): RESETS[reader.reset] for reader in lost}
        found = yield self._client.ask_offsets(wanted)
        for reader in lost:
            result = found[reader.topic, reader.partition]
            if reader.reset is None or RESETS[reader.reset] != wanted[reader.topic, reader.partition]:
                continue
            if isinstance(result, KielError):
                log.debug("the position of %s[%d] isn't known: %s", reader.topic, reader.partition, result)
                if not getattr(result, "retriable", True):
                    self._fail(reader, result)
            else:
                reader.seek(result.offset)
        self._room.ring()

    def _metadata_changed(self):
        cluster, now = self._client.cluster, self._client.loop.time()
        for topic in list(self.readers):
            if topic in cluster.topics:
                self._missing_since.pop(topic, None)
                self._check_same(topic, cluster.topic_ids.get(topic))
            elif isinstance(cluster.topic_errors.get(topic), UnknownTopicError):
                if now - self._missing_since.setdefault(topic, now) >= GONE_SECONDS:
                    self.drop_topic(topic)
                    self.gone.add(topic)
                    self._client.topic_gone(topic, cluster.topic_errors[topic])
        self.wake()

    def _check_same(self, topic, topic_id):
        if topic_id != self._topic_ids.get(topic):
            log.info("topic %s was deleted and made again; it is read from its beginning", topic)
            self._topic_ids[topic] = topic_id
            for reader in self.readers[topic].values():
                reader.seek_by("earliest")


def _rotated(readers, turn):
    first = turn % len(readers) if readers else 0
    return readers[first:] + readers[:first]
