"""Batches made by hand, right or wrong, and their records as rows."""

import struct

from kiel.protocol import records
from kiel.protocol.primitives import Span
from kiel.protocol.records import crc32c_pure, varints

FIELDS = (
    "base_offset", "length", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta",
    "base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "count",
)  # fmt: skip


def span(data):
    return Span(data, 0, len(data))


def batch(payload=b"", **fields):
    """A batch's bytes: its length, CRC and everything else right, except for what ``fields`` says."""
    values = dict(
        base_offset=0, length=49 + len(payload), leader_epoch=-1, magic=2, attributes=0, last_offset_delta=0,
        base_timestamp=1000, max_timestamp=2000, producer_id=-1, producer_epoch=-1, base_sequence=-1, count=1,
    )  # fmt: skip
    values.update(fields)
    covered = struct.pack(">hiqqqhii", *[values[name] for name in FIELDS[5:]]) + payload
    values.setdefault("crc", crc32c_pure.crc32c(covered))
    return struct.pack(">qiibI", *[values[name] for name in FIELDS[:5]]) + covered


def record(timestamp_delta=0, offset_delta=0, key=b"\1", value=b"\1", headers=b"\0"):
    """A record; key, value and headers are given as on the wire (here: null, null, none)."""
    body = b"\0" + varints.encode(timestamp_delta) + varints.encode(offset_delta) + key + value + headers
    return varints.encode(len(body)) + body


def rows(source, step=500, **options):
    """[(offset, timestamp, key, value, headers)] of all batches in ``source`` (bytes or a Span)."""
    found = []
    for one in records.batches(span(source) if isinstance(source, bytes) else source):
        for columns in one.columns(step, **options):
            if columns is not None:
                count = len(columns.offsets)
                assert 0 < count <= step
                assert [len(column) for column in columns if column is not None] == [count] * (
                    4 if columns.headers is None else 5
                )
                headers = columns.headers or [()] * count
                found += zip(columns.offsets, columns.timestamps, columns.keys, columns.values, headers)
    return found


def only(data):
    """The one batch of ``data``."""
    (found,) = records.batches(span(data))
    return found
