"""Three brokers, one at a time killed with -9 and started again, while records are produced and consumed."""
import collections
import random
import threading
import time

import pytest
from tornado import gen, ioloop
from tornado.concurrent import Future

import kiel
from tests.support import admin
from tests.support.loop import on_loop

SEED = 20161
KILLS = 6
PARTITIONS = 6
TOPIC, YARDSTICK = "trial", "yardstick"

# The longest time without an acknowledgement is the cluster's first of all: the controller waits 9 s before it fences a
# dead broker, and 3 s more if it died itself. So librdkafka's producer runs beside kiel's, whose pause may be longer
# than its by no more than this.
MARGIN_SECONDS = 1

Placed = collections.namedtuple("Placed", ("number", "partition", "offset"))


class Pauses(object):
    """The longest time between two acknowledgements."""

    def __init__(self):
        self.longest = 0
        self._last = None

    def acknowledged(self):
        now = time.time()
        if self._last is not None:
            self.longest = max(self.longest, now - self._last)
        self._last = now


class Yardstick(object):
    """librdkafka's producer, on a thread of its own, with as many records a second into a topic of the same kind."""

    def __init__(self, brokers):
        # Here, since Python 2.7 has no wheel of it, and reads this file without running the trial.
        from confluent_kafka import Producer

        self.pauses = Pauses()
        settings = {"bootstrap.servers": ",".join(brokers), "enable.idempotence": True, "log_level": 0}
        self._producer = Producer(settings)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        number = 0
        while not self._stopping.is_set():
            for _ in range(20):
                key = b"key %d" % (number % 97)
                self._producer.produce(YARDSTICK, b"%d" % number, key=key, on_delivery=self._delivered)
                number += 1
            self._producer.poll(0.02)
        self._producer.flush(60)

    def _delivered(self, error, _):
        if error is None:
            self.pauses.acknowledged()

    def stop(self):
        self._stopping.set()
        self._thread.join()


class Trial(object):
    """Produces numbered records, several calls at a time, and consumes them meanwhile, until it is told to stop."""

    def __init__(self, brokers):
        self.producer = kiel.Producer(brokers, request_timeout_ms=10000)
        self.consumer = kiel.SingleConsumer(brokers, request_timeout_ms=10000)
        self.acknowledged = []
        self.consumed = []
        self.pauses = Pauses()
        self.stopping = False
        self._pending = []

    @gen.coroutine
    def run(self):
        yield [self.producer.connect(), self.consumer.connect()]
        producing, consuming = self._produce(), self._consume()
        while not self.stopping:
            yield gen.sleep(0.05)
        yield producing
        yield self.producer.close()
        while len(self.consumed) < len(self.acknowledged):
            yield gen.sleep(0.05)
        yield self.consumer.close()
        yield consuming

    @gen.coroutine
    def _produce(self):
        number = 0
        while not self.stopping:
            for _ in range(20):
                future = self.producer.produce(TOPIC, number, key="key %d" % (number % 97))
                self._acknowledge(number, future)
                number += 1
            yield gen.sleep(0.02)
            if self.producer.unsent_count > 20000:
                yield self.producer.flush()
        yield self._pending

    def _acknowledge(self, number, future):
        settled = Future()
        self._pending.append(settled)

        def ended(future):
            placed = future.result()
            self.pauses.acknowledged()
            self.acknowledged.append(Placed(number, placed.partition, placed.offset))
            settled.set_result(None)

        future.add_done_callback(ended)

    @gen.coroutine
    def _consume(self):
        while True:
            try:
                records = yield self.consumer.consume_records(TOPIC, start=self.consumer.BEGINNING)
            except kiel.ClosedError:
                return
            self.consumed.extend(Placed(each.value, each.partition, each.offset) for each in records)


@gen.coroutine
def in_sync(servers, count):
    """Wait until every partition has `count` replicas in sync, as a broker of the cluster sees it."""
    while True:
        try:
            found = admin.metadata(servers.port(1), [TOPIC]).topics[0].partitions
        except EnvironmentError:
            found = []
        if found and all(len(each.isr_nodes) == count for each in found):
            return
        yield gen.sleep(0.2)


@gen.coroutine
def everything(brokers):
    """The log, read by a consumer that has seen nothing of the trial."""
    reader = kiel.SingleConsumer(brokers)
    yield reader.connect()
    log = []
    while True:
        records = yield reader.consume_records(TOPIC, start=reader.BEGINNING)
        log.extend(Placed(each.value, each.partition, each.offset) for each in records)
        if not records and not any(reader.lag(TOPIC).values()):
            break
    yield reader.close()
    raise gen.Return(log)


@pytest.mark.slow
@pytest.mark.timeout(600)
@on_loop(timeout=580)
def test_no_acknowledged_record_is_lost_doubled_or_out_of_order(kafka_cluster, logbook):
    for topic in (TOPIC, YARDSTICK):
        kafka_cluster.create_topic(topic, partitions=PARTITIONS, replication=3)
    chance = random.Random(SEED)
    trial, yardstick = Trial(kafka_cluster.bootstrap), Yardstick(kafka_cluster.bootstrap)
    try:
        running = trial.run()
        yield gen.sleep(2)
        for _ in range(KILLS):
            victim = chance.choice([1, 2, 3])
            kafka_cluster.kill(victim)
            yield gen.sleep(chance.uniform(8, 14))
            yield ioloop.IOLoop.current().run_in_executor(None, kafka_cluster.start_broker, victim)
            yield in_sync(kafka_cluster, 3)
        trial.stopping = True
        yield running
        log = yield everything(kafka_cluster.bootstrap)
    finally:
        yardstick.stop()
    pauses = (trial.pauses.longest, yardstick.pauses.longest)
    print("%d records; longest without an acknowledgement: kiel %.1f s, librdkafka %.1f s" % ((len(log),) + pauses))
    logbook.allow("no broker could be reached")

    assert len({placed.number for placed in log}) == len(log), "records are in the log twice"
    assert len(trial.acknowledged) > 1000 * KILLS
    assert sorted(trial.acknowledged) == sorted(log)
    for partition in range(PARTITIONS):
        numbers = [each.number for each in sorted(log, key=lambda each: each.offset) if each.partition == partition]
        assert numbers == sorted(numbers)
    assert sorted(trial.consumed) == sorted(log)
    assert trial.pauses.longest <= yardstick.pauses.longest + MARGIN_SECONDS
