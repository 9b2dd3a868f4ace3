"""What all consumers share: handing out batches, acknowledging them, and moving about in the partitions."""
import collections
import json
import logging

import six
from tornado import gen
from tornado.concurrent import Future

from kiel import constants, futures, settings
from kiel.clients.delivery import Delivery, as_records, as_values
from kiel.clients.fetcher import Fetcher
from kiel.clients.handover import Handover
from kiel.clients.iterator import RecordIterator
from kiel.clients.lookup import OffsetLookup
from kiel.exc import ClosedError, ConfigurationError, UsageError

log = logging.getLogger(__name__)

# Longer names can't be topics, and a name that no request can carry would be asked for again and again.
MOST_TOPIC_CHARACTERS = 249

_decode_json = json.JSONDecoder().decode


def from_json(value):
    """The default deserializer: the value of a JSON text in UTF-8."""
    return _decode_json(value.decode("utf-8"))


def _check_topic(topic):
    if not isinstance(topic, six.string_types) or not 0 < len(topic) <= MOST_TOPIC_CHARACTERS:
        raise ConfigurationError(
            "topic has to be a text of 1 to %d characters, not %r" % (MOST_TOPIC_CHARACTERS, topic)
        )


class _Call(object):
    """A consume() under way: ``asked`` is the application's Future, ``ended`` that of the work for it."""

    __slots__ = ("asked", "ended", "delivery", "in_hand")

    def __init__(self, delivery):
        self.asked, self.ended, self.delivery, self.in_hand = Handover(), None, delivery, None


