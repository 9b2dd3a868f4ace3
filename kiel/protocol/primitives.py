"""The types that fields of Kafka's messages have, and how each of them is read and written.

A reader is ``read(data, at, end) -> (value, next position)``: it works on one ``bytes`` object, looks at
nothing from `end` on, and raises :class:`~kiel.exc.ProtocolError` with the position of what is wrong. A
writer is ``write(out, value)``: it appends pieces of ``bytes`` to the list `out`. Lengths are compared with
what is left before anything is allocated.

Declarations say just ``String``; whether the compact form is used (KIP-482) follows from the message's
version.
"""
import struct

import six

from kiel.exc import ProtocolError

NO_UUID = b"\0" * 16

# Kafka's own limit on strings, in the compact form too, where the length alone would allow more
LONGEST_STRING = 0x7FFF
LONGEST = 0x7FFFFFFF

_read_int16 = struct.Struct(">h").unpack_from
_read_int32 = struct.Struct(">i").unpack_from
_pack_int16 = struct.Struct(">h").pack
_pack_int32 = struct.Struct(">i").pack
_byte_at = six.indexbytes


class Span(object):
    """Some bytes inside a larger ``bytes`` object, not copied: ``data[start:end]``."""

    __slots__ = ("data", "start", "end")
    __hash__ = None

    def __init__(self, data, start, end):
        self.data, self.start, self.end = data, start, end

    def __len__(self):
        return self.end - self.start

    def tobytes(self):
        """A copy of the bytes (the object itself, if the span is all of it)."""
        return self.data[self.start:self.end]

    def __eq__(self, other):
        if isinstance(other, Span):
            return self.tobytes() == other.tobytes()
        return self.tobytes() == other if isinstance(other, bytes) else NotImplemented

    def __ne__(self, other):
        return not self == other

    def __repr__(self):
        return "<Span of %d bytes>" % len(self)


def cut_off(what, needed, at, end):
    """The error for something that goes on past the end."""
    return ProtocolError("%s takes %d bytes, %d are left" % (what, needed, end - at), position=at)


def mistyped(label, kind, value):
    """The error for a value that can't be written; it tells only the value's type, which is no secret."""
    return ProtocolError("%s is to be %s, not %s" % (label, kind, type(value).__name__))


def read_uvarint(data, at, end):
    """An unsigned varint of at most 32 bits: seven bits a byte, the lowest first."""
    value = shift = 0
    position = at
    while position < end:
        byte = _byte_at(data, position)
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
        shift += 7
        if shift > 28:
            break
    else:
        raise ProtocolError("a varint is cut off", position=at)
    raise ProtocolError("a varint has more than 32 bits", position=at)


