"""Checks of what an application sets; each raises ConfigurationError with the setting's name and what it may be."""
import numbers

import six

from kiel import constants
from kiel.exc import ConfigurationError


def number(name, value, least=0, most=None):
    """`value` if it is a finite number from `least` to `most`."""
    wanted = "from %s" % least if most is None else "from %s to %s" % (least, most)
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ConfigurationError("%s has to be a number %s, not %r" % (name, wanted, value))
    if not least <= value < float("inf") or (most is not None and value > most):
        raise ConfigurationError("%s has to be %s, not %r" % (name, wanted, value))
    return value


def whole(name, value, least=0, most=None):
    """`value` if it is a whole number from `least` to `most`."""
    number(name, value, least, most)
    if not isinstance(value, numbers.Integral):
        raise ConfigurationError("%s has to be a whole number, not %r" % (name, value))
    return value


def one_of(name, value, choices):
    """`value` if it is among `choices`."""
    if value not in choices:
        raise ConfigurationError(
            "%s has to be one of %s, not %r" % (name, ", ".join(repr(choice) for choice in choices), value)
        )
    return value


def function(name, value):
    """`value` if it is None or can be called."""
    if value is not None and not callable(value):
        raise ConfigurationError("%s has to be callable, not %r" % (name, value))
    return value


def addresses(name, value):
    """[(host, port)] from "host:port,host:port" or a list of such; the port is 9092 by default, IPv6 in brackets."""
    parts = value.split(",") if isinstance(value, six.string_types) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, six.string_types) for part in parts):
        raise ConfigurationError('%s has to be "host:port,..." or a list of "host:port", not %r' % (name, value))
    found = [_address(name, part.strip()) for part in parts if part.strip()]
    if not found:
        raise ConfigurationError("%s names no broker: %r" % (name, value))
    return found


def _address(name, text):
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ConfigurationError('%s: %r is no address; an IPv6 one looks like "[::1]:9092"' % (name, text))
        port = rest[1:]
    else:
        host, colon, port = text.rpartition(":")
        if not colon:
            host, port = text, ""
        if ":" in host:
            raise ConfigurationError('%s: an IPv6 address goes in brackets, like "[::1]:9092", not %r' % (name, text))
    if not port:
        port = str(constants.DEFAULT_PORT)
    if not host or "/" in host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigurationError('%s: %r is no address of the form "host:port"' % (name, text))
    return host, int(port)
