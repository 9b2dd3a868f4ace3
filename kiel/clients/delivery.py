"""One call of consume(): taking records from the partitions' readers, deserialized, without holding the loop for long."""
import itertools
import logging

from tornado import gen, ioloop

from kiel import constants
from kiel.clients.partition import WORKING
from kiel.clients.record import Record
from kiel.exc import DeserializationError

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


class Delivery(object):
    """Gathers what one call hands out.

    ``values`` is what it has so far, ``began_at`` {reader: position before the first record taken from it}, and ``error``
    what the call has to raise if there are no values.
    """

    def __init__(self, deserializer, on_error, form, max_records, max_bytes, skipped):
        self.values = []
        self.began_at = {}
        self.error = None
        self._deserializer = deserializer
        self._on_error = on_error
        self._form = form
        self._records_left = float("inf") if max_records is None else max_records
        self._bytes_left = max_bytes
        self._skipped = skipped
        self._pace = 1
        self._counts = {}

    def handed_out(self):
        """{partition: (offset of the next record, how many were handed out)}."""
        return {reader.partition: (reader.position, count) for reader, count in self._counts.items()}

    @gen.coroutine
    def gather(self, readers, stopped):
        """Take from `readers` in turn until there is enough or no more, with the loop free every SLICE_SECONDS.

        `stopped` is asked after each slice whether to go on.
        """
        clock = ioloop.IOLoop.current().time
        slice_end = clock() + constants.SLICE_SECONDS
        for reader in readers:
            while self._records_left > 0 and self._bytes_left > 0 and self.error is None:
                piece = reader.peek()
                if piece is None:
                    break
                if piece is not WORKING:
                    began = clock()
                    cause = self._take(reader, piece)
                    self._set_pace(clock() - began)
                    if cause is not None:
                        yield self._bad_value(reader, piece, cause)
                if clock() >= slice_end:
                    yield gen.moment
                    if stopped():
                        return
                    slice_end = clock() + constants.SLICE_SECONDS

    def _take(self, reader, piece):
        """Take the next few records; gives the error of the deserializer if one of them can't be deserialized."""
        self.began_at.setdefault(reader, reader.position)
        most = min(len(piece), self._pace, self._records_left, 1 + int(self._bytes_left / piece.weight))
        values, cause = self._deserialize(piece.columns.values[piece.start : piece.start + most])
        if values:
            self.values.extend(self._form(reader, piece, values))
            reader.take(len(values))
            self._count(reader, piece, len(values))
        return cause

    def _count(self, reader, piece, count):
        self._counts[reader] = self._counts.get(reader, 0) + count
        self._records_left -= count
        self._bytes_left -= count * piece.weight

    def _deserialize(self, raw):
        """(the values up to the first that can't be deserialized, its error or None)."""
        if self._deserializer is bytes:
            return raw, None
        values, deserializer = [], self._deserializer
        add = values.append
        try:
            for value in raw:
                add(None if value is None else deserializer(value))
        except Exception as error:
            return values, error
        return values, None

    def _set_pace(self, took):
        if took < constants.SLICE_SECONDS / 4:
            self._pace = min(self._pace * 2, 1024)
        elif took > constants.SLICE_SECONDS / 2:
            self._pace = max(1, self._pace // 2)

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
            try:
                answer = self._on_error(record, error)
                if gen.is_future(answer) or hasattr(answer, "__await__"):
                    yield answer
            except Exception as failure:
                log.warning("on_error failed, so the record comes again: %s: %r", error, failure)
                self.error = failure
                return
        if reader.peek() is piece:
            reader.take(1)
            self._count(reader, piece, 1)
