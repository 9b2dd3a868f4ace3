"""Connections to a real broker that closes them when they are idle, or stops answering."""
import pytest
from tornado import gen

import kiel
from tests.support import kafka as kafka_servers
from tests.support import needs
from tests.support.loop import on_loop


@pytest.fixture(scope="module")
def impatient():
    """A broker that closes a connection after 3 s without a request."""
    needs.kafka()
    with kafka_servers.KafkaServers(config={"connections.max.idle.ms": 3000}) as servers:
        yield servers


@pytest.mark.slow
@pytest.mark.kafka
@on_loop(timeout=60)
def test_what_was_idle_for_long_just_works(impatient):
    impatient.create_topic("idle")
    producer = kiel.Producer(impatient.bootstrap)
    consumer = kiel.SingleConsumer(impatient.bootstrap)
    yield [producer.connect(), consumer.connect()]
    yield producer.produce("idle", 1)
    assert (yield consumer.consume("idle", start=consumer.BEGINNING)) == [1]
    consumer.pause("idle")
    yield gen.sleep(8)
    consumer.resume("idle")
    sent = yield producer.produce("idle", 2)
    assert sent.offset == 1
    assert (yield consumer.consume("idle")) == [2]
    yield [producer.close(), consumer.close()]


@pytest.mark.slow
@pytest.mark.kafka
@on_loop(timeout=60)
def test_a_broker_that_stops_answering_is_found_by_the_request_time_out(impatient, logbook):
    impatient.create_topic("stopped")
    producer = kiel.Producer(impatient.bootstrap, request_timeout_ms=1000, delivery_timeout_ms=6000)
    yield producer.connect()
    yield producer.produce("stopped", 1)
    impatient.pause(1)
    try:
        with pytest.raises(kiel.ProduceError) as failure:
            yield producer.produce("stopped", 2)
    finally:
        impatient.resume(1)
    assert isinstance(failure.value.cause, kiel.KielError)
    sent = yield producer.produce("stopped", 3)
    assert sent.offset >= 1
    yield producer.close()
    logbook.expect("records for stopped[0]")
    logbook.expect("no broker could be reached")
