"""Record batches as they lie in a fetch response: headers first, their records when asked for."""

import struct

from kiel import compression, exc
from kiel.protocol.records import crc32c, pure

# Of the whole header, as in Kafka's documentation ("Record Batch"): base offset, length, leader epoch, magic,
# CRC, attributes, last offset delta, base timestamp, max timestamp, producer id, producer epoch, base
# sequence, count.
HEADER = struct.Struct(">qiibIhiqqqhii")
# Of what every message format begins with: offset, length, four bytes that differ, magic.
_START = struct.Struct(">qi4xb")
_LAST_OFFSET_DELTA = struct.Struct(">i")
_LAST_OFFSET_DELTA_AT = 23

# What the length leaves out (the offset and itself), and where the bytes under the CRC begin.
LENGTH_FROM = 12
CRC_FROM = 21

CODEC_BITS, APPEND_TIME_BIT, TRANSACTIONAL_BIT, CONTROL_BIT, DELETE_HORIZON_BIT = 0x07, 0x08, 0x10, 0x20, 0x40
CREATE_TIME, APPEND_TIME = 0, 1

MAX_DECOMPRESSED_BYTES = 128 * 1024 * 1024

_CONTROL_KEY = struct.Struct(">hh")
_CONTROL_TYPES = {0: "abort", 1: "commit"}


def batches(span):
    """Yields a Batch for each whole batch in a ``primitives.Span`` (None holds none).

    Only headers are read. A broker cuts what it sends at a number of bytes, so a batch that goes on behind
    the span ends this silently. ProtocolError for a header that can't be right, UnsupportedVersionError for
    the message formats before Kafka 0.11.
    """
    if span is None:
        return
    for position, size, _ in _walk(span):
        yield Batch(span.data, position, size)


def ends(span):
    """Yields (the bytes of ``span`` up to its end, the offset behind it) for each whole batch in it.

    For whoever only has to know how far a span goes: it takes a sixth of the time of ``batches``. It raises the
    same errors, but for what a batch's header says of other things than offsets.
    """
    for position, size, base_offset in _walk(span):
        (delta,) = _LAST_OFFSET_DELTA.unpack_from(span.data, position + _LAST_OFFSET_DELTA_AT)
        next_offset = base_offset + delta + 1
        if base_offset < 0 or delta < 0 or next_offset >> 63:
            raise _wrong_offsets(position, base_offset, base_offset + delta)
        yield position + size - span.start, next_offset


def first_size(span):
    """The bytes that the first batch in ``span`` has, all of them there or not; None if too few are to tell."""
    if len(span) < _START.size:
        return None
    return _START.unpack_from(span.data, span.start)[1] + LENGTH_FROM


def _walk(span):
    """Yields (position, size, base offset) of each whole batch."""
    data, position, end = span.data, span.start, span.end
    while end - position >= _START.size:
        base_offset, length, magic = _START.unpack_from(data, position)
        if magic in (0, 1):
            raise exc.UnsupportedVersionError(
                "records are in the old message format (magic %d), which this version of kiel doesn't read; "
                "Kafka 0.11 is the first with record batches (message.format.version)" % magic
            )
        if magic != 2:
            raise exc.ProtocolError("there is no record batch with magic %d" % magic, position=position)
        if length < HEADER.size - LENGTH_FROM:
            raise exc.ProtocolError("a record batch can't be of length %d" % length, position=position)
        size = length + LENGTH_FROM
        if size > end - position:
            return
        yield position, size, base_offset
        position += size


def _wrong_offsets(position, first, last):
    return exc.ProtocolError("a record batch's offsets can't be %d to %d" % (first, last), position=position)


