"""EmbeddedCluster: brokers that speak Kafka's protocol on loopback ports of this process."""
import atexit
import collections
import ctypes
import os
import socket
import struct
import time

import six

from kiel import settings
from kiel.exc import ConfigurationError, KielError, UsageError
from kiel.testing import librdkafka, names

# From Metadata 9 on librdkafka's answers have a byte too many, which a client may well refuse.
SOUND_METADATA = 8

# Above these versions librdkafka's answers name the partition's leader; where there is none it crashes.
SAFE_WITHOUT_LEADER = {"produce": 9, "fetch": 11}

_open = set()


class SeenRequest(collections.namedtuple("SeenRequest", "broker_id api_key api timestamp")):
    """A request that a broker of an EmbeddedCluster got; `api` is the name of `api_key`.

    `timestamp` is in milliseconds, on a clock that only tells how far two requests are apart.
    """

    __slots__ = ()


class EmbeddedCluster(object):
    """A cluster of `brokers` brokers, with the ids 1 to `brokers`, each on a port of 127.0.0.1 that was free.

    It is librdkafka's mock cluster: what is produced is kept in memory (the last 5 MiB of each partition) and
    can be fetched again, consumers can form groups, and it fails as it is told to. docs/testing.rst says what
    it can't do. It serves from a thread of librdkafka's own, so the IOLoop that uses it may be in the same
    process. Its methods take a millisecond or two; use them from one thread at a time.

    `group_rebalance_delay_ms` is how long the first member of a group waits for others.

    Also a context manager. A cluster that is never closed runs until the interpreter exits. Errors:
    MissingDependencyError without the confluent-kafka package, ConfigurationError for arguments that can't be
    right (a broker or partition that isn't there is one), UsageError after ``close`` and in a forked child.
    """

    DISCONNECT = names.DISCONNECT

    def __init__(self, brokers=1, group_rebalance_delay_ms=0):
        settings.whole("brokers", brokers, 1, 1000)
        settings.whole("group_rebalance_delay_ms", group_rebalance_delay_ms, 0, 2 ** 31 - 1)
        self._functions = librdkafka.load()
        self._pid = os.getpid()
        self._tracking = False
        self._client = self._new_client()
        self._cluster = self._functions.mock_cluster_new(self._client, brokers)
        if not self._cluster:
            self._functions.destroy(self._client)
            raise KielError("librdkafka could not open %d listening sockets on 127.0.0.1" % brokers)
        _open.add(self)
        #: The brokers' addresses, as one "host:port,host:port".
        self.bootstrap = self._functions.mock_cluster_bootstraps(self._cluster).decode("ascii")
        #: The brokers' addresses, a list of "host:port"; the first is that of broker 1.
        self.brokers = self.bootstrap.split(",")
        self._functions.mock_group_initial_rebalance_delay_ms(self._cluster, group_rebalance_delay_ms)
        self._spoken = _api_versions(self.brokers[0])
        self._limits = dict(self._spoken)
        self.set_api_versions("metadata", 0, SOUND_METADATA)

    def _new_client(self):
        conf = self._functions.conf_new()
        # Its log lines would go to stderr, in the middle of a test's output.
        self._functions.conf_set_log_cb(conf, None)
        reason = ctypes.create_string_buffer(512)
        client = self._functions.new(librdkafka.PRODUCER, conf, reason, len(reason))
        if not client:
            self._functions.conf_destroy(conf)
            raise KielError("librdkafka did not start: %s" % reason.value.decode("utf-8", "replace"))
        return client

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __repr__(self):
        return "<EmbeddedCluster %s%s>" % (self.bootstrap, "" if self._cluster else " (closed)")

    def close(self):
        """End the brokers, with all that was produced, and librdkafka's threads. Closing twice is fine."""
        client, cluster, self._client, self._cluster = self._client, self._cluster, None, None
        _open.discard(self)
        # A forked child has no thread that could answer; what it inherited goes with it.
        if cluster and self._pid == os.getpid():
            self._functions.mock_cluster_destroy(cluster)
            self._functions.destroy(client)

    # Topics

    def create_topic(self, name, partitions=1, replication=1):
        """Create a topic with that many partitions and replicas of each; leaders are chosen at random."""
        settings.whole("partitions", partitions, 1, 10000)
        settings.whole("replication", replication, 1, len(self.brokers))
        self._do("create_topic(%r)" % (name,), "topic_create", _text("name", name), partitions, replication)

    def delete_topic(self, name):
        """Delete a topic with all that is in it. Needs librdkafka 2.15."""
        self._do("delete_topic(%r)" % (name,), "topic_delete", _text("name", name))

    def delete_records(self, topic, partition, before_offset):
        """Make `before_offset` the first offset of a partition's log. Needs librdkafka 2.15."""
        settings.whole("partition", partition, 0, 2 ** 31 - 1)
        settings.whole("before_offset", before_offset, 0, 2 ** 63 - 1)
        self._do(
            "delete_records(%r, %d)" % (topic, partition),
            "partition_delete_records",
            _text("topic", topic),
            partition,
            before_offset,
        )

    def topic_error(self, topic, error):
        """Give `error` for that topic in each metadata answer; 0 ends that.

        A topic that isn't there is created. `error` is a code, a name or a row of kiel.protocol.errors.
        """
        self._do("topic_error", "topic_set_error", _text("topic", topic), names.error_code(error))

    def set_leader(self, topic, partition, broker_id):
        """Make a broker lead a partition (its leader epoch goes up by one); None leaves it without a leader.

        librdkafka can't say "no leader" in Produce 10 and Fetch 12 without taking the process down, so None
        also limits the whole cluster to Produce 9 and Fetch 11: a connection that had agreed on more is
        closed at its next such request.
        """
        settings.whole("partition", partition, 0, 2 ** 31 - 1)
        broker_id = -1 if broker_id is None else self._broker_id(broker_id)
        if broker_id == -1:
            for api, highest in SAFE_WITHOUT_LEADER.items():
                low, high = self._limits.get(names.api_key(api), (0, 0))
                if high > highest:
                    self.set_api_versions(api, min(low, highest), highest)
        self._do(
            "set_leader(%r, %d)" % (topic, partition),
            "partition_set_leader",
            _text("topic", topic),
            partition,
            broker_id,
        )

    # Brokers

    def broker_down(self, broker_id=None):
        """Close a broker's connections and port, and leave it out of metadata; None: every broker's.

        Leaders stay as they are: follow up with ``set_leader`` to have partitions move.
        """
        self._do("broker_down", "broker_set_down", self._broker_id(broker_id))

    def broker_up(self, broker_id=None):
        """Open a broker's port again, the same as before; None: every broker's."""
        self._do("broker_up", "broker_set_up", self._broker_id(broker_id))

    def set_rtt(self, broker_id, ms):
        """Let a broker send each answer `ms` milliseconds late; None: every broker."""
        settings.whole("ms", ms, 0, 2 ** 31 - 1)
        self._do("set_rtt", "broker_set_rtt", self._broker_id(broker_id), ms)

    def set_coordinator(self, kind, key, broker_id):
        """Make a broker the coordinator of a "group" or of a "transaction", which is what `kind` may be.

        `key` is the group's name or the transactional id.
        """
        settings.one_of("kind", kind, ("group", "transaction"))
        settings.whole("broker_id", broker_id, 1, len(self.brokers))
        self._do("set_coordinator", "coordinator_set", _text("kind", kind), _text("key", key), broker_id)

    # Answers

    def push_errors(self, api, errors, broker_id=None):
        """Answer the next requests of that API, to one broker or to any, with these errors, one each.

        `api` is a request class of kiel's, a name ("produce") or a key. Each error is a code, a name
        ("NOT_LEADER_OR_FOLLOWER"), a row of kiel.protocol.errors, 0 for an answer as usual, or DISCONNECT,
        which closes the connection. What is pushed for one broker comes before what is pushed for all.
        Requests that are answered with an error change nothing. Metadata requests only heed
        DISCONNECT; see ``topic_error``.
        """
        key = names.api_key(api)
        if not isinstance(errors, (list, tuple)):
            raise ConfigurationError("errors has to be a list, not %r" % (errors,))
        codes = [names.error_code(error) for error in errors]
        if broker_id is None:
            self._call("push_request_errors_array", key, len(codes), (ctypes.c_int * len(codes))(*codes))
        else:
            answers = [ctypes.c_int(number) for code in codes for number in (code, 0)]
            broker_id = self._broker_id(broker_id)
            self._do("push_errors", "broker_push_request_error_rtts", broker_id, key, len(codes), *answers)

    def clear_errors(self, api):
        """Forget what ``push_errors`` still holds for every broker; not what it holds for one broker."""
        self._call("clear_request_errors", names.api_key(api))

    def api_versions(self):
        """The versions that the brokers offer: {API key: (lowest, highest)}."""
        self._check_usable()
        return dict(self._limits)

    def set_api_versions(self, api, lowest, highest):
        """Offer only these versions of an API; None and None take it away altogether, as in an older Kafka.

        A request in another version has its connection closed, also where it was agreed on before.
        """
        key = names.api_key(api)
        if lowest is None and highest is None:
            self._limits.pop(key, None)
            lowest = highest = -1
        else:
            if key not in self._spoken:
                raise ConfigurationError("the embedded cluster does not speak %s" % names.api_name(key))
            settings.whole("highest", highest, *self._spoken[key])
            settings.whole("lowest", lowest, self._spoken[key][0], highest)
            self._limits[key] = (lowest, highest)
        self._do("set_api_versions(%r)" % (api,), "set_apiversion", key, lowest, highest)

    # Requests

    def track_requests(self):
        """Keep a list of the requests that come from now on; what was kept before is forgotten."""
        self._call("start_request_tracking")
        self._tracking = True

    def clear_requests(self):
        """Forget the requests that were kept, and go on keeping them."""
        self._call("clear_requests")

    def requests(self, api=None):
        """The requests (of one API) since ``track_requests``, as SeenRequests in the order they came."""
        self._check_usable()
        if not self._tracking:
            raise UsageError("requests are only kept from a call of track_requests() on")
        wanted = None if api is None else names.api_key(api)
        count = ctypes.c_size_t()
        found = self._call("get_requests", ctypes.byref(count))
        try:
            seen = [self._seen(found[i]) for i in range(count.value)]
        finally:
            self._functions.mock_request_destroy_array(found, count)
        return [request for request in seen if wanted is None or request.api_key == wanted]

    def _seen(self, request):
        key = self._functions.mock_request_api_key(request)
        return SeenRequest(
            self._functions.mock_request_id(request),
            key,
            names.api_name(key),
            self._functions.mock_request_timestamp(request) / 1000.0,
        )

    # How all of these reach librdkafka

    def _check_usable(self):
        if not self._cluster:
            raise UsageError("this EmbeddedCluster is closed")
        if self._pid != os.getpid():
            raise UsageError("an EmbeddedCluster serves the process that made it, not one forked from that")

    def _call(self, function, *arguments):
        self._check_usable()
        return getattr(self._functions, "mock_" + function)(self._cluster, *arguments)

    def _do(self, doing, function, *arguments):
        self._functions.check(doing, self._call(function, *arguments))
        # librdkafka's thread empties its wake-up pipe after it has carried out a command: one that comes just
        # then lies there for a second.
        time.sleep(0.001)

    def _broker_id(self, broker_id):
        if broker_id is None:
            return -1
        return settings.whole("broker_id", broker_id, 1, len(self.brokers))


def _text(name, value):
    if not isinstance(value, six.string_types) or not value or "\0" in value:
        raise ConfigurationError("%s has to be a text that isn't empty, not %r" % (name, value))
    return value.encode("utf-8") if isinstance(value, six.text_type) else value


def _api_versions(address):
    """What a broker answers to ApiVersions 0: {API key: (lowest, highest)}."""
    host, port = address.split(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    try:
        connection.sendall(struct.pack(">ihhih", 10, 18, 0, 0, -1))
        stream = connection.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        body = stream.read(size)
        stream.close()
    finally:
        connection.close()
    (count,) = struct.unpack_from(">i", body, 6)
    rows = [struct.unpack_from(">hhh", body, 10 + 6 * i) for i in range(count)]
    return dict((key, (low, high)) for key, low, high in rows)


@atexit.register
def _close_all():
    for cluster in list(_open):
        cluster.close()
