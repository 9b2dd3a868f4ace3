"""SingleConsumer under asyncio.run: native coroutines, `async for`, and tasks that are cancelled."""
import asyncio
import random
import time

import pytest

from kiel import SingleConsumer
from kiel.exc import ClosedError, DeserializationError, UsageError
from tests.support.consuming import FineTicker, consumer_of, gathered

pytestmark = pytest.mark.embedded

BEGINNING = SingleConsumer.BEGINNING


def run(main, timeout=20):
    return asyncio.run(asyncio.wait_for(main, timeout))


async def values_of(consumer, topic, count):
    """What `gathered` gives, but as a native coroutine: cancelling that reaches the consume() at work."""
    found = []
    while len(found) < count:
        found += await consumer.consume(topic, start=BEGINNING)
    return found


async def first(iterator, count):
    """The offsets of the next `count` records."""
    found = []
    async for record in iterator:
        found.append(record.offset)
        if len(found) == count:
            break
    return found


# async for


def test_records_one_by_one(cluster, writer):
    async def main():
        consumer = await consumer_of(cluster)
        writer.write("events", ["a", "b", None])
        records = []
        async for record in consumer.records("events", start=BEGINNING):
            records.append((record.offset, record.value))
            # A record is acknowledged when the next one is asked for.
            assert consumer.acknowledged.get("events", {}).get(0, 0) == record.offset
            assert consumer.position("events", 0) == record.offset + 1
            if len(records) == 3:
                writer.write("events", ["d"])
            if len(records) == 4:
                break
        assert records == [(0, "a"), (1, "b"), (2, None), (3, "d")]
        await consumer.close()

    run(main())


def test_records_ends_when_the_consumer_closes(cluster, writer):
    async def main():
        consumer = await consumer_of(cluster)
        writer.write("events", [1, 2])
        offsets = []

        async def read():
            async for record in consumer.records("events", start=BEGINNING):
                offsets.append(record.offset)

        reading = asyncio.ensure_future(read())
        while len(offsets) < 2:
            await asyncio.sleep(0.01)
        await consumer.close()
        await reading
        async for record in consumer.records("events"):
            offsets.append(record)
        assert offsets == [0, 1]

    run(main())


def test_records_waits_longer_than_max_wait_time(cluster, writer):
    async def main():
        consumer = await consumer_of(cluster, max_wait_time=50)
        asking = asyncio.ensure_future(first(consumer.records("events", start=BEGINNING), 1))
        await asyncio.sleep(0.3)
        assert not asking.done()
        writer.write("events", [1])
        assert await asking == [0]
        await consumer.close()

    run(main())


def test_break_leaves_the_rest_where_it_is(cluster, writer):
    async def main():
        writer.write("events", list(range(100)))
        consumer = await consumer_of(cluster)
        assert await first(consumer.records("events", start=BEGINNING), 10) == list(range(10))
        assert await first(consumer.records("events"), 10) == list(range(10, 20))
        assert await gathered(consumer, "events", 80) == list(range(20, 100))
        await consumer.close()

    run(main())


def test_pause_and_seek_hold_from_the_next_record_on(cluster, writer):
    async def main():
        for partition in (0, 1):
            writer.write("parts", [partition] * 50, partition=partition)
        consumer = await consumer_of(cluster)
        iterator = consumer.records("parts", start=BEGINNING)
        await first(iterator, 60)
        consumer.pause("parts", [0])
        consumer.seek("parts", 1, 45)
        assert await first(iterator, 5) == [45, 46, 47, 48, 49]
        await consumer.close()

    run(main())


def test_records_of_all_partitions_come_in_turn(cluster, writer):
    async def main():
        for partition in (0, 1):
            writer.write("parts", [partition] * 2000, partition=partition)
        consumer = await consumer_of(cluster)
        seen = [0, 0]
        async for record in consumer.records("parts", start=BEGINNING):
            seen[record.partition] += 1
            if sum(seen) == 1:
                while not all(consumer.lag("parts").values()):
                    await asyncio.sleep(0.01)
            if sum(seen) == 1000:
                break
        assert min(seen) > 300
        await consumer.close()

    run(main())


