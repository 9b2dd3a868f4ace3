"""How messages are declared: a class a message, a line a field.

::

    class HeartbeatRequest(Request):
        api, key, versions, flexible_from = "heartbeat", 12, (0, 4), 4
        kafka = "0.9"
        response = HeartbeatResponse
        parts = (
            Field("group_id", String),
            Field("generation_id", Int32),
            Field("member_id", String),
            Field("group_instance_id", Nullable(String), since=3),
        )

Structs inside messages are classes too: ``Array(MetadataBroker)``. A value that the version can't carry
raises ProtocolError, unless it is the default or the field is ignorable; so do bytes left over after
decoding.
"""
import six

from kiel.exc import ProtocolError
from kiel.protocol.codec import compile_plan
from kiel.protocol.primitives import Array, Bytes, Nullable, Records

_UNSET = object()
_plans = {}


class Field(object):
    """One field of a struct.

    It is there in the versions `since` to `until` (None: no end). `default` is the value where none is
    given, or where the version has no such field (without one: 0, empty, or None for what is Nullable).
    From `nullable_since` on it may be None. With a `tag` it is a tagged field, from `tagged_since` on (by
    default `since`). `ignorable`: it is left out, whatever its value, by a version that can't carry it.
    """

    def __init__(
        self, name, kind, since=0, until=None, default=_UNSET, ignorable=False, nullable_since=None, tag=None,
        tagged_since=None
    ):
        self.name, self.since, self.until, self.ignorable = name, since, until, ignorable
        self.kind = kind.of if isinstance(kind, Nullable) else kind
        self.nullable_since = since if isinstance(kind, Nullable) else nullable_since
        self.tag, self.tagged_since = tag, since if tagged_since is None else tagged_since
        if default is not _UNSET:
            self.default = default
        elif isinstance(kind, Nullable):
            self.default = None
        elif isinstance(self.kind, Array):
            self.default = ()
        else:
            self.default = getattr(self.kind, "default", _UNSET)
        is_struct = self.default is _UNSET
        self.mutable = is_struct or (isinstance(self.kind, Array) and self.default is not None)
        self._make = self.kind if is_struct else (lambda: list(self.default)) if self.mutable else None

    def fresh(self):
        """The default; one of its own each time where it can be changed."""
        return self._make() if self.mutable else self.default

    def exists_at(self, version):
        return self.since <= version and (self.until is None or version <= self.until)

    def tagged_at(self, version):
        return self.tag is not None and self.exists_at(version) and version >= self.tagged_since

    def in_body(self, version):
        """Whether the version has it as an ordinary field, not a tagged one."""
        return self.exists_at(version) and not self.tagged_at(version)

    def nullable_at(self, version):
        return self.nullable_since is not None and version >= self.nullable_since

    def __repr__(self):
        return "Field(%r, %r)" % (self.name, self.kind)


class Struct(object):
    """Values with the names that `parts` declares; what isn't given has the field's default."""

    parts = ()
    __hash__ = None

    def __init__(self, **values):
        for field in self.parts:
            setattr(self, field.name, values.pop(field.name) if field.name in values else field.fresh())
        if values:
            raise TypeError("%s has no field %s" % (type(self).__name__, ", ".join(sorted(values))))

    def __eq__(self, other):
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.parts)

    def __ne__(self, other):
        return not self == other

    def __repr__(self):
        return "%s(%s)" % (type(self).__name__, ", ".join(self._shown()))

    def _shown(self):
        """What differs from the defaults; of bytes, which may be secret, and long lists just how much."""
        for field in self.parts:
            value = getattr(self, field.name)
            if value == field.fresh():
                continue
            if value is not None and field.kind in (Bytes, Records):
                yield "%s=<%d bytes>" % (field.name, len(value))
            elif value is not None and isinstance(field.kind, Array) and len(value) > 3:
                yield "%s=<%d>" % (field.name, len(value))
            else:
                yield "%s=%r" % (field.name, value)


class Message(Struct):
    """A struct that is sent by itself, in one of several versions (`versions` is the first and the last).

    `flexible_from` is the first flexible version (KIP-482), None if there is none. `decoded_version` is the
    version that the message was read in, None if it was made here.
    """

    api = None
    versions = (0, 0)
    flexible_from = None
    decoded_version = None

    @classmethod
    def is_flexible(cls, version):
        return cls.flexible_from is not None and version >= cls.flexible_from

    def for_version(self, version):
        """What is written at a version: the message, or the same in the form that this version has for it.

        Whoever makes a message doesn't know the version that it will be sent in, and uses the newest form.
        """
        return self

    def pieces(self, version):
        """The message's bytes in a list of pieces, which spares a copy of large records."""
        out = []
        try:
            _plan(type(self), version).write(out, self.for_version(version))
        except ProtocolError as error:
            six.raise_from(ProtocolError(error.reason, self.api, version), None)
        return out

    def encode(self, version):
        """The message's bytes; ProtocolError names the field whose value can't be written."""
        return b"".join(self.pieces(version))

    @classmethod
    def decode(cls, data, version, start=0):
        """The message in `data` (bytes) from `start` to the end.

        ProtocolError tells the position in `data`.
        """
        try:
            made, after = _plan(cls, version).read(data, start, len(data))
            if after != len(data):
                raise ProtocolError("%d bytes are left over" % (len(data) - after), position=after)
        except ProtocolError as error:
            six.raise_from(ProtocolError(error.reason, cls.api, version, error.position), None)
        made.decoded_version = version
        return made


class Request(Message):
    """What a client sends.

    `api` is the name that clients' handlers have, `key` Kafka's number for it, `kafka` the first Kafka that
    speaks the first of `versions`, `response` the class of the answer. From version `throttle_from` on
    (None: never) it is the client that waits for the response's throttle_time_ms (KIP-219).
    """

    key = None
    kafka = None
    response = None
    throttle_from = None
    # whether the broker sends a response at all
    answered = True


class Response(Message):
    """What a broker answers; `request` is what it answers, where a Conversation has read it."""

    key = None
    request = None
    # whether the header before it has tagged fields in flexible versions, as it has for all but ApiVersions
    flexible_header = True


def _plan(cls, version):
    plan = _plans.get((cls, version))
    if plan is None:
        first, last = cls.versions
        if not first <= version <= last:
            raise ProtocolError("version isn't one of those that kiel speaks (%d to %d)" % (first, last))
        plan = _plans[cls, version] = compile_plan(cls, version, cls.is_flexible(version))
    return plan
