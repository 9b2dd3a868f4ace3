"""What tests of consumers need: records that no client of kiel's wrote, and a consumer that reacts quickly."""
import gc
import json
import os
import time

from tornado import gen, ioloop

from kiel import SingleConsumer
from tests.testing.wire import Wire, batch_of

# Small enough for tests, and long enough for a machine that is busy.
QUICK = dict(
    max_wait_time=200,
    request_timeout_ms=5000,
    connect_timeout_ms=2000,
    api_timeout_ms=5000,
    reconnect_backoff_ms=20,
    reconnect_backoff_max_ms=100,
    retry_backoff_ms=20,
    retry_backoff_max_ms=100,
)


@gen.coroutine
def consumer_of(cluster, **options):
    """A connected SingleConsumer of an EmbeddedCluster, of KafkaServers, or of what is scripted."""
    names = ("addresses", "address", "bootstrap")
    addresses = next(getattr(cluster, name) for name in names if hasattr(cluster, name))
    consumer = SingleConsumer(addresses, **dict(QUICK, **options))
    yield consumer.connect()
    raise gen.Return(consumer)


@gen.coroutine
def gathered(consumer, topic, count, start=SingleConsumer.BEGINNING, seconds=10, records=False, **options):
    """The next `count` values (or records) of a topic, or a few more."""
    consume = consumer.consume_records if records else consumer.consume
    found, end = [], time.time() + seconds
    while len(found) < count:
        assert time.time() < end, "of %d records %d came: %.300r" % (count, len(found), found)
        found += yield consume(topic, start=start, **options)
    raise gen.Return(found)


class Writer(object):
    """Appends to the topics of an EmbeddedCluster, over sockets of its own."""

    def __init__(self, cluster):
        self._cluster, self._wires = cluster, {}

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for wire in self._wires.values():
            wire.__exit__()

    def write(self, topic, values, partition=0, codec=0):
        """One batch; values that aren't bytes or None become JSON. Gives its first offset."""
        values = [each if each is None or isinstance(each, bytes) else json.dumps(each).encode() for each in values]
        leader = self._wire(1).metadata(topic).topics[0].partitions[partition].leader_id
        answer = self._wire(leader).produce(topic, batch_of(*values, codec=codec), partition)
        assert answer.error_code == 0
        return answer.base_offset

    def _wire(self, broker_id):
        if broker_id not in self._wires:
            self._wires[broker_id] = Wire(self._cluster.brokers[broker_id - 1])
        return self._wires[broker_id]


# What this process has worked for, in seconds: other than the time of day it isn't made longer by what else
# the machine is busy with.
worked = getattr(time, "process_time", None) or time.clock


class FineTicker(object):
    """Ticks every millisecond until stopped; ``gaps`` are the seconds that were worked between ticks.

    The garbage collector rests meanwhile: with all that a whole suite keeps alive it takes longer than what is
    measured.
    """

    def __init__(self):
        gc.disable()
        self.gaps, self._loop = [], ioloop.IOLoop.current()
        self._last = worked()
        self._timer = self._loop.call_later(0.001, self._tick)

    def _tick(self):
        now = worked()
        self.gaps.append(now - self._last)
        self._last = now
        self._timer = self._loop.call_later(0.001, self._tick)

    def stop(self):
        self._loop.remove_timeout(self._timer)
        gc.enable()


def open_files():
    """How many files and sockets this process has open."""
    return len(os.listdir("/dev/fd"))
