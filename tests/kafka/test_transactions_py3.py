"""SingleConsumer and real transactions, written by confluent-kafka's producer."""
import asyncio

import pytest

from tests.support.consuming import consumer_of, gathered

confluent_kafka = pytest.importorskip("confluent_kafka")
pytestmark = pytest.mark.kafka


def run(main):
    return asyncio.run(asyncio.wait_for(main, 60))


class Transactions(object):
    """A transactional producer of JSON numbers."""

    def __init__(self, servers, name):
        settings = {"bootstrap.servers": ",".join(servers.bootstrap), "transactional.id": name, "linger.ms": 0}
        self._producer = confluent_kafka.Producer(settings)
        self._producer.init_transactions(30)

    def write(self, topic, *values):
        """Write each value as a batch of its own into partition 0, in the transaction that is open, or in a
        new one."""
        for value in values:
            self._producer.produce(topic, b"%d" % value, partition=0)
            assert self._producer.flush(30) == 0

    def begin(self):
        self._producer.begin_transaction()
        return self

    def commit(self):
        self._producer.commit_transaction(30)

    def abort(self):
        self._producer.abort_transaction(30)


@pytest.fixture
def topic(kafka, request):
    name = request.node.name.replace("[", "-").rstrip("]")
    kafka.create_topic(name)
    return name


def test_aborted_and_committed(kafka, topic):
    async def main():
        writer = Transactions(kafka, topic)
        writer.begin().write(topic, 1, 2)
        writer.abort()
        writer.begin().write(topic, 3, 4)
        writer.commit()
        writer.begin().write(topic, 5)
        writer.abort()
        committed = await consumer_of(kafka, isolation_level="read_committed")
        uncommitted = await consumer_of(kafka)
        assert await gathered(committed, topic, 2) == [3, 4]
        assert await gathered(uncommitted, topic, 5) == [1, 2, 3, 4, 5]
        for consumer in (committed, uncommitted):
            # The markers behind the last record are passed, too: 5 records and 3 markers.
            while consumer.position(topic, 0) != 8:
                assert await consumer.consume(topic) == []
            assert consumer.lag(topic) == {0: 0}
            await consumer.close()

    run(main())


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_nothing_but_an_aborted_transaction(kafka, topic, level):
    async def main():
        writer = Transactions(kafka, topic)
        writer.begin().write(topic, 1)
        writer.abort()
        kafka.delete_records(topic, 0, 1)
        consumer = await consumer_of(kafka, isolation_level=level)
        assert await consumer.consume(topic, start=consumer.BEGINNING) == []
        assert consumer.position(topic, 0) == 2
        await consumer.close()

    run(main())


def test_an_open_transaction_holds_up_read_committed_alone(kafka, topic):
    async def main():
        writer, other = Transactions(kafka, topic), Transactions(kafka, topic + "-other")
        writer.begin().write(topic, 1)
        other.begin().write(topic, 2)
        other.commit()
        committed = await consumer_of(kafka, isolation_level="read_committed")
        uncommitted = await consumer_of(kafka)
        assert await gathered(uncommitted, topic, 2) == [1, 2]
        assert await committed.consume(topic, start=committed.BEGINNING) == []
        # The end is the last stable offset, before the first open transaction.
        assert committed.lag(topic) == {0: 0}
        writer.commit()
        assert await gathered(committed, topic, 2) == [1, 2]
        await committed.close()
        await uncommitted.close()

    run(main())


def test_the_end_of_read_committed_is_before_an_open_transaction(kafka, topic):
    async def main():
        writer = Transactions(kafka, topic)
        writer.begin().write(topic, 1)
        writer.commit()
        writer.begin().write(topic, 2)
        consumer = await consumer_of(kafka, isolation_level="read_committed")
        assert await consumer.consume(topic, start=consumer.END) == []
        assert consumer.position(topic, 0) == 2
        writer.commit()
        assert await gathered(consumer, topic, 1) == [2]
        await consumer.close()

    run(main())


def test_many_transactions_side_by_side(kafka, topic):
    async def main():
        writers = [Transactions(kafka, "%s-%d" % (topic, number)) for number in range(3)]
        expected, value = [], 0
        for turn in range(6):
            for number, writer in enumerate(writers):
                writer.begin()
            for number, writer in enumerate(writers):
                writer.write(topic, value, value + 1)
                if (turn + number) % 2:
                    expected += [value, value + 1]
                value += 2
            for number, writer in enumerate(writers):
                writer.commit() if (turn + number) % 2 else writer.abort()
        consumer = await consumer_of(kafka, isolation_level="read_committed")
        records = await gathered(consumer, topic, len(expected), records=True)
        assert [record.value for record in records] == expected
        # From the middle, where some transactions have begun and not ended.
        for offset in range(1, 20):
            consumer.seek(topic, 0, offset)
            assert await gathered(consumer, topic, 1, max_records=1) == [
                next(record.value for record in records if record.offset >= offset)
            ]
        await consumer.close()

    run(main())