class Batch(object):
    """One record batch: its header's fields, and its records as columns.

    ``base_offset`` to ``last_offset`` are the offsets that it covers, whether or not compaction left a record
    at each, and ``next_offset`` is the first behind it. ``count`` is the number of records, ``size`` the
    bytes of the batch. ``codec`` is the number of its compression. ``timestamp_type`` is 0 if timestamps are
    the producers', 1 if they are the broker's (all are ``max_timestamp`` then). Timestamps are milliseconds
    since 1970. ``delete_horizon`` is the time after which compaction may drop tombstones and markers
    (KIP-534), or None.
    """

    __slots__ = (
        "base_offset", "last_offset", "next_offset", "leader_epoch", "magic", "crc", "codec",
        "timestamp_type", "is_transactional", "is_control", "base_timestamp", "max_timestamp",
        "delete_horizon", "producer_id", "producer_epoch", "base_sequence", "count", "size",
        "_data", "_start",
    )  # fmt: skip

    def __init__(self, data, start, size):
        self._data, self._start, self.size = data, start, size
        (
            self.base_offset, _, self.leader_epoch, self.magic, self.crc, attributes, last_offset_delta,
            self.base_timestamp, self.max_timestamp, self.producer_id, self.producer_epoch,
            self.base_sequence, self.count,
        ) = HEADER.unpack_from(data, start)  # fmt: skip
        self.last_offset = self.base_offset + last_offset_delta
        self.next_offset = self.last_offset + 1
        self.codec = attributes & CODEC_BITS
        self.timestamp_type = APPEND_TIME if attributes & APPEND_TIME_BIT else CREATE_TIME
        self.is_transactional = bool(attributes & TRANSACTIONAL_BIT)
        self.is_control = bool(attributes & CONTROL_BIT)
        self.delete_horizon = self.base_timestamp if attributes & DELETE_HORIZON_BIT else None
        if self.base_offset < 0 or last_offset_delta < 0 or self.next_offset >> 63:
            raise _wrong_offsets(start, self.base_offset, self.last_offset)
        if self.count < 0:
            raise self._error("it can't have %d records" % self.count)
        if self.codec == compression.NONE:
            self._check_count(size - HEADER.size)

    def __repr__(self):
        return "<Batch of %d records, offsets %d to %d>" % (self.count, self.base_offset, self.last_offset)

    def columns(self, step=500, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES):
        """Yields the records as Columns of at most ``step`` records each.

        Between pieces of longer work (checksum, decompression) it yields None, so that the caller can look at
        its clock. ProtocolError if the checksum or a record is wrong, or if the records are more than
        ``max_decompressed_bytes``; UnsupportedCodecError if the codec is unknown or not supported.
        """
        if step < 1:
            raise exc.UsageError("a step is at least one record, not %r" % (step,))
        for _ in self._check_crc():
            yield None
        if not self.count:
            return
        data, position, end = self._data, self._start + HEADER.size, self._start + self.size
        if self.codec != compression.NONE:
            plain = []
            for piece in compression.pieces(self.codec, data, max_decompressed_bytes, position, end):
                plain.append(piece)
                yield None
            data = b"".join(plain)
            position, end = 0, len(data)
            self._check_count(end)
            del plain
        try:
            for columns in pure.decode(self, data, position, end, step):
                yield columns
        except exc.ProtocolError as error:
            raise self._error(error.reason)

    def control_type(self):
        """What a control batch marks, "abort" or "commit"; None if it is something else, or isn't one."""
        if not self.is_control:
            return None
        for columns in self.columns(1):
            if columns is not None:
                key = columns.keys[0]
                if key is None or len(key) < _CONTROL_KEY.size:
                    raise self._error("it is a control batch without a type")
                return _CONTROL_TYPES.get(_CONTROL_KEY.unpack_from(key)[1])
        return None

    def _check_crc(self):
        value = 0
        position, end = self._start + CRC_FROM, self._start + self.size
        while position < end:
            if value:
                yield None
            following = min(position + crc32c.piece_bytes, end)
            value = crc32c.crc32c(self._data[position:following], value)
            position = following
        if value != self.crc:
            raise self._error("its checksum is 0x%08x, but its bytes make 0x%08x" % (self.crc, value))

    def _check_count(self, left):
        if self.count * pure.LEAST_RECORD_BYTES > left:
            raise self._error("%d records can't be in %d bytes" % (self.count, left))

    def _error(self, reason):
        return exc.ProtocolError(
            "the record batch at offset %d: %s" % (self.base_offset, reason), position=self._start
        )
