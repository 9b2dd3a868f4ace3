"""What tests of ManagedConsumer need: members that react quickly, and applications that run beside the test."""
import time

from tornado import gen

from kiel import ManagedConsumer
from kiel.exc import KielError
from tests.support.consuming import QUICK

TIMES = dict(QUICK, heartbeat_interval_ms=200, session_timeout_ms=6000, max_wait_time=300, rebalance_backoff_ms=200)


@gen.coroutine
def member_of(cluster, group, topics, **options):
    """A connected ManagedConsumer of an EmbeddedCluster or of KafkaServers."""
    addresses = cluster.brokers if hasattr(cluster, "brokers") else cluster.bootstrap
    options = dict(TIMES, auto_offset_reset="earliest", **options) if "auto_offset_reset" not in options else dict(
        TIMES, **options
    )
    consumer = ManagedConsumer(addresses, group, topics, **options)
    yield consumer.connect()
    raise gen.Return(consumer)


class App(object):
    """An application that consumes a topic until it is stopped; ``handled`` are the records, in order.

    `topic` None stands for any; `pause` is how long (in seconds) it handles each batch.
    """

    def __init__(self, consumer, topic, pause=0, max_records=None):
        self.consumer, self.handled, self.batches = consumer, [], []
        self.pause = pause
        self._running = True
        self.ended = self._run(topic, max_records)

    @gen.coroutine
    def _run(self, topic, max_records):
        while self._running:
            try:
                batch = yield self.consumer.consume_records(topic, max_records=max_records)
            except KielError:
                if self._running:
                    raise
                return
            self.batches.append((time.time(), batch))
            if batch and self.pause:
                yield gen.sleep(self.pause)
            self.handled += batch

    @property
    def values(self):
        return [record.value for record in self.handled]

    @property
    def share(self):
        return {(topic, number) for topic, numbers in self.consumer.allocation.items() for number in numbers}

    @gen.coroutine
    def stop(self, **options):
        """Finish the batch in hand, and close."""
        self._running = False
        yield self.ended
        yield self.consumer.close(**dict({"acknowledge": True}, **options))

    @gen.coroutine
    def die(self):
        """Lose all sockets, and do nothing any more: what is left of it is given back by close(), which can't say
        anything to anybody."""
        self._running = False
        kill(self.consumer)
        yield self.ended
        try:
            yield self.consumer.close(timeout_ms=0)
        except Exception:
            pass


def kill(consumer):
    """As kill -9 would: its sockets close, and it says nothing any more."""
    consumer.cluster.stop()


def places(topic, count):
    return {(topic, partition) for partition in range(count)}
