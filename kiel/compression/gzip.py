"""gzip (RFC 1952), by the standard library's zlib."""

import zlib

import six

from kiel import exc

# zlib's way of asking for gzip's header and trailer around a deflate stream with a window of 32 KiB.
_GZIP = 16 + zlib.MAX_WBITS
_DEFAULT_LEVEL = -1

# Input is given to zlib by the chunk, since it copies whatever it leaves unread for now. Output is about
# a millisecond's work a piece.
_CHUNK_BYTES = 16 * 1024
_PIECE_BYTES = 256 * 1024
# Compressing takes that long for less.
_STEP_BYTES = 32 * 1024


def check_level(level):
    """Levels are 1 (fastest) to 9 (smallest), as in Kafka; -1 or None is zlib's default."""
    if level is None:
        return
    if not isinstance(level, six.integer_types) or not (level == _DEFAULT_LEVEL or 1 <= level <= 9):
        raise exc.ConfigurationError("gzip's compression_level is 1 to 9, or None, not %r" % (level,))


def compress_pieces(data, level=None):
    """Yields one gzip member, a bounded piece of work at a time."""
    compressor = zlib.compressobj(_DEFAULT_LEVEL if level is None else level, zlib.DEFLATED, _GZIP)
    for start in range(0, len(data), _STEP_BYTES):
        yield compressor.compress(data[start:start + _STEP_BYTES])
    yield compressor.flush()


def pieces(data, start, end, limit):
    """Yields the plain bytes of the gzip members in ``data[start:end]``, a bounded piece at a time.

    A member that is damaged or cut short, anything that isn't a member, and more than ``limit`` bytes in all
    end in a ProtocolError.
    """
    stream, pending, total = None, b"", 0
    if start == end:
        raise exc.ProtocolError("gzip: there is nothing")
    while pending or start < end:
        if not pending:
            pending = data[start : min(start + _CHUNK_BYTES, end)]
            start += len(pending)
        if stream is None:
            stream = zlib.decompressobj(_GZIP)
        try:
            piece = stream.decompress(pending, min(_PIECE_BYTES, limit - total + 1))
        except zlib.error as error:
            raise exc.ProtocolError("gzip: %s" % error)
        total += len(piece)
        if total > limit:
            raise exc.ProtocolError("gzip: more than the limit of %d bytes" % limit)
        yield piece
        pending = stream.unconsumed_tail
        if _ended(stream):
            # What follows is another member, if anything.
            pending, stream = stream.unused_data, None
    if stream is not None:
        raise exc.ProtocolError("gzip: cut short")


def _ended(stream):
    if hasattr(stream, "eof"):
        return stream.eof
    # Python 2.7 doesn't say so. Past the end, and only there, zlib leaves a further byte unused.
    if stream.unused_data or stream.unconsumed_tail:
        return bool(stream.unused_data)
    probe = stream.copy()
    try:
        probe.decompress(b"\0", 1)
    except zlib.error:
        return False  # the byte was read as a part of the stream, and was wrong there
    return bool(probe.unused_data)