class BaseConsumer(OffsetLookup):
    """Hands out the records of the partitions that it is allocated, in batches.

    :param brokers: as for :class:`~kiel.clients.client.Client`, as are the keyword arguments that aren't
        listed here
    :param deserializer: turns a record's value (bytes) into what is handed out; JSON by default, `bytes`
        leaves it as it is. A null value is None and isn't given to it.
    :param max_wait_time: milliseconds that ``consume`` waits for records; a broker waits half of that for
        `min_bytes` of them, so that a partition that is added to what it was asked for (by ``seek``, say) is
        read in the same call
    :param min_bytes: how much a broker gathers before it answers sooner than that
    :param max_bytes: how many bytes of one partition a fetch brings, and about how many ``consume`` hands out
        at most; a single record that is larger is delivered all the same
    :param prefetch_bytes: how many bytes in all are fetched ahead of the application
    :param on_error: what happens to a record whose value can't be deserialized: "skip" (a warning names it,
        and ``skipped`` counts it), "raise" (DeserializationError; the next call goes on after it), or a
        function (record with the raw value, error), which may be a coroutine; if that raises, the record
        comes again
    :param auto_offset_reset: where a partition goes on whose offset is out of range: "earliest", "latest" or
        "none" (NoOffsetsError)
    :param isolation_level: "read_uncommitted", or "read_committed" to leave out what transactions have not
        committed
    """

    def __init__(
        self,
        brokers,
        deserializer=None,
        max_wait_time=1000,
        min_bytes=1,
        max_bytes=1024 * 1024,
        prefetch_bytes=16 * 1024 * 1024,
        on_error="skip",
        auto_offset_reset="latest",
        isolation_level="read_uncommitted",
        **client_options
    ):
        super(BaseConsumer, self).__init__(brokers, **client_options)
        self.deserializer = settings.function("deserializer", deserializer) or from_json
        self.max_wait_time = settings.number("max_wait_time", max_wait_time, 1)
        self.min_bytes = settings.whole("min_bytes", min_bytes, 1)
        self.max_bytes = settings.whole("max_bytes", max_bytes, 1, constants.MAX_FRAME_BYTES // 2)
        self.prefetch_bytes = settings.whole("prefetch_bytes", prefetch_bytes, self.max_bytes)
        self.on_error = on_error if callable(on_error) else settings.one_of("on_error", on_error, ("skip", "raise"))
        self.auto_offset_reset = settings.one_of("auto_offset_reset", auto_offset_reset, ("earliest", "latest", "none"))
        settings.one_of("isolation_level", isolation_level, ("read_uncommitted", "read_committed"))
        self.read_committed = isolation_level == "read_committed"
        self.synced_offsets = set()
        self.acknowledged = {}
        self.skipped = collections.Counter()
        self._fetcher = Fetcher(self)
        self._in_hand = {}
        self._calls = {}
        self._news = {}
        self._slice_end = 0

    # -- life

    @gen.coroutine
    def connect(self):
        yield super(BaseConsumer, self).connect()
        self._fetcher.start()

    @gen.coroutine
    def close(self, acknowledge=False, timeout_ms=30000):
        """Stop consuming, and give back every socket and task; a consume() that waits ends with ClosedError.

        A batch that is still in the application's hands counts as handled only with `acknowledge`.
        """
        if not self.closing:
            if acknowledge:
                self.acknowledge()
            self._mention_in_hand()
        yield super(BaseConsumer, self).close(timeout_ms)

    def _mention_in_hand(self):
        for topic, handed_out in sorted(self._in_hand.items()):
            count = sum(count for _, count in handed_out.values())
            if count:
                log.info(
                    "closing: the last %d records of %s were not acknowledged and will come again; "
                    "close(acknowledge=True) or acknowledge(%r) says that they were handled",
                    count,
                    topic,
                    topic,
                )

    @gen.coroutine
    def wind_down(self):
        """Wake whatever waits, so that it sees that the consumer is closing."""
        self._fetcher.stop()

    # -- what this consumer reads

    @property
    def allocation(self):
        """{topic: [partitions]} that this consumer reads."""
        return {topic: list(held) for topic, held in self._fetcher.readers.items()}

    @property
    def offsets(self):
        """{topic: {partition: offset}}: the positions that are known."""
        return {
            topic: {number: reader.position for number, reader in held.items() if reader.position is not None}
            for topic, held in self._fetcher.readers.items()
        }

    @gen.coroutine
    def determine_offsets(self, topic, start=None):
        """Find where each partition of the topic begins. Each kind of consumer has its own way."""
        raise NotImplementedError

    # -- handing out

    def consume(self, topic, start=None, max_records=None):
        """A Future of the topic's next records: a list of deserialized values, in order in each partition.

        The list is empty when `max_wait_time` has passed without any. Asking for the next batch acknowledges
        the one before. `start` says where to begin, the first time that the topic is asked for. A Future that
        is cancelled (asyncio) takes nothing: the records come with the next call.

        :param max_records: at most so many; without it a batch is about `max_bytes` at most
        :raises UsageError: not connected, or a consume() of the topic is under way
        :raises ClosedError: the consumer was closed
        :raises UnknownTopicError: the topic doesn't exist, or was deleted; told once, then it is waited for
        :raises CorruptRecordError: records can't be read; ``seek`` passes over them, the next call tries
            again
        :raises DeserializationError: with ``on_error="raise"``
        :raises NoOffsetsError: with ``auto_offset_reset="none"``
        :raises BrokerError: what the broker refuses, for instance AuthorizationError
        """
        return self._hand_out(topic, start, max_records, as_values)

    def consume_records(self, topic, start=None, max_records=None):
        """The same as ``consume``, with a :class:`~kiel.Record` for each record."""
        return self._hand_out(topic, start, max_records, as_records)

    def records(self, topic, start=None):
        """An asynchronous iterator over the topic's Records (Python 3); it ends when the consumer is closed.

        A record is acknowledged when the next one is asked for, and nothing is taken ahead: after a
        ``break``, consume() or another iterator goes on right behind the last record.
        """
        return RecordIterator(self, topic, start)

    def ready_record(self, topic):
        """A Future that has the topic's next Record already; None where it takes waiting.

        None, too, when the loop is due its turn. Otherwise as ``consume_records`` of one record.
        """
        if self.closing or topic in self._calls or topic in self._news or topic not in self.synced_offsets:
            return None
        if self.loop.time() >= self._slice_end:
            self._slice_end = self.loop.time() + constants.SLICE_SECONDS
            return None
        delivery = self._delivery(as_records, 1)
        for reader in self._fetcher.turn(topic):
            delivery.take_ready(reader)
            if delivery.values:
                self.acknowledge(topic)
                self._in_hand[topic] = delivery.handed_out()
                ready = Future()
                ready.set_result(delivery.values[0])
                return ready
        return None

    def _delivery(self, form, max_records):
        return Delivery(
            self.deserializer, self.on_error, form, max_records, self.max_bytes, self.skipped, self.loop.time
        )

    def _hand_out(self, topic, start, max_records, form):
        self.check_usable()
        _check_topic(topic)
        if max_records is not None:
            settings.whole("max_records", max_records, 1)
        before = self._calls.get(topic)
        if before is not None and not before.asked.done():
            raise UsageError("a consume() of %s is under way: wait for it before asking for more" % topic)
        self.acknowledge(topic)
        call = self._calls[topic] = _Call(self._delivery(form, max_records))
        call.asked.give_back = lambda: self._give_back(topic, call)
        call.asked.add_done_callback(lambda _: self._fetcher.ring(topic))
        call.ended = self._next_batch(topic, start, call, before)
        call.ended.add_done_callback(lambda ended: self._handed_out(topic, call, ended))
        return call.asked

    @gen.coroutine
    def _next_batch(self, topic, start, call, before):
        """Fill the call's delivery; `before` is a call that was cancelled and may still be at work."""
        if before is not None:
            yield futures.ended([before.ended])
        deadline = self.loop.time() + self.max_wait_time / 1000.0
        yield self._prepare(topic, start, deadline)
        delivery = call.delivery
        while not call.asked.done():
            self._tell_errors(topic)
            yield delivery.gather(self._fetcher.turn(topic), lambda: self._is_enough(call, deadline))
            self._fetcher.room.ring()
            if self.closing or call.asked.done():
                continue
            if delivery.values:
                return
            self._tell_errors(topic)
            if delivery.error is not None:
                raise delivery.error
            remaining = deadline - self.loop.time()
            if remaining <= 0:
                return
            if not self._fetcher.has_buffered(topic):
                yield self._fetcher.wait(topic, remaining)

    def _is_enough(self, call, deadline):
        """Whether a call ends with what it has; records that are all skipped must not keep it past its time."""
        if self.closing or call.asked.done():
            return True
        return not call.delivery.values and self.loop.time() >= deadline

    def _handed_out(self, topic, call, ended):
        if self._calls.get(topic) is call:
            del self._calls[topic]
        # The application's Future holds the call (by give_back). If the call held the Future too, all that
        # was handed out would lie about until the garbage collector comes, and take it long.
        asked, call.asked = call.asked, None
        error = ended.exception()
        if asked.done():
            call.delivery.rewind()
            self._fetcher.wake()
            if error is not None and not self.closing:
                log.warning("a consume() of %s that was cancelled failed: %s", topic, error)
        elif error is not None and self.closing:
            asked.set_exception(error if isinstance(error, ClosedError) else self._closed())
        else:
            self._in_hand[topic] = call.in_hand = call.delivery.handed_out()
            if error is not None:
                asked.set_exception(error)
            else:
                asked.set_result(call.delivery.values)

    def _give_back(self, topic, call):
        """What a call handed out didn't arrive: let it come again."""
        if not self.closing and self._in_hand.get(topic) is call.in_hand:
            del self._in_hand[topic]
            call.delivery.rewind()
            self._fetcher.wake()

    def waits_for(self, topic):
        """Whether a consume() of the topic is under way."""
        return topic in self._calls

    def _closed(self):
        return ClosedError("this %s is closed" % type(self).__name__)

    @gen.coroutine
    def _prepare(self, topic, start, deadline):
        """See to it that positions in the topic are known. Each kind of consumer has its own way."""
        raise NotImplementedError

    def _tell_errors(self, topic):
        if self.closing:
            raise self._closed()
        error = self._news.pop(topic, None) or self._fetcher.take_error(topic)
        if error is not None:
            raise error

    def topic_gone(self, topic, error):
        """The topic was deleted: the next consume() of it says so, once."""
        self.synced_offsets.discard(topic)
        self.topic_made_again(topic)
        self._news[topic] = error
        self._fetcher.ring(topic)

    def topic_made_again(self, topic):
        """The topic isn't the same any more: what was acknowledged of it says nothing about it now."""
        self._in_hand.pop(topic, None)
        self.acknowledged.pop(topic, None)

    def acknowledge(self, topic=None):
        """Count the last batch of the topic (of every topic, if none is named) as handled.

        ``acknowledged`` is {topic: {partition: offset of the next record}}.
        """
        for name in [topic] if topic is not None else list(self._in_hand):
            for partition, (next_offset, _) in self._in_hand.pop(name, {}).items():
                self.acknowledged.setdefault(name, {})[partition] = next_offset

    # -- moving about

    def _reader(self, topic, partition):
        self.check_usable()
        try:
            return self._fetcher.readers[topic][partition]
        except KeyError:
            raise UsageError("%s[%r] isn't allocated to this consumer; it has %r" % (topic, partition, self.allocation))

    def seek(self, topic, partition, offset):
        """Go on at `offset` in the partition; what was fetched of it is dropped."""
        settings.whole("offset", offset, 0)
        self._reader(topic, partition).seek(offset)
        self._fetcher.wake()

    def position(self, topic, partition):
        """The offset of the partition's next record to be handed out; None while it isn't known."""
        return self._reader(topic, partition).position

    def pause(self, topic, partitions=None):
        """Hand out nothing of these partitions (if none are named, of the whole topic) until ``resume``.

        UsageError for what isn't allocated to this consumer (yet): see ``determine_offsets``.
        """
        self._set_paused(topic, partitions, True)

    def resume(self, topic, partitions=None):
        """Go on with paused partitions, where they were."""
        self._set_paused(topic, partitions, False)

    def _set_paused(self, topic, partitions, paused):
        numbers = partitions if partitions is not None else list(self._fetcher.readers.get(topic, ()))
        if not numbers:
            raise UsageError("nothing of %s is allocated to this consumer; it has %r" % (topic, self.allocation))
        for reader in [self._reader(topic, number) for number in numbers]:
            reader.paused = paused
        self._fetcher.wake()
        self._fetcher.ring(topic)

    def paused(self, topic):
        """The topic's paused partitions, in order."""
        return [number for number, reader in self._fetcher.readers.get(topic, {}).items() if reader.paused]

    def lag(self, topic):
        """{partition: how many offsets its position is behind its end, or None before the first fetch told}.

        The end is the high watermark, or with "read_committed" the last stable offset.
        """
        self.check_usable()
        return {
            number: None if reader.end is None or reader.position is None else max(0, reader.end - reader.position)
            for number, reader in self._fetcher.readers.get(topic, {}).items()
        }

    def handle_fetch_response(self, response):
        """Take in what a fetch brought."""
        self._fetcher.receive(response)
