"""One call of consume(): taking deserialized records from readers, without holding the loop for long."""
import itertools
import logging

from six.moves import map
from tornado import gen

from kiel import constants, futures
from kiel.clients.partition import WORKING
from kiel.clients.record import Record
from kiel.exc import DeserializationError, UsageError

log = logging.getLogger(__name__)


def as_values(reader, piece, values):
    """What consume() hands out for `values`, the next ones of `piece` deserialized: just these."""
    return values


def as_records(reader, piece, values):
    """What consume_records() hands out for `values`, the next ones of `piece` deserialized."""
    columns = piece.columns
    taken = slice(piece.start, piece.start + len(values))
    headers = [list(each) for each in columns.headers[taken]] if columns.headers else [[] for _ in values]
    return list(
        map(
            Record,
            itertools.repeat(reader.topic),
            itertools.repeat(reader.partition),
            columns.offsets[taken],
            columns.timestamps[taken],
            itertools.repeat(piece.timestamp_type),
            columns.keys[taken],
            values,
            headers,
        )
    )


class _Begun(object):
    """Where a reader was before anything was taken from it, and how many records have been taken since."""

    __slots__ = ("moves", "position", "count")

    def __init__(self, reader):
        self.moves, self.position, self.count = reader.moves, reader.position, 0


class Delivery(object):
    """Gathers what one call hands out; `clock` gives the time in seconds.

    ``values`` is what it has so far, and ``error`` what the call has to raise if there are no values.
    """

    def __init__(self, deserializer, on_error, form, max_records, max_bytes, skipped, clock):
        self.values = []
        self.error = None
        self._deserializer = deserializer
        self._on_error = on_error
        self._form = form
        self._records_left = float("inf") if max_records is None else max_records
        self._bytes_left = max_bytes
        self._skipped = skipped
        self._begun = {}
        self._clock = clock

    def handed_out(self):
        """{partition: (offset of the next record, how many were handed out)} where the position has moved on.

        A partition whose position the application set in the meantime isn't among them.
        """
        return {
            reader.partition: (reader.position, begun.count)
            for reader, begun in self._begun.items()
            if reader.moves == begun.moves and reader.position != begun.position
        }

    def rewind(self):
        """Put back what was taken, so that it comes again."""
        for reader, begun in self._begun.items():
            if begun.count and reader.moves == begun.moves:
                reader.seek(begun.position)

    @property
    def wants_more(self):
        return self._records_left > 0 and self._bytes_left > 0 and self.error is None

    @gen.coroutine
    def gather(self, readers, stopped):
        """Take from `readers` in turn until there is enough or no more, in slices of SLICE_SECONDS.

        `stopped` is asked after each slice whether to leave it at that.
        """
        slice_end = self._clock() + constants.SLICE_SECONDS
        for reader in readers:
            while self.wants_more and not reader.paused:
                self._begin(reader)
                piece = reader.peek()
                if piece is None:
                    break
                if piece is not WORKING:
                    cause = self._take(reader, piece, slice_end)
                    if cause is not None:
                        yield self._bad_value(reader, piece, cause)
                if self._clock() >= slice_end:
                    yield gen.moment
                    if stopped():
                        return
                    slice_end = self._clock() + constants.SLICE_SECONDS

    def take_ready(self, reader):
        """Take records of the reader's if they need no work but deserializing, and that goes well."""
        self._begin(reader)
        piece = reader.peek()
        if piece is not None and piece is not WORKING:
            self._take(reader, piece, self._clock())

    def _begin(self, reader):
        begun = self._begun.get(reader)
        if begun is None or begun.moves != reader.moves:
            self._begun[reader] = _Begun(reader)

    def _take(self, reader, piece, slice_end):
        """Take the next few records; gives the deserializer's error if there is one."""
        most = int(min(len(piece), self._records_left, 1 + self._bytes_left // piece.weight))
        values, cause = self._deserialize(piece.columns.values[piece.start : piece.start + most], slice_end)
        if values:
            self.values.extend(self._form(reader, piece, values))
            self._move(reader, piece, len(values))
        return cause

    def _move(self, reader, piece, count):
        reader.take(count)
        self._begun[reader].count += count
        self._records_left -= count
        self._bytes_left -= count * piece.weight

    def _deserialize(self, raw, slice_end):
        """(the values up to the slice's end or the first that can't be deserialized, its error or None)."""
        if self._deserializer is bytes:
            return raw, None
        values, deserializer, clock = [], self._deserializer, self._clock
        add = values.append
        try:
            for value in raw:
                add(None if value is None else deserializer(value))
                if clock() >= slice_end:
                    break
        except Exception as error:
            return values, error
        return values, None

    @gen.coroutine
    def _bad_value(self, reader, piece, cause):
        """Do with the reader's next record, which can't be deserialized, what `on_error` says."""
        record = as_records(reader, piece, [piece.columns.values[piece.start]])[0]
        error = DeserializationError(record, cause)
        if self._on_error == "raise":
            self.error = error
            if self.values:
                return
        elif self._on_error == "skip":
            log.warning("%s; it is skipped", error)
            self._skipped[record.topic] += 1
        else:
            failure = yield self._hand_over(record, error)
            if failure is not None:
                log.warning("on_error failed, so the record comes again: %s: %r", error, failure)
                self.error = failure
                return
        if reader.peek() is piece:
            # What isn't handed out takes nothing off what this call may hand out.
            reader.take(1)
            self._begun[reader].count += 1

    @gen.coroutine
    def _hand_over(self, record, error):
        """Call the application's function: the exception that it ended with, or None."""
        try:
            answer = self._on_error(record, error)
            if gen.is_future(answer) or hasattr(answer, "__await__"):
                answer = gen.convert_yielded(answer)
                yield futures.ended([answer])
                if answer.cancelled():
                    raise UsageError("it was cancelled")
                answer.result()
        except Exception as failure:
            raise gen.Return(failure)
