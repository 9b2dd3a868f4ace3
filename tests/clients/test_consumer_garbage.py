"""What was handed out goes when the application lets go of it, and not when the garbage collector comes."""
import gc
import weakref

import pytest
from tornado import gen

from kiel import Producer, SingleConsumer
from tests.support.embedded import embedded_cluster
from tests.support.loop import on_loop

pytestmark = pytest.mark.embedded


class Value(object):
    def __init__(self, data):
        self.data = data


@pytest.fixture
def no_collector():
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("method", ["consume", "consume_records"])
@on_loop()
def test_a_batch_is_no_garbage(no_collector, method):
    with embedded_cluster() as cluster:
        cluster.create_topic("events", partitions=2)
        producer = Producer(cluster.brokers)
        yield producer.connect()
        yield producer.produce_many("events", range(100))
        yield producer.close()
        consumer = SingleConsumer(cluster.brokers, deserializer=Value)
        yield consumer.connect()
        batch = yield getattr(consumer, method)("events", start=consumer.BEGINNING, max_records=10)
        value = weakref.ref(batch[0] if method == "consume" else batch[0].value)
        assert value() is not None
        del batch
        yield gen.moment
        assert value() is None
        yield consumer.close()
