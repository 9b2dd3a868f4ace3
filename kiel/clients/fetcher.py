"""Keeps a consumer supplied: holds its partitions' readers, runs a loop a broker, follows the metadata.

Readers change in the loops and in calls of the application's, so each loop looks at them anew every time
around, and what a broker answers counts only for a reader that is still where it was when the broker was
asked.
"""
import collections
import logging

from tornado import gen

from kiel import futures
from kiel.clients.broker_loop import BrokerLoop
from kiel.clients.partition import PartitionReader
from kiel.exc import BrokerError, KielError, UnknownTopicError
from kiel.protocol.list_offsets import EARLIEST

log = logging.getLogger(__name__)

# After an error that the application was told of, its partition is fetched again no sooner than this.
ERROR_PAUSE_SECONDS = 1.0

# A topic that the brokers no longer know has to stay unknown for so long before the application is told: a
# broker that has just started may not know all topics yet.
GONE_SECONDS = 1.0


class Fetcher(object):
    """:param client: the consumer that this works for

    ``readers`` is {topic: {partition: PartitionReader}}, in order of partitions; ``gone`` has the topics that
    were deleted, {topic: (the id that it had, {partition: position})}; ``loops`` is {broker_id: BrokerLoop},
    and ``room`` rings for them when a reader may have changed.
    """

    def __init__(self, client):
        self.readers = {}
        self.gone = {}
        self.loops = {}
        self.room = futures.Bell()
        self._client = client
        self._bells = {}
        self._turns = {}
        self._stale = False
        self._tending = futures.Bell()
        self._missing_since = {}
        self._topic_ids = {}

    def start(self):
        self._client.cluster.on_change.append(self._metadata_changed)
        self._client.spawn(self._tend())

    def stop(self):
        """Wake whatever waits, so that it sees that the client is closing."""
        self._tending.ring()
        self.room.ring()
        for bell in self._bells.values():
            bell.ring()

    # -- what the consumer asks and tells

    def add_partitions(self, topic, offsets, reset):
        """Begin with partitions of a topic, {partition: offset, or None to find it by the timestamp
        `reset`}."""
        held = dict(self.readers.get(topic, {}))
        for partition, offset in offsets.items():
            reader = held[partition] = PartitionReader(topic, partition, self._client.read_committed)
            if offset is None:
                reader.seek_by(reset)
            else:
                reader.seek(offset)
        self.readers[topic] = collections.OrderedDict(sorted(held.items()))
        self._topic_ids.setdefault(topic, self._client.cluster.topic_ids.get(topic))
        self.gone.pop(topic, None)
        self.wake()

    def drop_partitions(self, topic, partitions):
        """Read these no longer."""
        for partition in partitions:
            self.readers[topic].pop(partition).seek_by(None)

    def drop_topic(self, topic):
        self.drop_partitions(topic, list(self.readers.get(topic, ())))
        for each in (self.readers, self._missing_since, self._topic_ids, self._turns):
            each.pop(topic, None)

    def turn(self, topic):
        """The topic's readers that aren't paused, each time beginning with another one."""
        self._turns[topic] = self._turns.get(topic, 0) + 1
        return self.rotated(self._unpaused(topic), self._turns[topic])

    @staticmethod
    def rotated(readers, turn):
        first = turn % len(readers) if readers else 0
        return readers[first:] + readers[:first]

    def _unpaused(self, topic):
        return [reader for reader in self.readers.get(topic, {}).values() if not reader.paused]

    def has_buffered(self, topic):
        """Whether something of the topic can be taken right now."""
        return any(reader.buffered for reader in self._unpaused(topic))

    def fail(self, reader, error):
        """Have the application hear of `error` from its next consume() of the topic."""
        reader.error = error
        self.ring(reader.topic)

    def take_error(self, topic):
        """The error that the application has yet to hear of about a partition of the topic, or None.

        What was fetched before it comes first. What holds for other partitions as well is told once.
        """
        for reader in self._unpaused(topic):
            if reader.error is not None and not reader.buffered:
                error = reader.error
                for each in self._unpaused(topic):
                    if each is reader or _same(each.error, error):
                        each.error = None
                        each.not_before = self._client.loop.time() + ERROR_PAUSE_SECONDS
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
        """Look at the readers again: there is a position, partition or leader that wasn't there before."""
        leader = self._client.cluster.leader
        leaders = {leader(reader.topic, reader.partition) for reader in self._all()} - {None}
        if not self._client.closing:
            # All of them are there before the first one begins: each takes its share of the room.
            new = [BrokerLoop(self._client, self, broker_id) for broker_id in leaders - set(self.loops)]
            self.loops.update({loop.broker_id: loop for loop in new})
            for loop in new:
                self._client.spawn(self._run(loop))
        self.room.ring()
        self._tending.ring()

    # -- what the loops ask

    @gen.coroutine
    def _run(self, loop):
        try:
            yield loop.run()
        except Exception as error:
            log.exception("fetching from broker %d failed", loop.broker_id)
            told = KielError("fetching from broker %d failed, and is tried again: %r" % (loop.broker_id, error))
            for reader in self.led_by(loop.broker_id):
                self.fail(reader, told)
            yield self._client.rest(ERROR_PAUSE_SECONDS)
        finally:
            del self.loops[loop.broker_id]
        # A partition may have come while this loop was ending and still in the way of a new one.
        self.wake()

    def receive(self, response):
        """Take in a FetchResponse."""
        if response.broker_id in self.loops:
            self.loops[response.broker_id].receive(response)

    def led_by(self, broker_id):
        leader = self._client.cluster.leader
        return [reader for reader in self._all() if leader(reader.topic, reader.partition) == broker_id]

    @property
    def bytes_held(self):
        """What is fetched and not handed out yet, and what requests under way may bring."""
        return sum(reader.buffered for reader in self._all()) + sum(loop.reserved for loop in self.loops.values())

    def _all(self):
        return [reader for held in self.readers.values() for reader in held.values()]

    # -- following the metadata

    def heal(self):
        """Ask for metadata soon; what came in beside the error that calls for it isn't held up by that."""
        self._stale = True
        self._tending.ring()

    @gen.coroutine
    def _tend(self):
        """Ask for metadata when it is stale, and as long as a partition has no leader."""
        client, failures = self._client, 0
        while not client.closing:
            leaders = [client.cluster.leader(reader.topic, reader.partition) for reader in self._all()]
            if self._stale or None in leaders:
                self._stale = False
                yield client.cluster.heal()
                yield client.rest(client.backoff(failures))
                failures += 1
            else:
                failures = 0
                yield self._tending.wait(client.metadata_max_age_ms / 1000.0)

    def _metadata_changed(self):
        cluster, now = self._client.cluster, self._client.loop.time()
        for topic in list(self.readers):
            if topic in cluster.topics:
                self._missing_since.pop(topic, None)
                self._check_same(topic, cluster.topic_ids.get(topic))
            elif isinstance(cluster.topic_errors.get(topic), UnknownTopicError):
                if now - self._missing_since.setdefault(topic, now) >= GONE_SECONDS:
                    positions = {number: reader.position for number, reader in self.readers[topic].items()}
                    self.gone[topic] = (self._topic_ids.get(topic), positions)
                    self.drop_topic(topic)
                    self._client.topic_gone(topic, cluster.topic_errors[topic])
            else:
                self._tell_refusal(topic, cluster.topic_errors.get(topic))
        self.wake()

    def _tell_refusal(self, topic, error):
        """Without metadata nothing is fetched, so no fetch would tell that the topic is refused."""
        if error is None or error.retriable:
            return
        for reader in self.readers[topic].values():
            if reader.error is None and reader.not_before <= self._client.loop.time():
                self.fail(reader, error)

    def come_back(self, topic):
        """Whether a topic that was gone is the same as before, by its id; it goes on where it was then."""
        topic_id, positions = self.gone[topic]
        if not _is_id(topic_id) or topic_id != self._client.cluster.topic_ids.get(topic):
            return False
        self.add_partitions(topic, positions, EARLIEST)
        return True

    def _check_same(self, topic, topic_id):
        """Begin anew with a topic that was made again. (Brokers before Kafka 2.8 tell no ids, or zeros.)"""
        known = self._topic_ids.get(topic)
        if not _is_id(topic_id):
            return
        self._topic_ids[topic] = topic_id
        if not _is_id(known) or known == topic_id:
            return
        log.info("topic %s was deleted and made again; it is read from its beginning", topic)
        held = self.readers[topic]
        self.drop_partitions(topic, set(held) - set(self._client.cluster.topics[topic]))
        for reader in held.values():
            reader.seek_by(EARLIEST)
        self._client.topic_made_again(topic)


def _is_id(topic_id):
    return topic_id is not None and bool(topic_id.strip(b"\0"))


def _same(error, other):
    return isinstance(error, BrokerError) and isinstance(other, BrokerError) and error.code == other.code
