"""Measures how long kiel holds the loop: a ticker runs beside a consumer that reads 336,776 flights at full speed.

    python benchmarks/loop.py                                            on a cluster inside this process
    python benchmarks/loop.py --brokers localhost:9092 --topic flights   on yours, in a topic that is there

The ticker asks to be woken after a millisecond, again and again. The gaps between its ticks are what anything else on
the same loop, a web server for instance, would have waited. For comparison it first runs with nothing beside it.
"""
from __future__ import print_function

import argparse
import json
import os
import platform
import sys
import uuid

import tornado
from tornado import gen, ioloop

import kiel
from kiel.testing import EmbeddedCluster

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "examples"))

import flight_data  # noqa: E402

TICK_SECONDS = 0.001
IDLE_SECONDS = 2

# A cluster inside the process keeps 5 MiB a partition: in so many, all flights have room.
PARTITIONS = 48


class Ticker(object):
    """Ticks on the loop until it is stopped; ``gaps`` are the times between two ticks, in milliseconds."""

    def __init__(self):
        self.gaps = []
        self._loop = ioloop.IOLoop.current()
        self._began = self._last = self._loop.time()
        self._set()

    def _set(self):
        self._next = self._loop.call_later(TICK_SECONDS, self._tick)

    def _tick(self):
        now = self._loop.time()
        self.gaps.append(1000 * (now - self._last))
        self._last = now
        self._set()

    def stop(self):
        """Gives the seconds that it has run."""
        self._loop.remove_timeout(self._next)
        return self._loop.time() - self._began


@gen.coroutine
def produce(brokers, topic, total):
    # Without the linger batches would be of a few records, and the cluster inside the process sends one at a time.
    producer = kiel.Producer(brokers, key_maker=lambda flight: flight["tailnum"], linger_ms=100)
    yield producer.connect()
    yield producer.produce_many(topic, flight_data.flights(total))
    yield producer.close()


@gen.coroutine
def consume(brokers, topic, total):
    consumer = kiel.SingleConsumer(brokers, deserializer=json.loads)
    yield consumer.connect()
    count = 0
    while count < total:
        events = yield consumer.consume(topic, start=consumer.BEGINNING)
        count += len(events)
    yield consumer.close()


@gen.coroutine
def measure(what, work, total=None):
    """Run `work`, which handles `total` records, with a ticker beside it, print the gaps, and give the longest one."""
    ticker = Ticker()
    yield work()
    seconds = ticker.stop()
    gaps = sorted(ticker.gaps)
    p50, p99, p999 = [gaps[int(len(gaps) * share)] for share in (0.5, 0.99, 0.999)]
    row = "{:<10}{:>9.1f}{:>9.1f}{:>9.1f}{:>9.1f}".format(what, p50, p99, p999, gaps[-1])
    print(row + "{:>12,.0f}".format(total / seconds) if total else row)
    sys.stdout.flush()
    raise gen.Return(gaps[-1])


@gen.coroutine
def run(brokers, topic, total):
    """A Future of the longest gap while flights are consumed, in milliseconds."""
    print("kiel %s, Tornado %s, Python %s" % (kiel.__version__, tornado.version, platform.python_version()))
    print("gaps between two ticks, in milliseconds:")
    print("{:<10}{:>9}{:>9}{:>9}{:>9}{:>12}".format("", "p50", "p99", "p99.9", "max", "records/s"))
    yield measure("idle", lambda: gen.sleep(IDLE_SECONDS))
    yield measure("producing", lambda: produce(brokers, topic, total), total)
    gap = yield measure("consuming", lambda: consume(brokers, topic, total), total)
    raise gen.Return(gap)


def main():
    parser = argparse.ArgumentParser(description="Measure how long the loop is held while flights are consumed.")
    parser.add_argument("--brokers", metavar="HOST:PORT,...", help="use this Kafka, not a cluster inside this process")
    parser.add_argument("--topic", default="loop-" + uuid.uuid4().hex[:8], help="an empty one; a new one by default")
    parser.add_argument("--flights", type=int, default=flight_data.TOTAL, metavar="N", help="only the first N flights")
    parser.add_argument("--limit-ms", type=float, metavar="MS", help="exit 1 if a gap while consuming is longer")
    options = parser.parse_args()
    loop = ioloop.IOLoop(make_current=False)
    if options.brokers:
        gap = loop.run_sync(lambda: run(options.brokers, options.topic, options.flights))
    else:
        with EmbeddedCluster() as cluster:
            cluster.create_topic(options.topic, PARTITIONS)
            gap = loop.run_sync(lambda: run(cluster.brokers, options.topic, options.flights))
    loop.close()
    if options.limit_ms is not None and gap > options.limit_ms:
        print("a gap is longer than %g ms" % options.limit_ms)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
