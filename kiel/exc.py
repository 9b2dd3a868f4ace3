"""Every error that kiel raises; all of them are a :class:`KielError`."""
import six

__all__ = [
    "AuthorizationError",
    "BrokerConnectionError",
    "BrokerError",
    "ClosedError",
    "ConfigurationError",
    "CorruptRecordError",
    "DeadlineError",
    "DeserializationError",
    "InvalidTopicError",
    "KielError",
    "MissingDependencyError",
    "NoBrokersError",
    "NoOffsetsError",
    "ProduceError",
    "ProtocolError",
    "RebalanceError",
    "RecordError",
    "RecordTooLargeError",
    "RequestTimeoutError",
    "UnhandledResponseError",
    "UnknownTopicError",
    "UnsupportedCodecError",
    "UnsupportedVersionError",
    "UsageError",
]

# Kafka's own limit, in bytes.
LONGEST_TOPIC = 249


def text_of(thing):
    """What an error, or a name, says, as text: Python 2 can't mix bytes and text that aren't ASCII."""
    if six.PY3:
        return str(thing)
    try:
        return six.text_type(thing)
    except UnicodeError:
        return bytes(thing).decode("utf-8", "replace")


def place_of(topic, partition=None):
    """The topic, or "topic[partition]", as messages have it; of what can't be a topic's name some, quoted."""
    name = text_of(topic)
    if not 0 < len(name) <= LONGEST_TOPIC or name.encode("utf-8", "replace").decode("utf-8") != name:
        name = repr(topic)[:60]
    return name if partition is None else "%s[%d]" % (name, partition)


@six.python_2_unicode_compatible
class KielError(Exception):
    """The base of every error that kiel raises."""

    def __str__(self):
        return text_of(self.args[0]) if self.args else u""


class ConfigurationError(KielError):
    """A setting that can't be right; the message names it and what it may be."""


class UsageError(KielError):
    """A call that can't be right at this time: on a closed client, in a forked child, twice at once."""


class ClosedError(UsageError):
    """The client was closed; whoever waited on it or asks more of it is told with this."""


class MissingDependencyError(KielError):
    """Something optional is needed and isn't installed; the message names the package."""


class NoBrokersError(KielError):
    """None of the brokers could be reached; the message lists each address with its reason."""


class NoOffsetsError(KielError):
    """A partition has no offset to read from: out of range, with ``auto_offset_reset="none"``."""


class DeadlineError(KielError):
    """An operation with a time-out of its own didn't end in time; ``cause`` is the last failure, if any."""

    def __init__(self, message, cause=None):
        super(DeadlineError, self).__init__(message)
        self.cause = cause


class BrokerConnectionError(KielError):
    """A broker couldn't be reached, or hung up; whatever waited on its connection fails with this.

    ``address`` is "host:port", ``reason`` is what happened and ``stage`` is where it went wrong: "resolve", "connect",
    "handshake", "read", "write" or "closed".
    """

    def __init__(self, address, stage, reason):
        super(BrokerConnectionError, self).__init__("broker at %s: %s (%s)" % (address, reason, stage))
        self.address, self.stage, self.reason = address, stage, reason


class RequestTimeoutError(BrokerConnectionError):
    """A response was overdue; its connection is closed, since nothing after it could be trusted."""


class UnhandledResponseError(KielError):
    """A response came to a client that has no ``handle_<api>_response`` method for it."""


class ProtocolError(KielError):
    """Bytes that don't follow Kafka's protocol.

    ``api`` (a name), ``version`` and ``position`` (a byte offset into the message) say where; each is None
    where it isn't known.
    """

    def __init__(self, reason, api=None, version=None, position=None):
        self.reason, self.api, self.version, self.position = reason, api, version, position
        where = [
            label % value
            for label, value in (("%s", api), ("version %d", version), ("byte %d", position))
            if value is not None
        ]
        super(ProtocolError, self).__init__("%s: %s" % (", ".join(where), reason) if where else reason)


class RebalanceError(KielError):
    """A consumer couldn't become a member of its group; ``cause`` is the last failure.

    ``group`` is the group's name, ``failures`` how many there were in a row. The next call tries anew.
    """

    def __init__(self, group, failures, cause):
        message = "group %s: not joined after %d failures in a row, the last was: %s" % (group, failures, cause)
        super(RebalanceError, self).__init__(message)
        self.group, self.failures, self.cause = group, failures, cause


class UnsupportedVersionError(KielError):
    """The broker and kiel share no version of an API that could carry the request."""


class UnsupportedCodecError(KielError):
    """Records are compressed with a codec that is unknown, or that nothing installed can read or write."""


class RecordError(KielError):
    """A record or batch at one place of a log can't be read; ``cause`` says why.

    ``topic``, ``partition`` and ``offset`` say where.
    """

    def __init__(self, topic, partition, offset, cause):
        super(RecordError, self).__init__("%s[%d] at offset %d: %s" % (topic, partition, offset, text_of(cause)))
        self.topic, self.partition, self.offset, self.cause = topic, partition, offset, cause


class CorruptRecordError(RecordError):
    """The bytes of a batch are damaged, or compressed in a way that can't be read here.

    The position stays: the partition is fetched again after a while, and ``seek`` passes over the batch.
    """


class RecordTooLargeError(KielError):
    """A record is larger than the limit that applies to it; the message names the limit."""


class DeserializationError(KielError):
    """A value's deserializer failed; ``record`` is the Record with its raw value, ``cause`` the failure."""

    def __init__(self, record, cause):
        super(DeserializationError, self).__init__(
            "%s[%d] at offset %d can't be deserialized: %s: %s"
            % (record.topic, record.partition, record.offset, type(cause).__name__, text_of(cause))
        )
        self.record, self.cause = record, cause


class ProduceError(KielError):
    """A record was not acknowledged; ``cause`` says why.

    ``topic`` and ``partition`` (None if it wasn't chosen yet) say where it was going. From ``produce_many`` it is the
    first failure, and ``acknowledged`` and ``failed`` are the numbers of records.
    """

    def __init__(self, topic, partition, cause, acknowledged=0, failed=1):
        super(ProduceError, self).__init__(
            "record for %s was not acknowledged: %s" % (place_of(topic, partition), text_of(cause))
        )
        self.topic, self.partition, self.cause = topic, partition, cause
        self.acknowledged, self.failed = acknowledged, failed


class BrokerError(KielError):
    """An error code from a broker.

    ``code`` and ``name`` are Kafka's (an unknown code is named UNKNOWN_CODE), ``retriable`` is whether the same
    request may succeed later, and ``about`` is the topic, partition, group or API that it concerns.
    """

    def __init__(self, code, name, retriable, about=None, text=None):
        message = "%s (error %d)" % (name, code)
        if about is not None:
            message = "%s: %s" % (about, message)
        if text:
            message = "%s: %s" % (message, text)
        super(BrokerError, self).__init__(message)
        self.code, self.name, self.retriable, self.about, self.text = code, name, retriable, about, text


class AuthorizationError(BrokerError):
    """The broker refuses this principal the topic, group, cluster or transactional id."""


class InvalidTopicError(BrokerError):
    """A topic's name that no broker accepts."""


class UnknownTopicError(BrokerError):
    """A topic or partition that doesn't exist, or that this principal may not know of."""
