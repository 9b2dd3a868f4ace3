"""What a consumer has going on with one broker that leads any of its partitions: a request at a time."""
import collections
import logging

from tornado import gen

from kiel import constants
from kiel.clients import offsets
from kiel.clients.partition import Chunk
from kiel.exc import BrokerConnectionError, KielError, NoOffsetsError
from kiel.protocol import errors
from kiel.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from kiel.protocol.list_offsets import EARLIEST, LATEST

log = logging.getLogger(__name__)

# What auto_offset_reset asks the list-offsets API for.
RESETS = {"earliest": EARLIEST, "latest": LATEST}

# While some partitions of a broker hold all that they may, the others don't wait at the broker, so that room
# made in the meantime is used at once: the broker is asked for them so often as long as there is nothing.
HELD_BACK_SECONDS = 0.1

# A broker waits at least so long where there is nothing, however short max_wait_time is: it would be asked
# all the time.
LEAST_WAIT_MS = 50

# An offset that is out of range is asked for so often while there are records before it to be handed out.
OUT_OF_RANGE_PAUSE_SECONDS = 0.5

# After so long without success for a partition, a warning says what doesn't work. It is tried on. (Of brokers that
# can't be reached the cluster warns.)
WARN_AFTER_SECONDS = 10

# No response is asked to be larger, unless `max_bytes` is: the loop is held while the bytes come in as fast
# as they can be read. (16 MiB took it 150 ms.)
RESPONSE_BYTES = 2 * 1024 * 1024

_Asked = collections.namedtuple("_Asked", ("reader", "moves", "fetch_offset"))
_Found = collections.namedtuple("_Found", ("asked", "data", "is_first"))


class _Work(object):
    """What there is to do for a broker's partitions: ``lost`` have no position, ``ready`` can be fetched.

    ``held_back`` says that some have enough already. With nothing to do, it is worth looking again after
    ``pause`` seconds.
    """

    def __init__(self, pause):
        self.lost, self.ready, self.held_back, self.pause = [], [], False, pause


