"""ManagedConsumer against Apache Kafka: joining, sharing, leaving, dying; what is committed; the callbacks."""
import re
import time

import pytest
from tornado import gen

from kiel import CooperativeStickyProtocol, Producer, RoundRobinProtocol
from kiel.exc import BrokerError, NoOffsetsError, UsageError
from tests.support.loop import on_loop
from tests.support.managing import App, kill, member_of, places
from tests.support.waiting import failure, until


@gen.coroutine
def produce(kafka, topic, values, partitions=None):
    """JSON values, in turn over `partitions` of them (or to partition 0)."""
    producer = Producer(kafka.bootstrap)
    yield producer.connect()
    yield [
        producer.produce(topic, value, partition=number % partitions if partitions else 0)
        for number, value in enumerate(values)
    ]
    yield producer.close()


@gen.coroutine
def next_values(consumer, topic, count, seconds=15):
    found, end = [], time.time() + seconds
    while len(found) < count:
        assert time.time() < end, found
        found += yield consumer.consume(topic)
    raise gen.Return(found)


@on_loop(timeout=60)
def test_one_member_goes_on_where_it_stopped(kafka):
    kafka.create_topic("m-one", partitions=3)
    yield produce(kafka, "m-one", list(range(9)), 3)
    consumer = yield member_of(kafka, "g-one", ["m-one"])
    assert sorted((yield next_values(consumer, "m-one", 9))) == list(range(9))
    assert consumer.allocation == {"m-one": [0, 1, 2]}
    assert (yield consumer.committed("m-one")) == {0: None, 1: None, 2: None}
    assert (yield consumer.consume("m-one")) == []
    yield until(lambda: not consumer._group_offsets.commits.pending)
    assert (yield consumer.committed("m-one")) == {0: 3, 1: 3, 2: 3}
    yield consumer.close()
    yield produce(kafka, "m-one", [9, 10, 11], 3)
    again = yield member_of(kafka, "g-one", ["m-one"])
    assert sorted((yield next_values(again, "m-one", 3))) == [9, 10, 11]
    health = again.health()
    assert (health["state"], health["assigned"]) == ("stable", {"m-one": [0, 1, 2]})
    assert health["generation"] > 0 and health["member_id"] and health["coordinator_id"] == again.coordinator_id == 1
    assert health["partitions"]["m-one"][1]["position"] == 4
    assert health["partitions"]["m-one"][1]["moved_ms"] < 5000
    yield until(lambda: again.health()["heartbeat_age_ms"] is not None)
    yield again.close()


@on_loop(timeout=60)
def test_members_share_and_take_over(kafka):
    kafka.create_topic("m-share", partitions=4)
    first = App((yield member_of(kafka, "g-share", ["m-share"])), "m-share")
    yield until(lambda: first.share == places("m-share", 4), 15)
    began = time.time()
    second = App((yield member_of(kafka, "g-share", ["m-share"])), "m-share")
    yield until(lambda: len(first.share) == len(second.share) == 2, 10)
    assert first.share | second.share == places("m-share", 4)
    assert time.time() - began < 3
    yield produce(kafka, "m-share", list(range(40)), 4)
    yield until(lambda: len(first.handled) + len(second.handled) >= 40, 10)
    assert sorted(first.values + second.values) == list(range(40))
    began = time.time()
    yield first.stop()
    yield until(lambda: second.share == places("m-share", 4), 5)
    assert time.time() - began < 1
    yield produce(kafka, "m-share", list(range(40, 80)), 4)
    yield until(lambda: len(first.handled) + len(second.handled) >= 80, 10)
    assert sorted(first.values + second.values) == list(range(80))
    yield second.stop()


@on_loop(timeout=60)
def test_a_member_that_dies(kafka, logbook):
    kafka.create_topic("m-dies", partitions=2)
    first = App((yield member_of(kafka, "g-dies", ["m-dies"])), "m-dies")
    second = App((yield member_of(kafka, "g-dies", ["m-dies"])), "m-dies")
    yield until(lambda: len(first.share) == len(second.share) == 1, 15)
    began = time.time()
    yield second.die()
    yield until(lambda: first.share == places("m-dies", 2), 15)
    assert time.time() - began < 7
    yield first.stop()
    logbook.allow("")


