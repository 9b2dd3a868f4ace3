"""One partition as a consumer reads it: its position, and what was fetched and not yet handed out."""
import bisect
import collections

from kiel.exc import (
    CorruptRecordError,
    ProtocolError,
    RecordTooLargeError,
    UnsupportedCodecError,
    UnsupportedVersionError,
)
from kiel.protocol import records
from kiel.protocol.primitives import Span

TIMESTAMP_TYPES = ("create", "append")

# What PartitionReader.peek gives while there is work before the next records: look at the clock, then go on.
WORKING = object()

# How many batches are counted between two looks at the clock.
_BATCHES_AT_A_TIME = 500


class Chunk(object):
    """What a fetch brought of a partition: a Span, and [(producer_id, first_offset)] of aborted transactions.

    ``measure`` finds out ``next_offset``, the offset behind its whole batches (None if it has none), and
    ``cause``, what is wrong with the bytes behind them.
    """

    __slots__ = ("span", "aborted", "next_offset", "cause", "bytes_sent", "first_size")

    def __init__(self, span, aborted):
        self.span, self.aborted = span, aborted
        self.next_offset = self.cause = None
        self.bytes_sent, self.first_size = len(span), records.first_size(span)

    def measure(self):
        """Yields between pieces of the work, so that the caller can look at its clock."""
        size = 0
        try:
            for count, (size, next_offset) in enumerate(records.ends(self.span), 1):
                self.next_offset = next_offset if self.next_offset is None else max(self.next_offset, next_offset)
                if count % _BATCHES_AT_A_TIME == 0:
                    yield
        except (ProtocolError, UnsupportedVersionError) as error:
            self.cause = error
        self._keep(size)

    def _keep(self, size):
        """Keep no more than `size` bytes, and not the whole response for the sake of a small part of it."""
        start, end = self.span.start, self.span.start + size
        if 2 * size < len(self.span.data):
            self.span = Span(self.span.data[start:end], 0, size)
        else:
            self.span = Span(self.span.data, start, end)


class Piece(object):
    """Some consecutive records of one batch as columns; those before ``start`` are taken already."""

    __slots__ = ("batch", "columns", "start")

    def __init__(self, batch, columns, start):
        self.batch, self.columns, self.start = batch, columns, start

    def __len__(self):
        return len(self.columns.offsets) - self.start

    @property
    def timestamp_type(self):
        return TIMESTAMP_TYPES[self.batch.timestamp_type]

    @property
    def weight(self):
        """About how many bytes a record of this batch takes on the wire."""
        return self.batch.size / float(max(1, self.batch.count))


class PartitionReader(object):
    """Turns what is fetched of one partition into pieces of records, and keeps the position.

    ``position`` is the offset of the next record to hand out (None until it is known), ``fetch_offset`` that
    of the next to ask the broker for, and ``reset`` the timestamp by which the position has to be found while
    it isn't known (in ms, or EARLIEST or LATEST). ``moves`` counts how often the position was set from
    outside. ``error`` is what the application has to hear about this partition, and ``not_before`` the time
    on the loop's clock before which nothing is asked for it, after ``failures`` errors since
    ``failing_since``.
    """

    def __init__(self, topic, partition, read_committed=False):
        self.topic, self.partition = topic, partition
        self.position = None
        self.fetch_offset = None
        self.reset = None
        self.moves = 0
        self.paused = False
        self.error = None
        self.failures, self.failing_since = 0, None
        self.not_before = 0
        self.high_watermark = None
        self.last_stable_offset = None
        self.buffered = 0
        self._read_committed = read_committed
        self._chunks = collections.deque()
        self._steps = None
        self._piece = None

    def seek(self, offset):
        """Go on at `offset`; what was fetched is dropped, and the error that was there."""
        self._move(offset, None)

    def seek_by(self, timestamp):
        """Leave the position to be found by `timestamp` (None: not at all); otherwise as ``seek``."""
        self._move(None, timestamp)

    def _move(self, position, reset):
        self.moves += 1
        self.position, self.reset = position, reset
        self.error, self.not_before = None, 0
        self.failures, self.failing_since = 0, None
        self._drop()

    def _drop(self):
        self.fetch_offset = self.position
        self.buffered = 0
        self._chunks.clear()
        self._steps = self._piece = None

    @property
    def end(self):
        """The offset after the last record that can be read now; None until a fetch told."""
        return self.last_stable_offset if self._read_committed else self.high_watermark

    def add(self, chunk):
        """Keep a Chunk that was measured; the offset to fetch next moves past its batches.

        If it has none at that offset, nothing is kept, and the error for the application is returned.
        """
        if chunk.next_offset is not None and chunk.next_offset > self.fetch_offset:
            self.fetch_offset = chunk.next_offset
            self.buffered += len(chunk.span)
            self._chunks.append(chunk)
            return None
        if chunk.cause is None and chunk.next_offset is None:
            return RecordTooLargeError(
                "%s[%d] at offset %d: there are records of %s bytes, of which the broker sent but %d; raise max_bytes"
                % (self.topic, self.partition, self.fetch_offset, chunk.first_size or "more", chunk.bytes_sent)
            )
        cause = chunk.cause or ProtocolError("the broker sent nothing but records before that")
        return CorruptRecordError(self.topic, self.partition, self.fetch_offset, cause)

    def peek(self):
        """The next Piece, WORKING, or None when all is taken; sets ``error`` where reading fails."""
        while True:
            if self._piece is not None:
                if len(self._piece):
                    return self._piece
                self._piece = None
            if self._steps is None:
                if not self._chunks:
                    return None
                self._steps = self._read(self._chunks[0])
            try:
                step = next(self._steps, None)
            except (ProtocolError, UnsupportedCodecError, UnsupportedVersionError) as cause:
                self.error = CorruptRecordError(self.topic, self.partition, self.position, cause)
                self._drop()
                return None
            if step is WORKING:
                return WORKING
            if step is None:
                self.buffered -= len(self._chunks.popleft().span)
                self._steps = None
            self._piece = step

    def take(self, count):
        """Move past the first `count` records of the piece that peek gave."""
        piece = self._piece
        piece.start += count
        self.position = piece.columns.offsets[piece.start - 1] + 1

    def _read(self, chunk):
        transactions = _Transactions(chunk.aborted)
        for batch in records.batches(chunk.span):
            hidden = transactions.hide(batch) or batch.next_offset <= self.position
            for columns in () if hidden else batch.columns():
                if columns is None:
                    yield WORKING
                    continue
                start = bisect.bisect_left(columns.offsets, self.position)
                if start < len(columns.offsets):
                    yield Piece(batch, columns, start)
            self.position = max(self.position, batch.next_offset)
            if hidden:
                yield WORKING


class _Transactions(object):
    """Which batches of a fetch belong to aborted transactions (KIP-98)."""

    def __init__(self, aborted):
        self._coming = collections.deque(sorted(aborted, key=lambda transaction: transaction[1]))
        self._open = set()

    def hide(self, batch):
        """Whether the application mustn't see the batch; the batches are to be given in order."""
        while self._coming and self._coming[0][1] <= batch.last_offset:
            self._open.add(self._coming.popleft()[0])
        if batch.is_control:
            if batch.producer_id in self._open and batch.control_type() == "abort":
                self._open.remove(batch.producer_id)
            return True
        return batch.is_transactional and batch.producer_id in self._open
