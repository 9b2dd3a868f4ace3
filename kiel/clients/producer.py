"""The Producer: records on their way to the leaders of their partitions.

A record goes from `produce` to the accumulator (kiel.clients.batching) at once if its topic is known and there is
room. Else it waits in a line: its topic's until that is known, then the one for room, so that the order of calls
is kept. What the accumulator has is sent by a Sender (kiel.clients.sender).
"""
import collections
import json
import logging
import numbers
import random
import sys
import time

import six
from tornado import gen
from tornado.concurrent import Future

from kiel import compression as codecs
from kiel import constants, futures, settings
from kiel.clients import batching, sender
from kiel.clients import partitioner as partitioning
from kiel.clients.client import Client
from kiel.clients.record import RecordMetadata
from kiel.clients.times import milliseconds
from kiel.exc import (
    ConfigurationError,
    DeadlineError,
    KielError,
    ProduceError,
    RecordTooLargeError,
    place_of,
    text_of,
)
from kiel.protocol import records

log = logging.getLogger(__name__)

# What a record's Future and metadata take beside its bytes, about; it counts towards buffer_bytes.
FUTURE_BYTES = 256

_ACKS = {"all": -1, -1: -1, 0: 0, 1: 1}


_encode_json = json.JSONEncoder(sort_keys=True).encode


def to_json(message):
    """The default serializer: JSON with sorted keys, as UTF-8."""
    return _encode_json(message).encode("utf-8")


class _Topic(object):
    """A topic's sorted ``partitions`` (None until they are known), and in ``line`` who waits for them.

    ``used_at`` is the loop's time when something was last produced to it.
    """

    __slots__ = ("name", "partitions", "sticky", "line", "used_at")

    def __init__(self, name):
        self.name, self.partitions, self.sticky, self.used_at = name, None, None, 0
        self.line = collections.deque()


_Entry = collections.namedtuple(
    "_Entry",
    (
        "topic", "waiter", "partition", "timestamp", "key", "value", "headers", "size", "cost", "deadline",
        "generation",
    ),
)  # fmt: skip


class _Tally(object):
    """Stands in for the Futures of all records of one produce_many; no more are taken when it ``is_over``."""

    __slots__ = ("taken", "acknowledged", "failed", "error", "is_over", "is_cancelled")

    def __init__(self):
        self.taken = self.acknowledged = self.failed = 0
        self.error, self.is_over, self.is_cancelled = None, False, False

    def result_ended(self, future):
        if future.cancelled():
            self.is_over = self.is_cancelled = True