@on_loop(timeout=60)
def test_what_was_not_acknowledged_comes_again(kafka, logbook):
    kafka.create_topic("m-again")
    yield produce(kafka, "m-again", list(range(10)))
    first = yield member_of(kafka, "g-again", ["m-again"])
    assert (yield first.consume("m-again")) or (yield first.consume("m-again"))
    kill(first)
    yield failure(first.close(timeout_ms=0))
    second = yield member_of(kafka, "g-again", ["m-again"])
    assert (yield next_values(second, "m-again", 10)) == list(range(10))
    yield second.close()
    third = yield member_of(kafka, "g-again", ["m-again"])
    assert (yield next_values(third, "m-again", 10)) == list(range(10))
    yield third.close(acknowledge=True)
    yield produce(kafka, "m-again", [10])
    fourth = yield member_of(kafka, "g-again", ["m-again"])
    assert (yield next_values(fourth, "m-again", 1)) == [10]
    yield fourth.close()
    logbook.allow("")


@on_loop(timeout=60)
def test_commit_offsets(kafka):
    kafka.create_topic("m-commit", partitions=2)
    yield produce(kafka, "m-commit", list(range(10)), 2)
    consumer = yield member_of(kafka, "g-commit", ["m-commit"], autocommit=False)
    yield next_values(consumer, "m-commit", 10)
    yield consumer.commit_offsets()
    consumer.acknowledge()
    assert consumer.acknowledged == {"m-commit": {0: 5, 1: 5}}
    assert (yield consumer.committed("m-commit")) == {0: None, 1: None}
    yield consumer.commit_offsets()
    assert (yield consumer.committed("m-commit")) == {0: 5, 1: 5}
    yield consumer.commit_offsets({"m-commit": {1: 2}}, metadata="x" * 5000)
    assert (yield consumer.committed("m-commit", [1])) == {1: 2}
    error = yield failure(consumer.commit_offsets({"m-commit": {7: 2}}))
    assert isinstance(error, UsageError) and "m-commit[7]" in str(error)
    yield consumer.close()


@on_loop(timeout=60)
def test_callbacks(kafka):
    kafka.create_topic("m-calls", partitions=2)
    yield produce(kafka, "m-calls", list(range(10)), 2)
    calls = []

    def before(consumer, revoked):
        calls.append(("before", revoked))

    @gen.coroutine
    def after(consumer, old, new):
        yield gen.sleep(0.05)
        calls.append(("after", old, new))
        raise gen.Return({("m-calls", 1): 3})

    consumer = yield member_of(
        kafka, "g-calls", ["m-calls"], pre_rebalance_callback=before, post_rebalance_callback=after
    )
    values = yield next_values(consumer, "m-calls", 7)
    assert sorted(values) == [0, 2, 4, 6, 7, 8, 9]
    both = places("m-calls", 2)
    assert calls == [("after", set(), both)]
    other = App((yield member_of(kafka, "g-calls", ["m-calls"])), "m-calls")
    app = App(consumer, "m-calls")
    yield until(lambda: len(app.share) == len(other.share) == 1, 10)
    assert calls[1:] == [("before", both), ("after", both, app.share)]
    yield other.stop()
    yield until(lambda: len(app.share) == 2, 10)
    yield app.stop()
    assert calls[-1] == ("before", both)


@on_loop(timeout=60)
def test_a_callback_that_fails(kafka, logbook):
    kafka.create_topic("m-bad-call")
    yield produce(kafka, "m-bad-call", [1])

    def after(consumer, old, new):
        raise ValueError("no")

    consumer = yield member_of(kafka, "g-bad-call", ["m-bad-call"], post_rebalance_callback=after)
    error = yield failure(next_values(consumer, "m-bad-call", 1))
    assert isinstance(error, ValueError)
    assert (yield next_values(consumer, "m-bad-call", 1)) == [1]
    logbook.expect("failed")
    yield consumer.close()


