"""Variable-length integers as in Protocol Buffers: seven bits a byte, the lowest first, in zigzag.

Zigzag numbers 0, -1, 1, -2, 2 ... as 0, 1, 2, 3, 4 ..., so that small negative numbers are short too.
"""

import six

from kiel import exc

# The most bytes that an int32 and an int64 take.
INT32_BYTES = 5
INT64_BYTES = 10


def encode(number):
    """The bytes of a signed integer of up to 64 bits."""
    rest = (number << 1) ^ (number >> 63)
    if 0 <= rest < 128:
        return six.int2byte(rest)
    encoded = bytearray()
    while rest > 127:
        encoded.append(rest & 127 | 128)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def decode_raw(octets, position, most=INT32_BYTES):
    """Reads an integer of at most ``most`` bytes: (its zigzag number, the position behind it).

    ``octets`` gives integers when indexed; its end is an IndexError. Too long a number is a ProtocolError.
    """
    raw = shift = 0
    for place in range(position, position + most):
        octet = octets[place]
        raw |= (octet & 127) << shift
        if octet < 128:
            if raw >> (32 if most == INT32_BYTES else 64):
                break
            return raw, place + 1
        shift += 7
    raise exc.ProtocolError("a varint is longer than %d bytes can say" % most, position=position)


def decode(octets, position, most=INT32_BYTES):
    """As ``decode_raw``, but gives the signed integer itself."""
    raw, position = decode_raw(octets, position, most)
    return (raw >> 1) ^ -(raw & 1), position
