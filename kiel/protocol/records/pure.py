"""The records inside a batch, read and written in pure Python. This is where kiel spends its time.

A record is (varints unless said): its length, attributes (one byte, unused), timestamp delta (64 bits),
offset delta, key length (-1: null), key, value length (-1: null), value, number of headers, and for each of
these the name's length, name, value's length (-1: null), value.
"""

import collections

import six

from kiel import exc
from kiel.protocol.records import varints

# A record of no key, no value and no headers; and of a header with an empty name and no value.
LEAST_RECORD_BYTES = 7
_LEAST_HEADER_BYTES = 2

# A header takes two bytes or more on the wire, but some seventy as a tuple: what a small, highly compressed
# batch could make of itself is bounded here. No broker's message.max.bytes is near to this many.
_MOST_HEADERS = 1000000

# Of a record with neither key, value nor headers, at its largest: length, attributes, timestamp, offset,
# key's length, value's length, number of headers.
_MOST_OVERHEAD_BYTES = 5 + 1 + 10 + 5 + 5 + 5 + 5

# The varints that are needed most: sizes, and the offsets and timestamps of a batch that is filled within a
# second.
_ENCODED_COUNT = 2048
_ENCODED = [varints.encode(number) for number in range(_ENCODED_COUNT)]


class Columns(collections.namedtuple("Columns", ("offsets", "timestamps", "keys", "values", "headers"))):
    """Records as parallel lists.

    ``keys`` and ``values`` are bytes or None, ``timestamps`` milliseconds. ``headers`` is None if no record
    has any, else for each record a tuple of (name as text, value as bytes or None).
    """

    __slots__ = ()


def decode(batch, data, position, end, step):
    """Yields Columns of at most ``step`` of the records of ``batch``, which fill ``data[position:end]``.

    They are fewer where they have more than ``step`` headers in all, so that the work for each Columns stays
    bounded. Offsets needn't be dense (compaction removes records), but must be within the batch's own.
    ProtocolError for anything else.
    """
    octets = data
    if six.PY2:
        data = data[position:end]
        octets = bytearray(data)
        position, end = 0, len(data)
    done = 0
    while done < batch.count:
        most = min(step, batch.count - done)
        try:
            columns, position = _decode(batch, octets, data, position, most, step)
        except IndexError:
            raise exc.ProtocolError("a record goes on behind the end")
        if position > end:
            raise exc.ProtocolError("a record goes on behind the end")
        done += len(columns.offsets)
        if batch.timestamp_type:
            columns = columns._replace(timestamps=[batch.max_timestamp] * len(columns.offsets))
        if done == batch.count and position != end:
            raise exc.ProtocolError("%d bytes follow the last record" % (end - position))
        yield columns


def _decode(batch, octets, data, position, count, enough_headers):
    # One long function without calls, since in CPython a call costs about as much as reading a field. A
    # varint of one or two bytes is read on the spot. That a record keeps to its length is checked when it is
    # read, and that the last one keeps to the end of the batch after the loop: until then nothing but work is
    # lost.
    offsets, timestamps, keys, values, headers = [], [], [], [], None
    add_offset, add_timestamp = offsets.append, timestamps.append
    add_key, add_value = keys.append, values.append
    decode_raw, long_bytes = varints.decode_raw, varints.INT64_BYTES
    base_offset, base_timestamp = batch.base_offset, batch.base_timestamp
    last_raw = (batch.last_offset - base_offset) << 1
    for index in range(count):
        length = octets[position]
        position += 1
        if length > 127:
            high = octets[position]
            if high < 128:
                length += (high << 7) - 128
                position += 1
            else:
                length, position = decode_raw(octets, position - 1)
        start = position

        raw = octets[position + 1]
        position += 2
        if raw > 127:
            high = octets[position]
            if high < 128:
                raw += (high << 7) - 128
                position += 1
            else:
                raw, position = decode_raw(octets, position - 1, long_bytes)
        add_timestamp(base_timestamp + ((raw >> 1) ^ -(raw & 1)))

        raw = octets[position]
        position += 1
        if raw > 127:
            high = octets[position]
            if high < 128:
                raw += (high << 7) - 128
                position += 1
            else:
                raw, position = decode_raw(octets, position - 1)
        if raw & 1 or raw > last_raw:
            raise exc.ProtocolError("a record's offset is outside of it")
        add_offset(base_offset + (raw >> 1))

        raw = octets[position]
        position += 1
        if raw > 127:
            high = octets[position]
            if high < 128:
                raw += (high << 7) - 128
                position += 1
            else:
                raw, position = decode_raw(octets, position - 1)
        if raw & 1:
            if raw > 1:
                raise exc.ProtocolError("a key's length is negative")
            add_key(None)
        else:
            behind = position + (raw >> 1)
            add_key(data[position:behind])
            position = behind

        raw = octets[position]
        position += 1
        if raw > 127:
            high = octets[position]
            if high < 128:
                raw += (high << 7) - 128
                position += 1
            else:
                raw, position = decode_raw(octets, position - 1)
        if raw & 1:
            if raw > 1:
                raise exc.ProtocolError("a value's length is negative")
            add_value(None)
        else:
            behind = position + (raw >> 1)
            add_value(data[position:behind])
            position = behind

        raw = octets[position]
        position += 1
        if raw:
            if headers is None:
                headers = [()] * count
            headers[index], position = _decode_headers(octets, data, position - 1, start + (length >> 1))
            enough_headers -= len(headers[index])
        if (position - start) << 1 != length:
            raise exc.ProtocolError("a record's length isn't that of its fields")
        if enough_headers < 0:
            break
    if headers is not None:
        del headers[len(offsets) :]
    return Columns(offsets, timestamps, keys, values, headers), position