@on_loop(timeout=60)
def test_cooperative_members_keep_what_does_not_move(kafka):
    kafka.create_topic("m-coop", partitions=4)
    options = dict(membership_protocol=CooperativeStickyProtocol)
    revoked = []
    first = App(
        (yield member_of(
            kafka, "g-coop", ["m-coop"], pre_rebalance_callback=lambda _, gone: revoked.append(gone), **options
        )),
        "m-coop",
    )
    yield until(lambda: len(first.share) == 4, 15)
    readers = dict(first.consumer._fetcher.readers["m-coop"])
    second = App((yield member_of(kafka, "g-coop", ["m-coop"], **options)), "m-coop")
    yield until(lambda: len(first.share) == len(second.share) == 2, 10)
    assert first.share | second.share == places("m-coop", 4)
    assert len(revoked) == 1 and len(revoked[0]) == 2
    # What stays was read on, by the same reader.
    kept = first.consumer._fetcher.readers["m-coop"]
    assert all(readers[number] is kept[number] for number in kept)
    yield second.stop()
    yield until(lambda: len(first.share) == 4, 5)
    yield first.stop()


@on_loop(timeout=60)
def test_a_static_member_keeps_its_share(kafka):
    kafka.create_topic("m-static", partitions=2)
    first = App((yield member_of(kafka, "g-static", ["m-static"], group_instance_id="one")), "m-static")
    second = App((yield member_of(kafka, "g-static", ["m-static"], group_instance_id="two")), "m-static")
    yield until(lambda: len(first.share) == len(second.share) == 1, 15)
    share, generation = second.share, first.consumer.health()["generation"]
    yield second.stop()
    again = App((yield member_of(kafka, "g-static", ["m-static"], group_instance_id="two")), "m-static")
    yield until(lambda: len(again.share) == 1, 10)
    assert again.share == share and len(first.share) == 1
    assert first.consumer.health()["generation"] == generation
    usurper = yield member_of(kafka, "g-static", ["m-static"], group_instance_id="two")
    yield until(lambda: usurper.health()["state"] == "stable", 10)
    error = yield failure(again.ended)
    assert isinstance(error, BrokerError) and error.name == "FENCED_INSTANCE_ID"
    yield again.consumer.close()
    yield usurper.close()
    yield first.stop()


@on_loop(timeout=60)
def test_an_application_that_stays_away(kafka, logbook):
    kafka.create_topic("m-away")
    yield produce(kafka, "m-away", [1, 2])
    consumer = yield member_of(kafka, "g-away", ["m-away"], max_poll_interval_ms=1000)
    assert (yield next_values(consumer, "m-away", 2)) == [1, 2]
    yield until(lambda: consumer.health()["state"] == "away", 5)
    assert "max_poll_interval_ms" in logbook.expect("left")[0]
    assert consumer.allocation == {"m-away": []}
    # The batch that it was away with wasn't acknowledged in time.
    assert (yield next_values(consumer, "m-away", 2)) == [1, 2]
    yield consumer.close()


@on_loop(timeout=60)
def test_two_topics_in_two_coroutines(kafka):
    kafka.create_topic("m-left", partitions=2)
    kafka.create_topic("m-right", partitions=2)
    topics = ["m-left", "m-right"]
    consumer = yield member_of(kafka, "g-two", topics)
    left, right = App(consumer, "m-left", 0.1, 2), App(consumer, "m-right", 0.25, 2)
    yield until(lambda: len(left.share) == 4, 15)
    for topic in topics:
        yield produce(kafka, topic, list(range(60)), 2)
    yield until(lambda: left.handled and right.handled, 10)
    other_consumer = yield member_of(kafka, "g-two", topics)
    other = App(other_consumer, None)
    yield until(lambda: len(left.share) == len(other.share) == 2, 10)
    yield until(lambda: len(left.handled) + len(right.handled) + len(other.handled) >= 120, 20)
    everything = sorted((record.topic, record.value) for record in left.handled + right.handled + other.handled)
    assert everything == sorted((topic, value) for topic in topics for value in range(60))
    left._running = right._running = False
    yield [left.ended, right.ended]
    yield consumer.close(acknowledge=True)
    yield other.stop()


