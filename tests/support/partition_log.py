"""One partition's log as a broker keeps it: batches as bytes, and what it knows of their producers."""
import collections
import struct

OUT_OF_ORDER_SEQUENCE_NUMBER = 45

Stored = collections.namedtuple("Stored", ("base_offset", "last_offset", "data"))


def as_bytes(data):
    """What a Records field holds (bytes, a Span or a list of pieces), as bytes."""
    if isinstance(data, list):
        return b"".join(as_bytes(piece) for piece in data)
    if isinstance(data, bytes):
        return data
    return data.tobytes()


def whole_batches(data):
    """The batches in `data` that aren't cut off, one bytes object each."""
    batches, at = [], 0
    while at + 12 <= len(data):
        size = 12 + struct.unpack_from(">i", data, at + 8)[0]
        if at + size <= len(data):
            batches.append(data[at:at + size])
        at += size
    return batches


class PartitionLog(object):
    """``start`` and ``end`` (the high watermark) are offsets; ``stable`` is the last stable offset, where it isn't
    the end; ``aborted`` is a list of (producer id, first offset), as a fetch response tells them."""

    def __init__(self):
        self.batches = []
        self.start = self.end = 0
        self.stable = None
        self.aborted = []
        self._sequences = {}

    @property
    def last_stable_offset(self):
        return self.end if self.stable is None else self.stable

    def append(self, data):
        """Append batches as a leader does; gives (error code, base offset of the first)."""
        first = None
        for batch in whole_batches(as_bytes(data)):
            last_delta = struct.unpack_from(">i", batch, 23)[0]
            producer = struct.unpack_from(">qhi", batch, 43)
            error, base = self._check_sequence(producer, last_delta)
            if error:
                return error, -1
            if base is None:
                base = self.end
                self.put(struct.pack(">q", base) + batch[8:], base, base + last_delta)
                self._remember(producer, last_delta, base)
            first = base if first is None else first
        return 0, first

    def put(self, data, base_offset=None, last_offset=None):
        """Keep exactly these bytes, served to whoever fetches from `base_offset` to `last_offset`."""
        base = self.end if base_offset is None else base_offset
        last = base if last_offset is None else last_offset
        self.batches.append(Stored(base, last, data))
        self.end = max(self.end, last + 1)

    def truncate(self, start):
        """Drop what lies before offset `start`, as retention does."""
        self.start = start
        self.end = max(self.end, start)
        self.batches = [batch for batch in self.batches if batch.last_offset >= start]

    def read(self, offset, max_bytes, bound, at_least_one):
        """The bytes of the batches from the one that holds `offset` up to offset `bound`, cut off at `max_bytes`.

        If the first alone is larger, it comes whole with `at_least_one`, and otherwise not at all (KIP-74).
        """
        wanted = [b.data for b in self.batches if b.last_offset >= offset and b.base_offset < bound]
        if wanted and len(wanted[0]) > max_bytes:
            return wanted[0] if at_least_one else b""
        return b"".join(wanted)[:max_bytes]

    def _check_sequence(self, producer, last_delta):
        """(error code, offset of the batch if it is a duplicate), as KIP-98 has it."""
        producer_id, epoch, sequence = producer
        known = self._sequences.get((producer_id, epoch))
        if producer_id < 0 or sequence < 0:
            return 0, None
        for base_sequence, last_sequence, base in known or ():
            if (base_sequence, last_sequence) == (sequence, sequence + last_delta):
                return 0, base
        if sequence != (known[-1][1] + 1 if known else 0):
            return OUT_OF_ORDER_SEQUENCE_NUMBER, None
        return 0, None

    def _remember(self, producer, last_delta, base):
        producer_id, epoch, sequence = producer
        if producer_id >= 0 and sequence >= 0:
            known = self._sequences.setdefault((producer_id, epoch), collections.deque(maxlen=5))
            known.append((sequence, sequence + last_delta, base))
