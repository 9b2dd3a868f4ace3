"""Sends 336,776 flights through Kafka and back on one IOLoop, and checks that every one of them came once.

    python examples/flights.py                              on a cluster inside this process
    python examples/flights.py --brokers localhost:9092     on yours

Two coroutines are at work at the same time: produce() sends the flights as JSON, keyed by the aircraft's tail number,
and consume() reads them and adds them up. Ctrl-C closes the clients, which ends both.
"""
from __future__ import print_function

import argparse
import itertools
import logging
import signal
import sys
import uuid

import flight_data
from progress import Progress
from tornado import gen, ioloop

import kiel
from kiel.testing import EmbeddedCluster

# So many flights are produced in one go.
CHUNK = 2000

# The producer gets no further ahead than this. A real Kafka keeps for days what isn't read yet, the embedded cluster
# only 5 MiB a partition: that is more than 10,000 flights, even if all of them are in one.
LEAD = 10000

# Where a real Kafka answers as soon as there is something to read, the embedded cluster looks again only after half of
# this (in milliseconds).
MAX_WAIT = 100

# How long (in seconds) missing flights are waited for, after the last that came.
PATIENCE = 10


@gen.coroutine
def produce(producer, topic, flights, progress):
    """Send all flights, a chunk at a time; each is acknowledged before the next one goes."""
    for chunk in iter(lambda: list(itertools.islice(flights, CHUNK)), []):
        while progress.lead > LEAD:
            producer.check_usable()
            yield gen.sleep(0.001)
        yield producer.produce_many(topic, chunk)
        progress.add_produced(len(chunk))


@gen.coroutine
def consume(consumer, topic, summary, progress):
    """Add flights up until all have come, and then look once more, lest one comes twice."""
    while True:
        flights = yield consumer.consume(topic)
        for flight in flights:
            summary.add(flight)
        if flights:
            progress.add_consumed(len(flights))
        elif progress.all_are_consumed or (progress.all_are_produced and progress.idle_seconds > PATIENCE):
            return


class Flights(object):
    """Sends `total` flights to a topic and reads them back into `summary`."""

    def __init__(self, brokers, topic, total):
        self.topic, self.total = topic, total
        self.summary = flight_data.Summary(total)
        self.progress = Progress(total)
        self.producer = kiel.Producer(brokers, key_maker=lambda flight: flight["tailnum"])
        self.consumer = kiel.SingleConsumer(brokers, max_wait_time=MAX_WAIT)
        self._closing = None

    @gen.coroutine
    def run(self):
        """Produce and consume, until both have ended or one has failed."""
        flights = flight_data.flights(self.total)
        try:
            for client in (self.producer, self.consumer):
                yield client.connect()
                # A producer that asks for a topic creates it, if the brokers are set to do that.
                yield client.cluster.topic(self.topic, timeout_ms=10000)
            # Reading begins at the end: what is in the topic already is none of our flights.
            yield self.consumer.determine_offsets(self.topic, self.consumer.END)
            self.progress.start()
            both = [
                produce(self.producer, self.topic, flights, self.progress),
                consume(self.consumer, self.topic, self.summary, self.progress),
            ]
            for each in both:
                # If one fails, the clients are closed; what becomes of the other then is no news.
                each.add_done_callback(lambda ended: ended.exception())
            waiting = gen.WaitIterator(*both)
            while not waiting.done():
                yield waiting.next()
        finally:
            self.progress.stop()
            yield self.close()
            flights.close()

    def close(self):
        """Close both clients, however often this is called; whoever waits for one gets an error."""
        if self._closing is None:
            self._closing = gen.multi([self.producer.close(timeout_ms=5000), self.consumer.close()])
        return self._closing


def report(flights):
    """Print what came of it; gives the exit code."""
    names, line = flight_data.airlines(), "{:<8}  {:<28}  {:>8}  {:>12}"
    print()
    print(line.format("carrier", "airline", "flights", "minutes late"))
    for carrier, count, late in flights.summary.busiest():
        print(line.format(carrier, names[carrier], "{:,}".format(count), "-" if late is None else "%.1f" % late))
    print()
    for rate in flights.progress.rates():
        print("{} {:,} records in {:.1f} s: {:,.0f} a second".format(*rate))
    wrong = [("never came", flights.summary.missing()), ("came more than once", flights.summary.doubled())]
    for what, ids in wrong:
        if ids:
            shown = ", ".join(str(number) for number in ids[:10]) + (", ..." if len(ids) > 10 else "")
            print("{:,} flights {}: {}".format(len(ids), what, shown))
    if any(ids for _, ids in wrong):
        return 1
    print("All {:,} flights came, and every one of them once.".format(flights.total))
    return 0


def run(brokers, topic, total):
    """Give the exit code: 0 if every flight came once, 1 if not or if something failed, 130 after Ctrl-C."""
    loop = ioloop.IOLoop(make_current=False)
    flights = Flights(brokers, topic, total)
    interrupted = []

    def interrupt():
        # Whoever presses Ctrl-C twice has no patience left.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        interrupted.append(True)
        flights.close()

    on_ctrl_c(loop, interrupt)
    try:
        loop.run_sync(flights.run)
    except kiel.KielError as error:
        if interrupted:
            print("interrupted", file=sys.stderr)
            return 130
        print(error, file=sys.stderr)
        if isinstance(error, kiel.UnknownTopicError):
            print("These brokers create no topics by themselves: make one, and name it with --topic.", file=sys.stderr)
        return 1
    finally:
        loop.close()
    return report(flights)


def on_ctrl_c(loop, callback):
    """Have the loop call `callback`, instead of a KeyboardInterrupt wherever it is at work."""
    if hasattr(loop, "asyncio_loop"):
        loop.asyncio_loop.add_signal_handler(signal.SIGINT, callback)
    else:
        # Python 2.7
        signal.signal(signal.SIGINT, lambda *_: loop.add_callback_from_signal(callback))


def main():
    parser = argparse.ArgumentParser(description="Send flights through Kafka and back, and check that each came once.")
    parser.add_argument("--brokers", metavar="HOST:PORT,...", help="use this Kafka, not a cluster inside this process")
    parser.add_argument("--topic", default="flights-" + uuid.uuid4().hex[:8], help="a new one by default")
    parser.add_argument("--partitions", type=int, default=8, help="of a topic inside this process (default: 8)")
    parser.add_argument("--flights", type=int, default=flight_data.TOTAL, metavar="N", help="only the first N flights")
    options = parser.parse_args()
    if not 1 <= options.flights <= flight_data.TOTAL:
        parser.error("there are 1 to %d flights" % flight_data.TOTAL)
    logging.basicConfig(format="%(levelname)s: %(message)s")
    try:
        flight_data.folder()
        if options.brokers:
            return run(options.brokers, options.topic, options.flights)
        with EmbeddedCluster(brokers=3) as cluster:
            cluster.create_topic(options.topic, options.partitions)
            return run(cluster.brokers, options.topic, options.flights)
    except (flight_data.NoData, kiel.KielError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