@on_loop(timeout=60)
def test_a_batch_that_takes_too_long_for_a_rebalance(kafka):
    kafka.create_topic("m-slow", partitions=2)
    kafka.create_topic("m-quick", partitions=2)
    yield produce(kafka, "m-slow", [1, 2])
    topics = ["m-slow", "m-quick"]
    consumer = yield member_of(kafka, "g-drain", topics, rebalance_drain_ms=500)
    quick, slow = App(consumer, "m-quick"), App(consumer, "m-slow", 4)
    yield until(lambda: any(batch for _, batch in slow.batches), 15)
    other = App((yield member_of(kafka, "g-drain", topics)), None)
    yield until(lambda: len(quick.share) == len(other.share) == 2, 3)
    assert slow.handled == []
    yield until(lambda: slow.handled, 10)
    quick._running = slow._running = False
    yield [quick.ended, slow.ended]
    yield consumer.close()
    # It wasn't acknowledged in time, so it came again.
    yield until(lambda: other.values == [1, 2], 5)
    yield other.stop()


@on_loop(timeout=60)
def test_topics_by_pattern_and_new_partitions(kafka):
    kafka.create_topic("m-pat-a")
    consumer = yield member_of(
        kafka, "g-pat", re.compile("m-pat-[ab]$"), metadata_max_age_ms=1000, membership_protocol=RoundRobinProtocol
    )
    app = App(consumer, None)
    yield until(lambda: app.share == {("m-pat-a", 0)}, 15)
    kafka.create_topic("m-pat-b")
    kafka.create_topic("m-pat-c")
    yield until(lambda: app.share == {("m-pat-a", 0), ("m-pat-b", 0)}, 10)
    kafka.create_partitions("m-pat-a", 2)
    yield until(lambda: len(app.share) == 3, 10)
    yield produce(kafka, "m-pat-b", [1])
    yield until(lambda: app.values == [1], 5)
    with pytest.raises(UsageError, match="m-pat-c"):
        consumer.consume("m-pat-c")
    yield app.stop()


@on_loop(timeout=60)
def test_a_topic_that_is_made_later(kafka, logbook):
    kafka.create_topic("m-now")
    yield produce(kafka, "m-now", [1])
    consumer = yield member_of(kafka, "g-later", ["m-now", "m-later"])
    assert (yield next_values(consumer, "m-now", 1)) == [1]
    consumer.acknowledge("m-now")
    assert (yield consumer.consume("m-later")) == []
    kafka.create_topic("m-later")
    yield produce(kafka, "m-later", [2])
    assert (yield next_values(consumer, "m-later", 1)) == [2]
    logbook.allow("doesn't exist")
    yield consumer.close()


@on_loop(timeout=60)
def test_auto_offset_reset(kafka):
    kafka.create_topic("m-reset")
    yield produce(kafka, "m-reset", [1, 2])
    consumer = yield member_of(kafka, "g-none", ["m-reset"], auto_offset_reset="none")
    error = yield failure(next_values(consumer, "m-reset", 1))
    assert isinstance(error, NoOffsetsError) and "m-reset[0]" in str(error)
    consumer.seek("m-reset", 0, 1)
    assert (yield next_values(consumer, "m-reset", 1)) == [2]
    yield consumer.close()
    latest = yield member_of(kafka, "g-latest", ["m-reset"], auto_offset_reset="latest")
    yield until(lambda: latest.offsets == {"m-reset": {0: 2}}, 10)
    yield latest.close()
    # "latest" was where the group began, and not each of its members anew.
    yield produce(kafka, "m-reset", [3])
    again = yield member_of(kafka, "g-latest", ["m-reset"], auto_offset_reset="latest")
    assert (yield next_values(again, "m-reset", 1)) == [3]
    yield again.close()


@on_loop(timeout=60)
def test_a_loop_that_is_held(kafka, logbook):
    kafka.create_topic("m-held")
    yield produce(kafka, "m-held", [1])
    consumer = yield member_of(kafka, "g-held", ["m-held"])
    assert (yield next_values(consumer, "m-held", 1)) == [1]
    generation = consumer.health()["generation"]
    time.sleep(2)
    yield gen.sleep(0.5)
    (text,) = logbook.expect("the IOLoop was held")
    assert "heartbeats of group g-held were late" in text
    assert (yield consumer.consume("m-held")) == []
    assert consumer.health()["generation"] == generation
    yield consumer.close()
