"""SingleConsumer: all partitions of a topic, for a process that shares them with no other."""
import datetime

from tornado import gen

from kiel.clients.consumer import BaseConsumer
from kiel.clients.times import ago, milliseconds
from kiel.exc import ConfigurationError, DeadlineError, NoBrokersError, UnknownTopicError
from kiel.protocol.list_offsets import EARLIEST, LATEST

# A topic's metadata is waited for at least so long before the topic counts as unknown, however short
# max_wait_time is.
LEAST_WAIT_MS = 1000


class SingleConsumer(BaseConsumer):
    """Reads all partitions of each topic that it is asked for, from `start` on; nothing is committed.

        consumer = SingleConsumer(["localhost:9092"])
        yield consumer.connect()
        events = yield consumer.consume("events", start=SingleConsumer.BEGINNING)

    `start` is ``SingleConsumer.BEGINNING``, ``SingleConsumer.END`` (the default: what is produced from now
    on), a datetime (naive means UTC) or a timedelta back from now. It counts the first time that a topic is
    asked for; ``seek`` moves about later. Partitions that are added to a topic later are read from their
    beginning, and so is a topic that didn't exist yet when it was asked for.

    The arguments are those of BaseConsumer; `auto_offset_reset` is "earliest" by default, so that a reader
    that fell behind the broker's retention loses no more than is lost already.
    """

    BEGINNING = EARLIEST
    END = LATEST

    def __init__(self, brokers, auto_offset_reset="earliest", **options):
        super(SingleConsumer, self).__init__(brokers, auto_offset_reset=auto_offset_reset, **options)

    @gen.coroutine
    def connect(self):
        yield super(SingleConsumer, self).connect()
        self.cluster.on_change.append(self._add_new_partitions)

    def consume(self, topic, start=None, max_records=None):
        _check_start(start)
        return super(SingleConsumer, self).consume(topic, start, max_records)

    def consume_records(self, topic, start=None, max_records=None):
        _check_start(start)
        return super(SingleConsumer, self).consume_records(topic, start, max_records)

    consume.__doc__, consume_records.__doc__ = BaseConsumer.consume.__doc__, BaseConsumer.consume_records.__doc__

    @gen.coroutine
    def _prepare(self, topic, start, deadline):
        if topic in self.synced_offsets:
            return
        if topic not in self._fetcher.gone:
            yield self.determine_offsets(topic, start)
            return
        try:
            yield self.cluster.topic(topic, max(0, deadline - self.loop.time()) * 1000)
        except (UnknownTopicError, DeadlineError, NoBrokersError):
            return
        if self._fetcher.come_back(topic):
            self.synced_offsets.add(topic)
            self._add_new_partitions()
        else:
            yield self.determine_offsets(topic, self.BEGINNING)

    @gen.coroutine
    def determine_offsets(self, topic, start=None):
        """Find the offset of every partition of the topic at `start` (ListOffsets API), and go on from there.

        Partitions whose leader can't be reached are left for later, as long as there are others.

        UnknownTopicError when the topic isn't there within `max_wait_time` (and a second at least);
        DeadlineError with the last cause when nothing is found within `api_timeout_ms`.
        """
        self.check_usable()
        _check_start(start)
        partitions = yield self._partitions(topic)
        timestamp = _timestamp(start)
        found = yield self.find_offsets({(topic, partition): timestamp for partition in partitions}, in_part=True)
        none_since = {place: LATEST for place, result in found.items() if result.offset < 0}
        if none_since:
            ends = yield self.find_offsets(none_since)
            found.update(ends)
        offsets = dict.fromkeys(partitions)
        offsets.update({partition: result.offset for (_, partition), result in found.items()})
        self._fetcher.add_partitions(topic, offsets, timestamp)
        self.synced_offsets.add(topic)
        self._add_new_partitions()

    @gen.coroutine
    def _partitions(self, topic):
        """The partitions of a topic; errors as of determine_offsets."""
        deadline = self.loop.time() + self.api_timeout_ms / 1000.0
        while True:
            try:
                partitions = yield self.cluster.topic(topic, max(self.max_wait_time, LEAST_WAIT_MS))
                raise gen.Return(list(partitions))
            except UnknownTopicError:
                self._fetcher.gone.setdefault(topic, (None, {}))
                raise
            except (DeadlineError, NoBrokersError):
                if self.closing or self.loop.time() > deadline:
                    raise

    def _add_new_partitions(self):
        for topic in self.synced_offsets:
            new = set(self.cluster.topics.get(topic, ())) - set(self._fetcher.readers.get(topic, ()))
            if new:
                self._fetcher.add_partitions(topic, dict.fromkeys(new), EARLIEST)


def _check_start(start):
    if start is not None and start not in (EARLIEST, LATEST):
        if not isinstance(start, (datetime.datetime, datetime.timedelta)):
            raise ConfigurationError(
                "start has to be SingleConsumer.BEGINNING, SingleConsumer.END, a datetime or a timedelta, not %r"
                % (start,)
            )


def _timestamp(start):
    if start is None:
        return LATEST
    if isinstance(start, datetime.timedelta):
        return ago(start)
    return milliseconds(start) if isinstance(start, datetime.datetime) else start
