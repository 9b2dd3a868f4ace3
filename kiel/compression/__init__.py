"""The codecs that records can be compressed with, by Kafka's number or name.

Kafka's numbers are 0 (none), 1 (gzip), 2 (snappy), 3 (lz4) and 4 (zstd); the three bits of a batch's
attributes leave room for 5 to 7, which mean nothing yet. Each codec is a module of its own with

- ``check_level(level)``: raises ConfigurationError unless it is a level of that codec's or None,
- ``compress_pieces(data, level)``: yields what ``data`` compresses to, piece by piece,
- ``pieces(data, start, end, limit)``: yields the plain bytes of ``data[start:end]`` piece by piece.
"""

import six

from kiel import exc
from kiel.compression import gzip

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
_CODECS = {GZIP: gzip}


def name(number):
    """The name of a codec: ``name(1)`` is "gzip". UnsupportedCodecError if there is no such number."""
    if not 0 <= number < len(_NAMES):
        raise exc.UnsupportedCodecError("compression codec %d is not known" % number)
    return _NAMES[number]


def number(name):
    """The number of a codec: ``number("gzip")`` is 1, None is "none". ConfigurationError for others."""
    if name is None:
        return NONE
    if not isinstance(name, six.string_types) or name not in _NAMES:
        raise exc.ConfigurationError("compression is one of %s, not %r" % (", ".join(_NAMES), name))
    return _NAMES.index(name)


def check(number, level=None):
    """Raises unless ``compress`` can be called so: UnsupportedCodecError, ConfigurationError (level)."""
    if number != NONE:
        _codec(number).check_level(level)
    elif level is not None:
        raise exc.ConfigurationError("compression_level %r needs a compression that has levels" % (level,))


def compress(number, data, level=None):
    """``data`` compressed; None is the codec's own default level. Raises as ``check`` does."""
    return b"".join(compress_pieces(number, data, level))


def compress_pieces(number, data, level=None):
    """Yields what ``data`` compresses to, in pieces (some may be empty), each a short, bounded step of work.

    Raises as ``check`` does.
    """
    check(number, level)
    return iter((data,)) if number == NONE else _codec(number).compress_pieces(data, level)


def decompress(number, data, limit):
    """``data`` decompressed: ProtocolError if it is damaged, or would be more than ``limit`` bytes."""
    return b"".join(pieces(number, data, limit))


def pieces(number, data, limit, start=0, end=None):
    """Yields what ``data[start:end]`` decompresses to, in pieces (some may be empty).

    Each piece is a short, bounded step of work where the codec allows that, so that an event loop can do
    something else in between. Raises as ``decompress`` does.
    """
    if end is None:
        end = len(data)
    if number != NONE:
        return _codec(number).pieces(data, start, end, limit)
    if end - start > limit:
        raise exc.ProtocolError("%d bytes of records are over the limit of %d" % (end - start, limit))
    return iter((data[start:end],))


def _codec(number):
    if number not in _CODECS:
        raise exc.UnsupportedCodecError(
            "compression codec %d (%s) is not supported by this version of kiel" % (number, name(number))
        )
    return _CODECS[number]
