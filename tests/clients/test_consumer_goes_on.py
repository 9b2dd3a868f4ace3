"""What might leave a consumer stuck, spinning or growing for good: it goes on, or the application hears of it."""
import gc
import time

import pytest
import six
from tornado import gen

from kiel import AuthorizationError, KielError, SingleConsumer, UnknownTopicError, UsageError
from kiel.clients.delivery import Delivery
from kiel.protocol.fetch import FetchResponse
from tests.support.batches import batch
from tests.support.consuming import consumer_of
from tests.support.loop import on_loop
from tests.support.scripted import Error, ScriptedBroker
from tests.support.waiting import failure

BEGINNING = SingleConsumer.BEGINNING
UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED = 3, 29


@on_loop()
def test_a_skipped_record_takes_nothing_off_max_records(logbook):
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.cluster.append("t", 0, batch([b"bad", b"1", b"2"]))
        consumer = yield consumer_of(broker, deserializer=int)
        assert (yield consumer.consume("t", start=BEGINNING, max_records=1)) == [1]
        assert (yield consumer.consume("t", max_records=1)) == [2]
        yield consumer.close()
    logbook.expect("t[0] at offset 0")


@on_loop()
def test_a_call_that_only_skips_ends_at_max_wait_time_and_leaves_the_loop_free(logbook):
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        for _ in range(40):
            broker.cluster.append("t", 0, batch([b"bad" * 100] * 100))
        consumer = yield consumer_of(broker, deserializer=int, max_bytes=100000)
        while consumer.skipped["t"] < 4000:
            assert (yield consumer.consume("t", start=BEGINNING)) == []
        yield consumer.close()
    assert len(logbook.expect("can't be deserialized")) == 4000


@on_loop()
def test_a_topic_whose_authorization_is_withdrawn_is_told_again_and_again(logbook):
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        consumer = yield consumer_of(broker)
        assert (yield consumer.consume("t", start=BEGINNING)) == []
        broker.cluster.topic_errors = {"t": TOPIC_AUTHORIZATION_FAILED}
        broker.on("fetch", Error(TOPIC_AUTHORIZATION_FAILED, about=["t"]))
        yield consumer.cluster.refresh()
        told, deadline = 0, time.time() + 10
        while told < 3 and time.time() < deadline:
            try:
                yield consumer.consume("t")
            except AuthorizationError:
                told += 1
        assert told == 3
        yield consumer.close()


@on_loop()
def test_a_topic_that_was_only_unknown_for_a_while_goes_on_where_it_was():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.cluster.topic_ids = {"t": b"a" * 16}
        broker.cluster.append("t", 0, batch([b"1", b"2"]))
        consumer = yield consumer_of(broker, deserializer=int)
        assert (yield consumer.consume("t", start=BEGINNING)) == [1, 2]
        broker.on("metadata", Error(UNKNOWN_TOPIC_OR_PARTITION, about=["t"]))
        broker.on("fetch", Error(UNKNOWN_TOPIC_OR_PARTITION, about=["t"]))
        told = None
        while told is None:
            try:
                yield consumer.consume("t")
            except UnknownTopicError as error:
                told = error
        broker.on("metadata", None)
        broker.on("fetch", None)
        broker.cluster.append("t", 0, batch([b"3"]))
        found = []
        while not found:
            found = yield consumer.consume("t")
        assert found == [3]
        yield consumer.close()


@pytest.mark.skipif(six.PY2, reason="async iterators came with Python 3")
@on_loop()
def test_waiting_for_a_record_does_not_grow():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        consumer = yield consumer_of(broker, max_wait_time=1)
        asked = consumer.records("t", start=BEGINNING).__anext__()
        yield gen.sleep(0.5)
        before = deliveries()
        yield gen.sleep(1)
        assert deliveries() <= before + 1
        broker.cluster.append("t", 0, batch([b"1"]))
        assert (yield asked).offset == 0
        yield consumer.close()


def deliveries():
    gc.collect()
    return sum(isinstance(each, Delivery) for each in gc.get_objects())


class Faulty(SingleConsumer):
    """Fails in the handling of its first response to a fetch, as a fault in kiel would."""

    faults = 1

    def handle_fetch_response(self, response):
        if self.faults:
            self.faults -= 1
            raise ValueError("a fault")
        super(Faulty, self).handle_fetch_response(response)


@on_loop()
def test_the_application_hears_of_a_fault_and_fetching_goes_on(logbook):
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.cluster.append("t", 0, batch([b"1"]))
        consumer = Faulty(broker.address, deserializer=int, max_wait_time=500)
        yield consumer.connect()
        error = yield failure(consumer.consume("t", start=BEGINNING))
        assert isinstance(error, KielError) and "a fault" in str(error)
        found, deadline = [], time.time() + 10
        while not found and time.time() < deadline:
            found = yield consumer.consume("t")
        assert found == [1]
        yield consumer.close()
    logbook.expect("fetching from broker 1 failed")


@on_loop()
def test_a_broker_that_answers_at_once_with_nothing_is_not_asked_all_the_time():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        consumer = yield consumer_of(broker, max_wait_time=1000)
        broker.on("fetch", FetchResponse(responses=[]))
        assert (yield consumer.consume("t", start=BEGINNING)) == []
        assert len(broker.seen("fetch")) <= 12
        yield consumer.close()


@on_loop()
def test_what_is_not_allocated_can_not_be_paused():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        consumer = yield consumer_of(broker)
        with pytest.raises(UsageError):
            consumer.pause("t")
        yield consumer.determine_offsets("t", BEGINNING)
        consumer.pause("t")
        assert consumer.paused("t") == [0]
        yield consumer.close()


@on_loop()
def test_a_second_close_waits_for_the_first():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        consumer = yield consumer_of(broker)
        yield consumer.consume("t", start=BEGINNING)
        first, second = consumer.close(), consumer.close()
        yield second
        assert first.done()