def test_an_error_in_records(cluster, writer):
    async def main():
        writer.write("events", [1, b"{", 3])
        consumer = await consumer_of(cluster, on_error="raise")
        iterator = consumer.records("events", start=BEGINNING)
        assert await first(iterator, 1) == [0]
        with pytest.raises(DeserializationError):
            await first(iterator, 1)
        assert await first(iterator, 1) == [2]
        await consumer.close()

    run(main())


def test_records_and_consume_of_one_topic_at_once(cluster):
    async def main():
        consumer = await consumer_of(cluster)
        waiting = asyncio.ensure_future(first(consumer.records("events"), 1))
        await asyncio.sleep(0.05)
        with pytest.raises(UsageError):
            consumer.consume("events")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert await consumer.consume("events") == []
        await consumer.close()

    run(main())


def test_the_loop_is_free_while_records_come(cluster, writer):
    """Even if the application never waits for anything else."""

    async def main():
        for _ in range(20):
            writer.write("events", [b"1" * 10] * 500)
        cluster.track_requests()
        consumer = await consumer_of(cluster)
        iterator = consumer.records("events", start=BEGINNING)
        await first(iterator, 1)
        # A batch is fetched at a time; then all of them are there, and no await has to wait.
        while len(cluster.requests("fetch")) <= 20:
            await asyncio.sleep(0.01)
        ticker = FineTicker()
        await first(iterator, 9999)
        ticker.stop()
        assert len(ticker.gaps) > 10
        assert sorted(ticker.gaps)[int(len(ticker.gaps) * 0.9)] < 0.012
        await consumer.close()

    run(main())


# Cancelling


def test_wait_for_leaves_the_topic_free(cluster, writer):
    async def main():
        consumer = await consumer_of(cluster, max_wait_time=5000)
        for _ in range(3):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(consumer.consume("events", start=BEGINNING), 0.05)
        writer.write("events", [1])
        began = time.time()
        assert await consumer.consume("events", start=BEGINNING) == [1]
        # A fetch that was under way is of half of max_wait_time; the embedded cluster waits it out.
        assert time.time() - began < 3.5
        await consumer.close()

    run(main())


def test_a_call_after_one_that_was_cancelled_does_not_wait_for_its_end(cluster):
    async def main():
        consumer = await consumer_of(cluster, max_wait_time=1000)
        await consumer.consume("events")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(consumer.consume("events"), 0.05)
        began = time.time()
        assert await consumer.consume("events") == []
        assert 0.99 <= time.time() - began < 1.5
        await consumer.close()

    run(main())


def test_what_is_cancelled_takes_nothing(cluster, writer):
    async def main():
        writer.write("events", list(range(300)))

        def slowly(value):
            end = time.time() + 0.0005
            while time.time() < end:
                pass
            return int(value)

        consumer = await consumer_of(cluster, deserializer=slowly)
        task = asyncio.ensure_future(values_of(consumer, "events", 300))
        while not consumer.offsets.get("events", {}).get(0):
            await asyncio.sleep(0)
        assert 0 < consumer.position("events", 0) < 300
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await gathered(consumer, "events", 300) == list(range(300))
        await consumer.close()

    run(main())


def test_a_seek_after_cancelling_holds(cluster, writer):
    async def main():
        writer.write("events", list(range(300)))
        consumer = await consumer_of(cluster, deserializer=lambda value: time.sleep(0.0005) or int(value))
        task = asyncio.ensure_future(values_of(consumer, "events", 300))
        while not consumer.offsets.get("events", {}).get(0):
            await asyncio.sleep(0)
        task.cancel()
        consumer.seek("events", 0, 290)
        assert await gathered(consumer, "events", 10) == list(range(290, 300))
        await consumer.close()

    run(main())