def uvarint(value):
    """The bytes of an unsigned varint."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _read_compact_length(data, at, end):
    if at < end:
        length = _byte_at(data, at)
        if length < 0x80:  # nearly all of them: worth a way of its own
            return length - 1, at + 1
    length, after = read_uvarint(data, at, end)
    return length - 1, after


def _read_short_length(data, at, end):
    if at + 2 > end:
        raise cut_off("a length", 2, at, end)
    return _read_int16(data, at)[0], at + 2


def _read_long_length(data, at, end):
    if at + 4 > end:
        raise cut_off("a length", 4, at, end)
    return _read_int32(data, at)[0], at + 4


def length_reader(what, compact, nullable, short=False):
    """A reader of the length before a string, bytes or an array; null gives None."""
    read_any = _read_compact_length if compact else _read_short_length if short else _read_long_length

    def read(data, at, end):
        length, after = read_any(data, at, end)
        if length >= 0:
            return length, after
        if length != -1:
            raise ProtocolError("%s has the length %d" % (what, length), position=at)
        if not nullable:
            raise ProtocolError("%s is null" % what, position=at)
        return None, after

    return read


def length_packer(compact, short=False):
    """A function that makes a length into bytes; -1 is null."""
    if compact:
        return lambda length: uvarint(length + 1)
    return _pack_int16 if short else _pack_int32


class Fixed(object):
    """A type that always takes the same number of bytes; `code` is its format in the struct module.

    ``accepts(value)`` is a check for what struct would silently make into something else, or None.
    """

    def __init__(self, name, code, default, accepts=None):
        self.name, self.code, self.default, self.accepts = name, code, default, accepts
        self.format = struct.Struct(">" + code)
        self.size = self.format.size

    def least(self, compact):
        return self.size

    def reader(self, compact, nullable):
        unpack, size, name = self.format.unpack_from, self.size, self.name

        def read(data, at, end):
            if at + size > end:
                raise cut_off(name, size, at, end)
            return unpack(data, at)[0], at + size

        return read

    def writer(self, compact, nullable, label):
        def write(out, value):
            out.append(self.pack(value, label))

        return write

    def pack(self, value, label):
        if self.accepts is not None and not self.accepts(value):
            raise mistyped(label, self.name, value)
        try:
            return self.format.pack(value)
        except (struct.error, OverflowError):
            if isinstance(value, six.integer_types):
                error = ProtocolError("%s is out of range for %s: %d" % (label, self.name, value))
            else:
                error = mistyped(label, self.name, value)
            six.raise_from(error, None)

    def __repr__(self):
        return self.name


class Sized(object):
    """A type with its length before it.

    ``take(data, start, end)`` makes the value; ``give(value)`` makes it into (number of bytes, pieces), or
    None if it can't. `short` is whether the length has two bytes, where it isn't compact.
    """

    def __init__(self, name, default, take, give, short=False, longest=LONGEST):
        self.name, self.default, self.take, self.give = name, default, take, give
        self.short, self.longest = short, longest

    def least(self, compact):
        return 1 if compact else 2 if self.short else 4

    def reader(self, compact, nullable):
        name, take = self.name, self.take
        read_length = length_reader(name, compact, nullable, self.short)

        def read(data, at, end):
            length, start = read_length(data, at, end)
            if length is None:
                return None, start
            after = start + length
            if after > end:
                raise cut_off(name, length, start, end)
            return take(data, start, after), after

        return read

    def writer(self, compact, nullable, label):
        give, longest, pack_length = self.give, self.longest, length_packer(compact, self.short)

        def write(out, value):
            if value is None and nullable:
                out.append(pack_length(-1))
                return
            given = give(value)
            if given is None:
                raise mistyped(label, self.name, value)
            length, pieces = given
            if length > longest:
                raise ProtocolError("%s has %d bytes, of at most %d" % (label, length, longest))
            out.append(pack_length(length))
            out.extend(pieces)

        return write

    def __repr__(self):
        return self.name


def _take_text(data, start, end):
    try:
        return data[start:end].decode("utf-8")
    except UnicodeDecodeError as error:
        six.raise_from(ProtocolError("a string isn't UTF-8", position=start + error.start), None)


def _give_text(value):
    if isinstance(value, six.text_type):
        try:
            value = value.encode("utf-8")
        except UnicodeEncodeError:  # half of a surrogate pair
            return None
    elif isinstance(value, str):  # Python 2, where it is what a plain literal is
        try:
            value.decode("utf-8")
        except UnicodeDecodeError:
            return None
    else:
        return None
    return len(value), (value,)


def _take_bytes(data, start, end):
    return data[start:end]


def _give_bytes(value):
    if isinstance(value, (bytearray, memoryview)):
        value = bytes(value) if isinstance(value, bytearray) else value.tobytes()
    return (len(value), (value,)) if isinstance(value, bytes) else None


def _give_records(value):
    if isinstance(value, Span):
        value = value.tobytes()
    if isinstance(value, (list, tuple)):
        if not all(isinstance(piece, bytes) for piece in value):
            return None
        return sum(len(piece) for piece in value), value
    return _give_bytes(value)


def _has_index(value):
    return hasattr(value, "__index__")


# Python 2's struct cuts fractions off, with no more than a warning; 3's refuses them by itself, and faster
_is_whole = None if six.PY3 else _has_index


def _is_bool(value):
    return isinstance(value, bool)


def _is_uuid(value):
    return isinstance(value, bytes) and len(value) == 16


def _is_number(value):
    return isinstance(value, float) or isinstance(value, six.integer_types)


Boolean = Fixed("Boolean", "?", False, _is_bool)
Int8 = Fixed("Int8", "b", 0, _is_whole)
Int16 = Fixed("Int16", "h", 0, _is_whole)
UInt16 = Fixed("UInt16", "H", 0, _is_whole)
Int32 = Fixed("Int32", "i", 0, _is_whole)
UInt32 = Fixed("UInt32", "I", 0, _is_whole)
Int64 = Fixed("Int64", "q", 0, _is_whole)
Float64 = Fixed("Float64", "d", 0.0, _is_number)
# sixteen bytes, as they are on the wire
Uuid = Fixed("Uuid", "16s", NO_UUID, _is_uuid)
# text, in UTF-8
String = Sized("String", u"", _take_text, _give_text, short=True, longest=LONGEST_STRING)
Bytes = Sized("Bytes", b"", _take_bytes, _give_bytes)
# read as a Span of the data; written from bytes, a Span, or a list of pieces of bytes
Records = Sized("Records", b"", Span, _give_records)


class Array(object):
    """A list of values of one type, which is one of the above or a Struct class."""

    name = "Array"

    def __init__(self, of):
        self.of = of

    def least(self, compact):
        return 1 if compact else 4

    def __repr__(self):
        return "Array(%s)" % (getattr(self.of, "__name__", None) or repr(self.of))


class Nullable(object):
    """What may be null (None): a type with a length before it, an Array or a Struct class."""

    def __init__(self, of):
        if isinstance(of, (Fixed, Nullable)):
            raise TypeError("%r can't be null in Kafka's protocol" % (of,))
        self.of = of

    def __repr__(self):
        return "Nullable(%s)" % (getattr(self.of, "__name__", None) or repr(self.of))