class Producer(Client):
    """Sends records.

    :param brokers: as for :class:`~kiel.clients.client.Client`, as are the keyword arguments not listed here
    :param serializer: message -> bytes (text is encoded as UTF-8); JSON with sorted keys by default. A message
        that is None isn't handed to it: that is a record with a null value
    :param key_maker: message -> key, for records that are produced without one
    :param partitioner: (key as bytes or None, sorted list of the topic's partition ids) -> partition id, for
        records that are produced without a partition. By default a key decides as in the Java client, and records
        without a key stick to one partition a batch
    :param batch_size: the most records of a batch
    :param batch_bytes: the most bytes of a batch, before compression; a larger record has a batch of its own
    :param linger_ms: how long a batch waits for more records; with 0 it goes as soon as the broker's connection
        and its partition (which has one batch in flight at a time) are free
    :param compression: None or "gzip"
    :param compression_level: the codec's own, None for its default
    :param required_acks: "all" or -1 (all replicas in sync), 1 (the leader), or 0 (none: records are gone
        once they are written, and their offset is -1)
    :param ack_timeout: milliseconds that the broker may wait for replicas; at most request_timeout_ms count
    :param delivery_timeout_ms: how long a record may take in all, waiting and retries included
    :param buffer_bytes: how much may be unacknowledged; past that, records wait for room
    :param max_request_bytes: the most bytes of a request, and of a record
    :param enable_idempotence: whether retries can't make duplicates (KIP-98). True needs required_acks="all"
        and Kafka 0.11; None means wherever these are given
    :param metadata_max_idle_ms: how long metadata of a topic is kept fresh after the last record for it
    """

    def __init__(
        self,
        brokers,
        serializer=None,
        key_maker=None,
        partitioner=None,
        batch_size=10000,
        batch_bytes=1024 * 1024,
        linger_ms=0,
        compression=None,
        compression_level=None,
        required_acks=-1,
        ack_timeout=10000,
        delivery_timeout_ms=120000,
        buffer_bytes=32 * 1024 * 1024,
        max_request_bytes=8 * 1024 * 1024,
        enable_idempotence=None,
        metadata_max_idle_ms=300000,
        **client_settings
    ):
        super(Producer, self).__init__(brokers, **client_settings)
        self.serializer = settings.function("serializer", serializer) or to_json
        self.key_maker = settings.function("key_maker", key_maker)
        self.partitioner = settings.function("partitioner", partitioner)
        self.batch_size = settings.whole("batch_size", batch_size, 1)
        self.batch_bytes = settings.whole("batch_bytes", batch_bytes, 1)
        self.linger_ms = settings.number("linger_ms", linger_ms)
        self.compression, self.compression_level = compression, compression_level
        self.required_acks = _ACKS[settings.one_of("required_acks", required_acks, ("all", -1, 0, 1))]
        self.ack_timeout = settings.whole("ack_timeout", ack_timeout)
        self.delivery_timeout_ms = settings.number("delivery_timeout_ms", delivery_timeout_ms, 1)
        self.buffer_bytes = settings.whole("buffer_bytes", buffer_bytes, 1024)
        self.max_request_bytes = settings.whole("max_request_bytes", max_request_bytes, 1024)
        self.enable_idempotence = settings.one_of(
            "enable_idempotence", enable_idempotence, (None, True, False)
        )
        self.metadata_max_idle_ms = settings.number("metadata_max_idle_ms", metadata_max_idle_ms, 1)
        if enable_idempotence and self.required_acks != -1:
            raise ConfigurationError(
                'enable_idempotence=True needs required_acks "all", not %r' % (required_acks,)
            )
        self._codec = codecs.number(compression)
        codecs.check(self._codec, compression_level)
        self._accumulator = batching.Accumulator(
            self._new_builder, self.batch_size, self.batch_bytes, self.linger_ms / 1000.0,
            self.max_request_bytes, self.backoff,
            is_idempotent=self.required_acks == -1 and enable_idempotence is not False,
        )  # fmt: skip
        self._topics = {}
        self._line = collections.deque()
        # {generation of the accumulator: number of its records that are not yet acknowledged}
        self._unsent = collections.Counter()
        # Rings whenever records have ended, or a line has moved.
        self._progress = futures.Bell()
        self._close_timeout_ms = None
        self._sender = sender.Sender(
            self, self._accumulator, self._settle, self._tend, self.required_acks,
            int(min(self.ack_timeout, self.request_timeout_ms)), bool(enable_idempotence),
        )  # fmt: skip

    def _new_builder(self):
        return records.BatchBuilder(self._codec, self.compression_level)

    @property
    def unsent_count(self):
        """How many records were produced and are not yet acknowledged."""
        return sum(six.itervalues(self._unsent))

    @gen.coroutine
    def connect(self):
        """Reach the cluster; NoBrokersError lists each broker's address with the reason why it can't be."""
        yield super(Producer, self).connect()
        self.cluster.auto_create = True
        self.cluster.on_change.append(self._metadata_changed)

    # -- what the application calls

    def produce(self, topic, message, key=None, partition=None, timestamp=None, headers=None):
        """A Future of the record's RecordMetadata (topic, partition, offset, timestamp): it is acknowledged then.

        The record is sent whether or not that is yielded. Calls that aren't yielded one by one share batches, and
        their order is kept in each partition. `key` is text (encoded as UTF-8), bytes, a bytearray or None.
        `timestamp` is a datetime (naive means UTC) or milliseconds since 1970, by default now. `headers` is a
        dict or a list of (text, text or bytes or None).

        The Future raises ProduceError, with its ``cause``; a warning is logged too, for whoever doesn't look.
        UsageError is raised at once by a producer that is closed or not connected.
        """
        self.check_usable()
        future = Future()
        self._take(future, topic, message, key, partition, timestamp, headers, self.key_maker, FUTURE_BYTES)
        return future

    def produce_many(self, topic, messages, key=None, partition=None):
        """Produce all of an iterable and give the number of records, once the last of them is acknowledged.

        The iterable is read while there is room in `buffer_bytes`, in slices of at most 5 ms. `key` is a function
        of the message and stands in for ``key_maker``.

        A record that is at fault itself (its serializer fails, it is too large) doesn't end the reading, any other
        failure does. When all that was read has ended, the first failure is raised: a ProduceError with the
        numbers of records ``acknowledged`` and ``failed``. The iterable's own errors are raised as they are, and
        ConfigurationError for a `topic`, `partition` or `key` that can't be right.

        Where the Future is cancelled (Python 3), reading ends; what was read by then is sent.
        """
        tally = _Tally()
        future = self._produce_all(tally, topic, messages, key, partition)
        future.add_done_callback(tally.result_ended)
        return future

    @gen.coroutine
    def _produce_all(self, tally, topic, messages, key, partition):
        self.check_usable()
        _check_place(topic, partition)
        key_maker = settings.function("key", key) or self.key_maker
        broken = None
        try:
            yield self._read(tally, topic, messages, partition, key_maker)
        except Exception:  # the iterable is the application's: any error of its may come
            broken = sys.exc_info()
        while tally.acknowledged + tally.failed < tally.taken and not tally.is_cancelled:
            yield self._progress.wait(self.delivery_timeout_ms / 1000.0)
        if tally.is_cancelled:
            return
        if broken is not None:
            six.reraise(*broken)
        if tally.error is not None:
            tally.error.acknowledged, tally.error.failed = tally.acknowledged, tally.failed
            raise tally.error
        raise gen.Return(tally.acknowledged)

    @gen.coroutine
    def _read(self, tally, topic, messages, partition, key_maker):
        started = self.loop.time()
        for message in messages:
            self._take(tally, topic, message, None, partition, None, None, key_maker, 0)
            tally.taken += 1
            if self._line or (topic in self._topics and self._topics[topic].line):
                yield self._until_admitted(topic)
            elif self.loop.time() - started > constants.SLICE_SECONDS:
                yield gen.moment
            else:
                continue
            if tally.is_over:
                return
            self.check_usable()
            started = self.loop.time()

    @gen.coroutine
    def _until_admitted(self, topic):
        while self._line or self._topics[topic].line:
            yield self._progress.wait(self.delivery_timeout_ms / 1000.0)

    @gen.coroutine
    def flush(self, timeout_ms=None):
        """Send all that was produced so far without lingering, and wait until it is acknowledged or has failed.

        DeadlineError if that takes longer than `timeout_ms`; nothing is lost by it. What fails is raised where it
        was produced.
        """
        self.check_usable()
        yield self._flush(timeout_ms)

    @gen.coroutine
    def _flush(self, timeout_ms):
        last = self._accumulator.flush()
        self._sender.schedule()
        deadline = None if timeout_ms is None else self.loop.time() + timeout_ms / 1000.0
        while any(generation <= last for generation in self._unsent):
            left = self.delivery_timeout_ms / 1000.0 if deadline is None else deadline - self.loop.time()
            if left <= 0:
                number = sum(count for generation, count in six.iteritems(self._unsent) if generation <= last)
                raise DeadlineError("%d records were not acknowledged within %d ms" % (number, timeout_ms))
            yield self._progress.wait(left)

    def close(self, timeout_ms=30000):
        """Flush, and give back every socket and task; a second call does nothing.

        What isn't acknowledged within `timeout_ms` fails with a ProduceError, and DeadlineError is raised here.
        """
        self._close_timeout_ms = timeout_ms
        # The flush below has its own end, so that the records are failed before the connections are.
        return super(Producer, self).close(timeout_ms + 1000)

    @gen.coroutine
    def wind_down(self):
        """Flush; what can't be sent in time fails."""
        try:
            yield self._flush(self._close_timeout_ms)
        except DeadlineError as error:
            self._fail_everything(error)
            raise
        finally:
            self._sender.stop()

    # -- records come in

    def _take(self, waiter, topic, message, key, partition, timestamp, headers, key_maker, cost):
        """Encode a record and put it where it waits; if that can't be, it alone fails."""
        try:
            if key is None and key_maker is not None:
                key = key_maker(message)
            value = None if message is None else partitioning.to_bytes(self.serializer(message))
            key = partitioning.to_bytes(key)
            timestamp = int(time.time() * 1000) if timestamp is None else milliseconds(timestamp)
            if headers is not None:
                headers = _to_headers(headers)
            _check_place(topic, partition)
            size = records.record_size(key, value, headers)
            cost += size
            self._check_size(size, cost)
        except Exception as error:  # serializer and key_maker are the application's: any error may come
            self._fail([waiter], topic, partition if isinstance(partition, numbers.Integral) else None, error, True)
            return
        known = self._topics.get(topic)
        if known is None:
            known = self._topics[topic] = _Topic(topic)
        generation = self._accumulator.generation
        self._unsent[generation] += 1
        known.used_at = self.loop.time()
        deadline = known.used_at + self.delivery_timeout_ms / 1000.0
        if known.partitions is not None and not self._line and self._has_room(cost):
            self._admit(
                known, waiter, partition, timestamp, key, value, headers, size, cost, deadline, generation
            )  # fmt: skip
            return
        entry = _Entry(
            known, waiter, partition, timestamp, key, value, headers, size, cost, deadline, generation
        )  # fmt: skip
        if known.partitions is not None:
            self._line.append(entry)
        else:
            known.line.append(entry)
            if len(known.line) == 1:
                self.spawn(self._look_up(known))
        self._sender.schedule()

    def _check_size(self, size, cost):
        if size > self.max_request_bytes:
            raise RecordTooLargeError(
                "a record of up to %d bytes is larger than max_request_bytes=%d" % (size, self.max_request_bytes)
            )
        if cost > self.buffer_bytes:
            raise RecordTooLargeError(
                "a record that takes %d bytes is over buffer_bytes=%d" % (cost, self.buffer_bytes)
            )

    def _has_room(self, cost):
        return self._accumulator.used_bytes + cost <= self.buffer_bytes

    def _admit(
        self, topic, waiter, partition, timestamp, key, value, headers, size, cost, deadline, generation
    ):  # fmt: skip
        """Put a record into the accumulator."""
        try:
            if partition is None:
                partition = self._choose(topic, key, size, generation)
            is_news = self._accumulator.append(
                topic.name, partition, timestamp, key, value, headers, size, cost, waiter, self.loop.time(),
                deadline, generation,
            )  # fmt: skip
        except Exception as error:  # the partitioner is the application's: any error of its may come
            self._count_off(generation, 1)
            self._fail([waiter], topic.name, partition, error, True)
            return
        if is_news:
            self._sender.schedule()

    def _choose(self, topic, key, size, generation):
        if self.partitioner is not None:
            partition = self.partitioner(key, list(topic.partitions))
            if partition not in topic.partitions:
                raise ValueError("partitioner chose %r, which is none of %r" % (partition, topic.partitions))
            return partition
        if key is not None:
            return partitioning.keyed(key, topic.partitions)
        if topic.sticky is None or not self._accumulator.takes(topic.name, topic.sticky, size, generation):
            led = [each for each in topic.partitions if self.cluster.leader(topic.name, each) is not None]
            topic.sticky = partitioning.sticky(topic.sticky, led or topic.partitions, random.random())
        return topic.sticky

    @gen.coroutine
    def _look_up(self, topic):
        """Find out the partitions of a topic for those who wait in its line."""
        while topic.line and not self._sender.is_over:
            deadline = topic.line[0].deadline
            try:
                found = yield self.cluster.topic(topic.name, max(0, deadline - self.loop.time()) * 1000)
            except KielError as error:
                # Those who came later may have more time left.
                self._fail_line(topic.line, error, deadline if batching.may_pass(error) else None)
            else:
                topic.partitions = sorted(found)
                self._line.extend(topic.line)
                topic.line.clear()
                self._admit_line()
        self._progress.ring()

    def _admit_line(self):
        """Put those who waited into the accumulator, for as long as a slice; the sender's next round goes on."""
        end = self.loop.time() + constants.SLICE_SECONDS
        while self._may_admit():
            if self.loop.time() > end:
                self._sender.schedule()
                break
            self._admit(*self._line.popleft())

    def _may_admit(self):
        return bool(self._line) and self._has_room(self._line[0].cost)

    def _fail_line(self, line, error, overdue=None):
        """Fail those who wait in a line; if `overdue` is a time, only those with a deadline up to then."""
        while line and (overdue is None or line[0].deadline <= overdue):
            entry = line.popleft()
            self._count_off(entry.generation, 1)
            self._fail([entry.waiter], entry.topic.name, entry.partition, error, False)
            self._progress.ring()

    def _tend(self, now):
        """Admit those whom there is room for, fail those who waited too long, and give the time when the next would."""
        self._fail_line(self._line, DeadlineError("there was no room in buffer_bytes in time"), now)
        if self._may_admit():
            self._admit_line()
            self._progress.ring()
        self._accumulator.is_room_wanted = bool(self._line) and not self._may_admit()
        return self._line[0].deadline if self._line else batching.NEVER

    def _metadata_changed(self):
        self._forget_idle_topics()
        for topic in six.itervalues(self._topics):
            known = self.cluster.topics.get(topic.name)
            if known and topic.partitions is not None:
                topic.partitions = sorted(known)
        self._sender.metadata_changed()

    def _forget_idle_topics(self):
        """Ask no more for topics that aren't used: asking creates one again that was deleted, where brokers do that."""
        # Nothing is unacknowledged past its delivery time-out.
        idle_ms = max(self.metadata_max_idle_ms, self.delivery_timeout_ms)
        before = self.loop.time() - idle_ms / 1000.0
        for topic in list(self._topics.values()):
            if topic.used_at < before and not topic.line:
                del self._topics[topic.name]
                self.cluster.forget(topic.name)

    def handle_produce_response(self, response):
        """Give each batch its answer: it is acknowledged, has failed, or is to be sent again."""
        return self._sender.take_produce_response(response)

    def handle_init_producer_id_response(self, response):
        """Take the producer id under which batches are numbered, or give the BrokerError that says why not."""
        return self._sender.take_init_producer_id_response(response)

    # -- records end

    def _settle(self, outcomes):
        """Tell those who wait for records what has become of them."""
        for each in outcomes:
            self._count_off(each.generation, len(each.waiters))
            if each.error is not None:
                self._fail(each.waiters, each.topic, each.partition, each.error, each.is_record_at_fault)
            else:
                self._acknowledge(each)
        if outcomes:
            self._admit_line()
            self._progress.ring()

    def _acknowledge(self, outcome):
        topic, partition, offset = outcome.topic, outcome.partition, outcome.offset
        append_time = outcome.append_time
        step = 1 if offset >= 0 else 0
        for waiter, timestamp in zip(outcome.waiters, outcome.timestamps):
            if waiter.__class__ is _Tally:
                waiter.acknowledged += 1
            elif not waiter.done():
                waiter.set_result(
                    RecordMetadata(topic, partition, offset, timestamp if append_time < 0 else append_time)
                )
            offset += step

    def _fail(self, waiters, topic, partition, cause, is_record_at_fault):
        log.warning(
            "records for %s that were not acknowledged: %d: %s",
            place_of(topic, partition), len(waiters), text_of(cause),
        )  # fmt: skip
        for waiter in waiters:
            if waiter.__class__ is _Tally:
                waiter.failed += 1
                waiter.error = waiter.error or ProduceError(topic, partition, cause)
                waiter.is_over = waiter.is_over or not is_record_at_fault
            elif not waiter.done():
                # One error each: a traceback grows on it wherever it is raised.
                waiter.set_exception(ProduceError(topic, partition, cause))
                # The log has told, so a Future that nobody looks at need not.
                waiter.exception()

    def _count_off(self, generation, count):
        self._unsent[generation] -= count
        if not self._unsent[generation]:
            del self._unsent[generation]

    def _fail_everything(self, error):
        for topic in six.itervalues(self._topics):
            self._fail_line(topic.line, error)
        self._fail_line(self._line, error)
        self._sender.stop()
        self._settle(self._accumulator.fail_all(error))


def _check_place(topic, partition):
    if partition is not None:
        settings.whole("partition", partition)
    if not isinstance(topic, six.string_types):
        raise ConfigurationError("a topic's name is text, not %r" % (topic,))


def _to_headers(headers):
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [
        (name.decode("utf-8") if isinstance(name, bytes) else name, partitioning.to_bytes(value))
        for name, value in pairs
    ]
