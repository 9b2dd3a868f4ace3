"""Batches that the Java client 4.4.0 made, byte by byte.

Made by MemoryRecords.withRecords, .withTransactionalRecords, .builder (LOG_APPEND_TIME),
.withEndTransactionMarker and DefaultRecordBatch.writeEmptyHeader (what compaction leaves of a producer's last
batch).
"""

import binascii

import pytest

from kiel.protocol import records
from tests.protocol.records import craft


def unhex(*pieces):
    return binascii.unhexlify("".join(pieces))


VALUE_OF_ZEROS = "00" * 200

PLAIN = unhex(
    "000000000000000000000132ffffffff02806b7d710000000000030000018bcfe568000000018bcfe6eea0",
    "ffffffffffffffffffffffffffff00000004",
    "0c000000010100",
    "0e000a02026b0000",
    "3c00cf0f04000a76616c7565060a747261636504c3a90a6ec3a46d65010000",
    "a20300c09a0c06019003" + VALUE_OF_ZEROS + "00",
)
GZIP = unhex(
    "000000000000000000000081ffffffff02bade6d550001000000030000018bcfe568000000018bcfe6eea0",
    "ffffffffffffffffffffffffffff00000004",
    "1f8b08000000000000ffe3616060606464e063e06262ca6660b06138cfcfc2c0559698539acac6555294989cca72782557dee1",
    "25b9a98c0c0c8b98190ecce261639cc0cc305c0000c94fc6c101010000",
)
TRANSACTIONAL = unhex(
    "000000000000002a000000400000000902ae3a71710010000000010000018bcfe568000000018bcfe56805",
    "0000000000001b5900030000000c00000002",
    "0c0000000101000e000a02026b0000",
)
APPEND_TIME = unhex(
    "00000000000000640000010bffffffff024eac7c3d0008000000010000018bcfe56800000001a3185c5000",
    "ffffffffffffffffffffffffffff00000002",
    "0c000000010100a20300c09a0c02019003" + VALUE_OF_ZEROS + "00",
)
COMMIT = unhex(
    "00000000000000050000004200000009029f35508a0030000000000000018bcfe568000000018bcfe56800",
    "0000000000001b590003ffffffff00000001",
    "2000000008000000010c00000000000200",
)
ABORT = unhex(
    "00000000000000060000004200000009026b0b86c20030000000000000018bcfe568000000018bcfe56800",
    "0000000000001b590003ffffffff00000001",
    "2000000008000000000c00000000000200",
)
EMPTY = unhex(
    "000000000000003200000031000000090253133e72001000000009ffffffffffffffff0000018bcfe56800",
    "0000000000001b5900030000000c00000000",
)

NOW = 1700000000000
HEADERS = [(u"trace", u"\xe9".encode("utf-8")), (u"n\xe4me", None), (u"", b"")]
RECORDS = [
    (NOW, None, None, None),
    (NOW + 5, b"k", b"", None),
    (NOW - 1000, b"", b"value", HEADERS),
    (NOW + 100000, None, b"\0" * 200, None),
]
ROWS = [
    (offset, timestamp, key, value, tuple(headers or ()))
    for offset, (timestamp, key, value, headers) in enumerate(RECORDS)
]


def built(*appended, **options):
    builder = records.BatchBuilder()
    for one in appended:
        builder.append(*one)
    return builder.build(**options)


def test_java_batch_is_read():
    assert craft.rows(PLAIN) == ROWS


def test_java_gzip_is_read():
    assert craft.rows(GZIP) == ROWS
    assert craft.only(GZIP).codec == 1


def test_java_makes_the_same_bytes():
    assert built(*RECORDS) == PLAIN


def test_java_makes_the_same_bytes_with_a_producer_id():
    ours = built(*RECORDS[:2], producer_id=7001, producer_epoch=3, base_sequence=12, transactional=True)
    # The broker gives a batch its base offset and leader epoch; neither is under the CRC.
    assert ours[8:12] + ours[16:] == TRANSACTIONAL[8:12] + TRANSACTIONAL[16:]


def test_fields_of_a_transactional_batch():
    batch = craft.only(TRANSACTIONAL)
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (42, 43, 44)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7001, 3, 12)
    assert (batch.leader_epoch, batch.magic, batch.count, batch.size) == (9, 2, 2, len(TRANSACTIONAL))
    assert (batch.base_timestamp, batch.max_timestamp, batch.timestamp_type) == (NOW, NOW + 5, 0)
    assert batch.is_transactional and not batch.is_control
    assert batch.delete_horizon is None
    assert batch.control_type() is None


def test_append_time_is_the_time_of_every_record():
    assert craft.only(APPEND_TIME).timestamp_type == 1
    for step in (1, 500):
        rows = craft.rows(APPEND_TIME, step)
        assert [row[:2] for row in rows] == [(100, 1800000000000), (101, 1800000000000)]


@pytest.mark.parametrize("data, kind", [(COMMIT, "commit"), (ABORT, "abort")])
def test_transaction_markers(data, kind):
    batch = craft.only(data)
    assert batch.is_control and batch.is_transactional
    assert batch.control_type() == kind
    assert batch.producer_id == 7001


def test_an_empty_batch_still_moves_the_offset():
    batch = craft.only(EMPTY)
    assert (batch.count, batch.base_offset, batch.next_offset) == (0, 50, 60)
    assert craft.rows(EMPTY) == []


def test_batches_follow_each_other():
    span = craft.span(TRANSACTIONAL + EMPTY + APPEND_TIME)
    assert [batch.base_offset for batch in records.batches(span)] == [42, 50, 100]
