import itertools
import struct

import six
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kiel import exc
from kiel.protocol import records
from kiel.protocol.records import crc32c_pure
from tests.protocol.records import craft

ALLOWED = (exc.ProtocolError, exc.UnsupportedCodecError, exc.UnsupportedVersionError)

contents = st.one_of(st.none(), st.just(b""), st.just(b"x"), st.binary(max_size=300))
timestamps = st.one_of(st.integers(-1, 10000), st.integers(-1, 2**63 - 1))
names = st.text(st.characters(blacklist_categories=("Cs",)), max_size=10)
headers = st.one_of(st.none(), st.lists(st.tuples(names, contents), max_size=3))
appended = st.lists(st.tuples(timestamps, contents, contents, headers), min_size=1, max_size=20)
codecs = st.sampled_from([0, 1])
changes = st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=4)
steps = st.sampled_from([1, 2, 500])


def built(codec, records_in):
    builder = records.BatchBuilder(codec)
    for one in records_in:
        builder.append(*one)
    return builder.build()


# Invariant: what is appended is what is read, at offsets 0, 1, 2 ...
@settings(deadline=None)
@given(codecs, appended, steps)
def test_round_trip(codec, records_in, step):
    expected = [(n, one[0], one[1], one[2], tuple(one[3] or ())) for n, one in enumerate(records_in)]
    data = built(codec, records_in)
    assert craft.rows(data, step) == expected
    batch = craft.only(data)
    assert batch.max_timestamp == max(one[0] for one in records_in)
    assert batch.size == len(data)


# Invariant: null, empty and b"x", as key and as value, are nine different records.
def test_nine_different_records():
    nine = list(itertools.product([None, b"", b"x"], repeat=2))
    for codec in (0, 1):
        data = built(codec, [(5, key, value, None) for key, value in nine])
        assert [row[2:4] for row in craft.rows(data)] == nine
    assert len(set(built(0, [(5, key, value, None)]) for key, value in nine)) == 9


def outcome(data):
    """The rows that ``data`` holds, checked for their types, or the error that it is; anything else fails."""
    try:
        found = craft.rows(data, max_decompressed_bytes=100000)
    except ALLOWED as error:
        return error
    for offset, timestamp, key, value, row_headers in found:
        assert offset >= 0 and isinstance(timestamp, six.integer_types)
        assert all(content is None or type(content) is bytes for content in (key, value))
        assert all(type(name) is six.text_type for name, _ in row_headers)
    return found


# Invariant: any bytes are records, or one of three errors.
@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes(data):
    outcome(data)


# Invariant: any bytes in the place of records, in a batch that is right otherwise, are records or an error.
@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, 20), st.integers(0, 15))
def test_any_payload(payload, count, attributes):
    outcome(craft.batch(payload, count=count, attributes=attributes, last_offset_delta=max(count, 1)))


# Invariant: a batch with bytes changed or cut out, its checksum made right again, is records or an error.
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(codecs, appended, changes, st.data())
def test_any_mutation(codec, records_in, changed, draw):
    data = bytearray(built(codec, records_in))
    for place, octet in changed:
        data[place % len(data)] = octet
    if draw.draw(st.booleans()):
        cut = draw.draw(st.integers(61, len(data)))
        del data[cut : cut + draw.draw(st.integers(1, 20))]
        data[8:12] = bytearray(struct.pack(">i", len(data) - 12))
    data[17:21] = bytearray(struct.pack(">I", crc32c_pure.crc32c(bytes(data[21:]))))
    outcome(bytes(data) + built(0, [(5, None, b"next", None)]))


# Invariant: a changed bit under the checksum is never read as records.
@settings(deadline=None)
@given(codecs, appended, st.integers(0, 2**16), st.integers(0, 7))
def test_any_flipped_bit(codec, records_in, place, bit):
    data = bytearray(built(codec, records_in))
    data[17 + place % (len(data) - 17)] ^= 1 << bit
    assert isinstance(outcome(bytes(data)), exc.ProtocolError)