class BrokerLoop(object):
    """Finds the positions of partitions, and fetches them, from the broker that leads them.

    :param client: the consumer
    :param fetcher: the Fetcher that has the readers
    """

    def __init__(self, client, fetcher, broker_id):
        self.broker_id = broker_id
        self.reserved = 0
        self._client, self._fetcher = client, fetcher
        self._turn = 0
        self._poll_at = 0
        self._failures = 0
        self._asked = {}
        self._found = []

    @gen.coroutine
    def run(self):
        """Go on until the client closes or the broker leads nothing more."""
        client = self._client
        while not client.closing:
            readers = self._fetcher.led_by(self.broker_id)
            if not readers:
                return
            work = self._survey(readers)
            if work.lost:
                result = yield self._find_positions(work.lost)
            elif work.ready:
                result = yield self._fetch(work)
            else:
                yield self._fetcher.room.wait(work.pause)
                continue
            yield self._rest_after(result)

    @gen.coroutine
    def _rest_after(self, result):
        """Wait before the next request, if `result` is an error of the one before."""
        if not isinstance(result, KielError):
            self._failures = 0
            return
        yield self._client.rest(self._client.backoff(self._failures))
        self._failures += 1

    def _survey(self, readers):
        """The _Work with these readers.

        Fetched is what has a position, isn't paused, has no error to tell, and holds less than `max_bytes`
        that the application hasn't taken yet, as long as there is room in all. What a consume() waits for is
        fetched all the same, so that partitions that nobody asks for can't starve it.
        """
        client, now = self._client, self._client.loop.time()
        work = _Work(client.max_wait_time / 1000.0)
        for reader in readers:
            if reader.error is not None:
                continue
            if reader.not_before > now:
                work.pause = min(work.pause, reader.not_before - now)
            elif reader.reset is not None:
                work.lost.append(reader)
            elif reader.paused or reader.position is None:
                continue
            elif reader.buffered >= client.max_bytes:
                work.held_back = True
            else:
                work.ready.append(reader)
        if work.ready and self._free_bytes() <= 0:
            work.held_back = True
            work.ready = [each for each in work.ready if not each.buffered and client.waits_for(each.topic)]
        if work.ready and now < self._poll_at:
            work.pause, work.ready = min(work.pause, self._poll_at - now), []
        work.pause = max(0.001, work.pause)
        return work

    def _free_bytes(self):
        """What one more request may bring: no broker's loop gets more than its share of `prefetch_bytes`."""
        most = self._client.prefetch_bytes
        return min(most // max(1, len(self._fetcher.loops)), most - self._fetcher.bytes_held)

    # -- fetching

    @gen.coroutine
    def _fetch(self, work):
        """What the request ended with: None, or the KielError."""
        client = self._client
        wait_ms = 0 if work.held_back else max(LEAST_WAIT_MS, client.max_wait_time / 2.0)
        request = self._build(work.ready, wait_ms)
        self.reserved, self._found = request.max_bytes, []
        began = client.loop.time()
        try:
            results = yield client.send({self.broker_id: request}, request.max_wait_ms + client.request_timeout_ms)
            yield self._take_in()
        finally:
            self.reserved, asked, self._asked = 0, self._asked, {}
        self._poll_at = 0 if self._found else began + HELD_BACK_SECONDS
        result = results[self.broker_id]
        if isinstance(result, KielError) and not isinstance(result, BrokerConnectionError):
            for each in filter(self._stands, asked.values()):
                self._fetcher.fail(each.reader, result)
        raise gen.Return(result)

    def _build(self, readers, max_wait_ms):
        """The FetchRequest for these readers, each time beginning with another one."""
        client = self._client
        self._turn += 1
        topics = collections.OrderedDict()
        for reader in self._fetcher.rotated(readers, self._turn):
            self._asked[reader.topic, reader.partition] = _Asked(reader, reader.moves, reader.fetch_offset)
            topics.setdefault(reader.topic, []).append(
                FetchPartition(
                    partition=reader.partition,
                    fetch_offset=reader.fetch_offset,
                    partition_max_bytes=client.max_bytes,
                )
            )
        free, most = self._free_bytes(), max(client.max_bytes, RESPONSE_BYTES)
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=int(max_wait_ms),
            min_bytes=client.min_bytes,
            max_bytes=min(free if free > 0 else client.max_bytes, client.max_bytes * len(readers), most),
            isolation_level=int(client.read_committed),
            topics=[FetchTopic(topic=topic, partitions=asked) for topic, asked in topics.items()],
        )

    def receive(self, response):
        """Take in a FetchResponse: errors by the error table's reactions; records are looked through
        later."""
        if response.error_code:
            for asked in self._asked.values():
                self._refused(asked, response.error_code)
            return
        is_first = True
        for topic in response.responses:
            for data in topic.partitions:
                came_first, is_first = is_first, is_first and not data.records
                asked = self._asked.get((topic.topic, data.partition_index))
                if asked is None or not self._stands(asked):
                    continue
                if data.error_code:
                    self._refused(asked, data.error_code)
                    continue
                reader = asked.reader
                reader.failures, reader.failing_since = 0, None
                reader.high_watermark, reader.last_stable_offset = data.high_watermark, data.last_stable_offset
                if data.records:
                    self._found.append(_Found(asked, data, came_first))

    def _stands(self, asked):
        """Whether a reader is still there, and where it was when it was asked for."""
        reader = asked.reader
        held = self._fetcher.readers.get(reader.topic, {})
        return held.get(reader.partition) is reader and asked == (reader, reader.moves, reader.fetch_offset)

    @gen.coroutine
    def _take_in(self):
        """Give the readers what came in for them, with the loop free in between."""
        clock = self._client.loop.time
        slice_end = clock() + constants.SLICE_SECONDS
        for found in self._found:
            transactions = [(each.producer_id, each.first_offset) for each in found.data.aborted_transactions or ()]
            chunk = Chunk(found.data.records, transactions)
            for _ in chunk.measure():
                if clock() >= slice_end:
                    yield gen.moment
                    slice_end = clock() + constants.SLICE_SECONDS
            if self._stands(found.asked):
                self._add(found.asked.reader, chunk, found.is_first)

    def _add(self, reader, chunk, is_first):
        if chunk.next_offset is None and chunk.cause is None and not is_first:
            # Room was left for a part of a batch: its partition comes first another time (KIP-74).
            return
        error = reader.add(chunk)
        if error is not None:
            self._fetcher.fail(reader, error)
        self._fetcher.ring(reader.topic)

    # -- errors

    def _refused(self, asked, code):
        """React to an error of the broker's about a partition, if it still is that broker's."""
        reader = asked.reader
        if not self._stands(asked) or self._client.cluster.leader(reader.topic, reader.partition) != self.broker_id:
            return
        row = errors.lookup(code)
        error = errors.exception(code, about="%s[%d]" % (reader.topic, reader.partition))
        log.debug("fetch: %s", error)
        if row.reaction == errors.RESET_OFFSET:
            self._out_of_range(reader)
        elif row.retriable:
            self._put_off(reader, error)
            if row.reaction == errors.REFRESH_METADATA:
                self._fetcher.heal()
        else:
            self._fetcher.fail(reader, error)

    def _put_off(self, reader, error):
        """Try again after a while what failed with `error`."""
        now = self._client.loop.time()
        reader.not_before = now + self._client.backoff(reader.failures)
        reader.failures += 1
        if reader.failing_since is None:
            reader.failing_since = now
        elif reader.failing_since + WARN_AFTER_SECONDS < now:
            log.warning("%s; nothing comes from there, and it is tried on", error)
            reader.failing_since = float("inf")

    def _out_of_range(self, reader):
        policy = self._client.auto_offset_reset
        where = "%s[%d]: offset %d is out of range" % (reader.topic, reader.partition, reader.fetch_offset)
        if reader.buffered:
            # What came before is handed out first; by then the offset is asked for again.
            reader.not_before = self._client.loop.time() + OUT_OF_RANGE_PAUSE_SECONDS
        elif policy == "none":
            self._fetcher.fail(reader, NoOffsetsError('%s, and auto_offset_reset is "none": seek to go on' % where))
        else:
            log.warning("%s; it goes on at the %s", where, policy)
            reader.seek_by(RESETS[policy])

    # -- positions

    @gen.coroutine
    def _find_positions(self, lost):
        """What the request ended with: the KielError, or what it found."""
        client = self._client
        moves = {reader: reader.moves for reader in lost}
        wanted = {(reader.topic, reader.partition): reader.reset for reader in lost}
        requests = offsets.build_requests(wanted, lambda topic, partition: self.broker_id, client.read_committed)
        results = yield client.send(requests)
        found = offsets.merge(wanted, requests, results)
        for reader in lost:
            if reader.moves == moves[reader]:
                self._place(reader, found[reader.topic, reader.partition])
        self._fetcher.room.ring()
        raise gen.Return(results[self.broker_id])

    def _place(self, reader, result):
        if isinstance(result, BrokerConnectionError):
            return
        if isinstance(result, KielError):
            if getattr(result, "retriable", False):
                self._put_off(reader, result)
            else:
                self._fetcher.fail(reader, result)
        elif result.offset < 0:
            reader.seek_by(LATEST)
        else:
            reader.seek(result.offset)
