"""Record batches as producers and brokers write them, and as they shouldn't be."""
import struct

from kiel.protocol import records
from kiel.protocol.records.crc32c import crc32c

TRANSACTIONAL, CONTROL, APPEND_TIME = 0x10, 0x20, 0x08
ABORT, COMMIT = 0, 1

# Where the fields of a batch's header lie that `changed` changes: (format, position).
FIELDS = {
    "magic": (">b", 16),
    "attributes": (">h", 21),
    "last_offset_delta": (">i", 23),
    "max_timestamp": (">q", 35),
    "producer_id": (">q", 43),
    "count": (">i", 57),
}


def batch(values, timestamp=1000, codec=0, **fields):
    """A batch of records that have these values, a millisecond apart; `fields` are changed in its header."""
    builder = records.BatchBuilder(codec=codec)
    for number, value in enumerate(values):
        builder.append(timestamp + number, None, value, None)
    return changed(builder.build(), **fields)


def batch_of(rows, **fields):
    """A batch of (timestamp, key, value, headers)."""
    builder = records.BatchBuilder()
    for row in rows:
        builder.append(*row)
    return changed(builder.build(), **fields)


def marker(kind, producer_id):
    """A control batch that ends a transaction of `producer_id`: ABORT or COMMIT."""
    builder = records.BatchBuilder()
    builder.append(1000, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0), None)
    return changed(builder.build(), attributes=TRANSACTIONAL | CONTROL, producer_id=producer_id)


def empty(last_offset_delta):
    """A batch that compaction has left without any record, though it covers offsets."""
    whole = batch([b"x"], last_offset_delta=last_offset_delta, count=0)
    return rechecked(whole[:8] + struct.pack(">i", 61 - 12) + whole[12:61])


def changed(data, **fields):
    """A batch with other values in its header, and a checksum that is right for them."""
    for name, value in fields.items():
        code, at = FIELDS[name]
        data = data[:at] + struct.pack(code, value) + data[at + struct.calcsize(code):]
    return rechecked(data)


def rechecked(data):
    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]


def flipped(data, at=-1):
    """The same with one bit wrong, and the checksum as it was."""
    octets = bytearray(data)
    octets[at] ^= 0x10
    return bytes(octets)