def _decode_headers(octets, data, position, end):
    count, position = varints.decode(octets, position)
    if not 0 <= count * _LEAST_HEADER_BYTES <= end - position:
        raise exc.ProtocolError("%d headers can't be in %d bytes" % (count, end - position))
    if count > _MOST_HEADERS:
        raise exc.ProtocolError("%d headers are more than the limit of %d" % (count, _MOST_HEADERS))
    headers = []
    for _ in range(count):
        name, position = _decode_bytes(octets, data, position, end)
        if name is None:
            raise exc.ProtocolError("a header's name is null")
        try:
            name = name.decode("utf-8")
        except UnicodeDecodeError as error:
            raise exc.ProtocolError("a header's name isn't UTF-8: %s" % error)
        value, position = _decode_bytes(octets, data, position, end)
        headers.append((name, value))
    return tuple(headers), position


def _decode_bytes(octets, data, position, end):
    size, position = varints.decode(octets, position)
    if size == -1:
        return None, position
    if not 0 <= size <= end - position:
        raise exc.ProtocolError("a header's length is %d where %d bytes are left" % (size, end - position))
    return data[position : position + size], position + size


def encode(timestamp_delta, offset_delta, key, value, headers):
    """The bytes of one record; ``headers`` is a list of (text, bytes or None), or None."""
    encoded, most = _ENCODED, _ENCODED_COUNT
    if key is None and value is not None and not headers:
        size = len(value)
        body = (
            b"\0",
            encoded[timestamp_delta] if 0 <= timestamp_delta < most else varints.encode(timestamp_delta),
            encoded[offset_delta] if offset_delta < most else varints.encode(offset_delta),
            b"\1",
            encoded[size] if size < most else varints.encode(size),
            value,
            b"\0",
        )
    else:
        headers = _checked_headers(headers)
        body = [b"\0", varints.encode(timestamp_delta), varints.encode(offset_delta)]
        _encode_bytes(body, key)
        _encode_bytes(body, value)
        body.append(varints.encode(len(headers)))
        for name, content in headers:
            _encode_bytes(body, name)
            _encode_bytes(body, content)
    body = b"".join(body)
    size = len(body)
    return (encoded[size] if size < most else varints.encode(size)) + body


def _encode_bytes(pieces, content):
    check_bytes(content)
    if content is None:
        pieces.append(b"\1")
    else:
        pieces.append(varints.encode(len(content)))
        pieces.append(content)


def _checked_headers(headers):
    """[(name as UTF-8, value)] of [(name as text, value)] or None."""
    if not isinstance(headers, (list, tuple, type(None))):
        raise exc.ProtocolError("headers are a list of (name, value), not %s" % type(headers).__name__)
    checked = []
    for header in headers or ():
        if not isinstance(header, (list, tuple)) or len(header) != 2:
            raise exc.ProtocolError("a header is (name, value), not %s" % type(header).__name__)
        checked.append((_encode_name(header[0]), header[1]))
    return checked


def _encode_name(name):
    try:
        if isinstance(name, six.text_type):
            return name.encode("utf-8")
        if six.PY2 and isinstance(name, str):
            name.decode("utf-8")
            return name
    except UnicodeError as error:
        raise exc.ProtocolError("a header's name can't be written as UTF-8: %s" % error)
    raise exc.ProtocolError("a header's name is text, not %s" % type(name).__name__)


def check_bytes(content):
    """ProtocolError unless it can be a key, a value or a header's value."""
    if content is not None and not isinstance(content, bytes):
        kind = type(content).__name__
        raise exc.ProtocolError("keys, values and header values are bytes or None, not %s" % kind)


def record_size(key, value, headers):
    """An upper bound of the bytes that a record adds to an uncompressed batch. Errors as of ``append``."""
    size = _MOST_OVERHEAD_BYTES
    for content in (key, value):
        check_bytes(content)
        size += len(content or b"")
    for name, content in _checked_headers(headers) if headers else ():
        check_bytes(content)
        size += 2 * varints.INT32_BYTES + len(name) + len(content or b"")
    return size