@pytest.mark.parametrize("how", ["cancel", "wait_for", "records"])
def test_nothing_is_lost_however_often_calls_are_cancelled(cluster, writer, how):
    async def main():
        chance, values, count = random.Random(7), [], 400
        consumer = await consumer_of(cluster, max_wait_time=100)

        async def consume():
            if how == "records":
                async for record in consumer.records("events", start=BEGINNING):
                    values.append(record.value)
            else:
                batch = await consumer.consume("events", start=BEGINNING, max_records=7)
                values.extend(batch)

        written, end = 0, time.time() + 15
        while len(values) < count:
            assert time.time() < end
            if written < count and written - len(values) < 50:
                writer.write("events", list(range(written, written + 20)))
                written += 20
            seconds = chance.choice([0, 0.0002, 0.001, 0.003, 0.01])
            if how == "wait_for":
                try:
                    await asyncio.wait_for(consume(), seconds or 0.0001)
                except asyncio.TimeoutError:
                    pass
            else:
                task = asyncio.ensure_future(consume())
                await asyncio.sleep(seconds)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        assert values == list(range(count))
        await consumer.close()

    run(main())


def test_a_task_that_is_cancelled_as_its_batch_arrives(cluster, writer):
    """The Future has its result, the task hasn't gone on yet: the records come again."""

    async def main():
        writer.write("events", [1, 2, 3])
        consumer = await consumer_of(cluster)
        asked = consumer.consume("events", start=BEGINNING)
        task = asyncio.ensure_future(wait(asked))
        asked.add_done_callback(lambda _: task.cancel())
        got = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(got[0], asyncio.CancelledError)
        assert consumer.position("events", 0) == 0
        assert await gathered(consumer, "events", 3) == [1, 2, 3]
        assert consumer.acknowledged == {}
        await consumer.close()

    async def wait(asked):
        return await asked

    run(main())


def test_a_batch_that_another_task_acknowledged_does_not_come_again(cluster, writer):
    """It has asked for more before the first task could hear that it is cancelled."""

    async def main():
        writer.write("events", [1, 2, 3])
        consumer = await consumer_of(cluster)
        asked, following = consumer.consume("events", start=BEGINNING, max_records=1), []
        task = asyncio.ensure_future(wait(asked))

        def arrived(_):
            following.append(consumer.consume("events"))
            task.cancel()

        asked.add_done_callback(arrived)
        got = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(got[0], asyncio.CancelledError)
        assert await following[0] == [2, 3]
        assert consumer.acknowledged == {"events": {0: 1}}
        await consumer.close()

    async def wait(asked):
        return await asked

    run(main())


def test_cancelled_while_a_topic_is_looked_up(cluster, writer):
    async def main():
        writer.write("events", [1])
        consumer = await consumer_of(cluster)
        cluster.set_rtt(1, 60)
        for seconds in (0.01, 0.05, 0.1):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(consumer.consume("events", start=BEGINNING), seconds)
        cluster.set_rtt(1, 0)
        assert await gathered(consumer, "events", 1) == [1]
        await consumer.close()

    run(main())


def test_closing_leaves_no_task(cluster, writer):
    async def main():
        before = asyncio.all_tasks()
        writer.write("events", [1])
        consumer = await consumer_of(cluster, max_wait_time=5000)
        waiting = [asyncio.ensure_future(first(consumer.records("events", start=BEGINNING), 5))]
        while consumer.offsets.get("events") != {0: 1}:
            await asyncio.sleep(0.01)
        waiting.append(asyncio.ensure_future(wait(consumer.consume("parts"))))
        await asyncio.sleep(0.01)
        await consumer.close()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert results[0] == [0]
        assert isinstance(results[1], ClosedError)
        assert asyncio.all_tasks() == before

    async def wait(asked):
        return await asked

    run(main())
