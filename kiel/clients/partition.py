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

# What PartitionReader.peek gives while a batch is still being checked or decompressed: look at the clock, then go on.
WORKING = object()

_Chunk = collections.namedtuple("_Chunk", ("span", "aborted"))


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

    ``position`` is the offset of the next record to hand out (None until it is known), ``fetch_offset`` that of the next
    to ask the broker for, and ``reset`` what the position has to be found by while it isn't known ("earliest", "latest").
    ``error`` is what the application has to hear about this partition, and ``not_before`` the time on the loop's clock
    before which it isn't fetched.
    """

    def __init__(self, topic, partition, read_committed=False):
        self.topic, self.partition = topic, partition
        self.position = None
        self.fetch_offset = None
        self.reset = None
        self.paused = False
        self.error = None
        self.failures = 0
        self.not_before = 0
        self.high_watermark = None
        self.last_stable_offset = None
        self.buffered = 0
        self._read_committed = read_committed
        self._chunks = collections.deque()
        self._steps = None
        self._piece = None

    def seek(self, offset):
        """Go on at `offset`; what was fetched is dropped."""
        self.position = self.fetch_offset = offset
        self.reset = None
        self._drop()

    def seek_by(self, reset):
        """Leave the position to be found again, by "earliest" or "latest"; what was fetched is dropped."""
        self.position = self.fetch_offset = None
        self.reset = reset
        self._drop()

    def _drop(self):
        self.buffered = 0
        self._chunks.clear()
        self._steps = self._piece = None

    @property
    def end(self):
        """The offset after the last record that can be read now; None until a fetch told."""
        return self.last_stable_offset if self._read_committed else self.high_watermark

    def add(self, span, aborted):
        """Keep what a fetch brought; `aborted` lists (producer_id, first_offset) of its aborted transactions.

        The offset to fetch next moves past the whole batches in it. If there is none at that offset, nothing is kept and
        the error that the application has to hear is returned.
        """
        size, next_offset, cause = 0, self.fetch_offset, None
        try:
            for batch in records.batches(span):
                size += batch.size
                next_offset = max(next_offset, batch.next_offset)
        except (ProtocolError, UnsupportedVersionError) as error:
            cause = error
        if next_offset > self.fetch_offset:
            self.fetch_offset = next_offset
            self.buffered += size
            self._chunks.append(_Chunk(Span(span.data, span.start, span.start + size), aborted))
            return None
        if cause is None and not size:
            return RecordTooLargeError(
                "%s[%d] at offset %d: there is a record that doesn't fit in the %d bytes that the broker sent; "
                "raise max_bytes" % (self.topic, self.partition, self.fetch_offset, len(span))
            )
        if cause is None:
            cause = ProtocolError("the broker sent nothing but records before that")
        return CorruptRecordError(self.topic, self.partition, self.fetch_offset, cause)

    def peek(self):
        """The next Piece, WORKING, or None when all that was fetched is taken; sets ``error`` where reading fails."""
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
                self.seek(self.position)
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
        for batch in self._visible(chunk):
            for columns in batch.columns():
                if columns is None:
                    yield WORKING
                    continue
                start = bisect.bisect_left(columns.offsets, self.position)
                if start < len(columns.offsets):
                    yield Piece(batch, columns, start)
            self.position = max(self.position, batch.next_offset)

    def _visible(self, chunk):
        """The batches of a chunk with records for the application; the position moves past the others."""
        aborted = collections.deque(sorted(chunk.aborted, key=lambda transaction: transaction[1]))
        aborting = set()
        for batch in records.batches(chunk.span):
            while aborted and aborted[0][1] <= batch.last_offset:
                aborting.add(aborted.popleft()[0])
            if batch.next_offset <= self.position and not batch.is_control:
                continue
            if batch.is_control:
                if batch.control_type() == "abort":
                    aborting.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in aborting):
                yield batch
                continue
            self.position = max(self.position, batch.next_offset)
