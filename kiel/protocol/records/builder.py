"""Building record batches, for Produce requests."""

import struct

import six

from kiel import compression, exc
from kiel.protocol.records import batch, crc32c, pure

# The two parts of a header: what is before the bytes under the CRC, and what is of them.
_BEFORE_CRC = struct.Struct(">qiibI")
_AFTER_CRC = struct.Struct(">hiqqqhii")

_NO_LEADER_EPOCH = -1
_NO_TIMESTAMP = -1
_MOST_INT64 = 2**63 - 1


class BatchBuilder(object):
    """Collects records and makes a batch of them.

    ``codec`` is a number of ``kiel.compression``'s and ``compression_level`` one of its levels (None: its
    default); UnsupportedCodecError and ConfigurationError for others. ``count`` is the number of records so
    far and ``size`` the bytes of the batch so far, uncompressed.
    """

    def __init__(self, codec=compression.NONE, compression_level=None):
        compression.check(codec, compression_level)
        self.count = 0
        self.size = batch.HEADER.size
        self._codec, self._level = codec, compression_level
        self._records = []
        self._base_timestamp = self._max_timestamp = _NO_TIMESTAMP
        self._payload, self._payload_count = None, 0

    def append(self, timestamp, key, value, headers=None):
        """Adds a record.

        ``timestamp`` is milliseconds since 1970 (-1: none), ``key`` and ``value`` are bytes or None, and
        ``headers`` is a list of (text, bytes or None), or None. ProtocolError for anything else, and the
        batch stays as it was.
        """
        if type(timestamp) is not int or not _NO_TIMESTAMP <= timestamp <= _MOST_INT64:
            _check_timestamp(timestamp)
        if type(value) is not bytes:
            pure.check_bytes(value)
        count = self.count
        if not count:
            self._base_timestamp = self._max_timestamp = timestamp
        record = pure.encode(timestamp - self._base_timestamp, count, key, value, headers)
        self._records.append(record)
        self.count = count + 1
        self.size += len(record)
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp

    def build(self, producer_id=-1, producer_epoch=-1, base_sequence=-1, transactional=False):
        """The batch's bytes, at base offset 0.

        May be called again, say with another producer id; compression isn't done again. ProtocolError for a
        batch of no records, or of too many bytes.
        """
        if not self.count:
            raise exc.ProtocolError("a batch of no records can't be built")
        for _ in self.prepare():
            pass
        payload = self._payload
        attributes = self._codec | (batch.TRANSACTIONAL_BIT if transactional else 0)
        try:
            covered = _AFTER_CRC.pack(
                attributes, self.count - 1, self._base_timestamp, self._max_timestamp, producer_id,
                producer_epoch, base_sequence, self.count,
            )  # fmt: skip
            crc = crc32c.crc32c(payload, crc32c.crc32c(covered))
            length = batch.HEADER.size - batch.LENGTH_FROM + len(payload)
            before = _BEFORE_CRC.pack(0, length, _NO_LEADER_EPOCH, 2, crc)
        except struct.error as error:
            raise exc.ProtocolError("the batch's header can't be written: %s" % error)
        return b"".join((before, covered, payload))

    def prepare(self):
        """Compresses what there is so far, so that ``build`` is quick. A generator, for who has other things to do.

        Each step is short; nothing may be appended before the last.
        """
        if self._payload_count == self.count:
            return
        self._records = [b"".join(self._records)]
        pieces = []
        for piece in compression.compress_pieces(self._codec, self._records[0], self._level):
            pieces.append(piece)
            yield
        self._payload = b"".join(pieces)
        self._payload_count = self.count


def _check_timestamp(timestamp):
    if not isinstance(timestamp, six.integer_types) or not _NO_TIMESTAMP <= timestamp <= _MOST_INT64:
        raise exc.ProtocolError("a timestamp is milliseconds since 1970, or -1, not %r" % (timestamp,))
