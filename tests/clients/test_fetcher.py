"""What a Fetcher and its loops make of answers that come late, twice or odd: whole consumers, scripted brokers."""
import struct
import time
import uuid

import pytest
from tornado import gen

from kiel import SingleConsumer
from kiel.clients import broker_loop
from kiel.exc import RecordTooLargeError, UnknownTopicError
from kiel.protocol.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from tests.support.batches import batch
from tests.support.consuming import consumer_of, gathered
from tests.support.loop import on_loop
from tests.support.scripted import Error, Late, ScriptedBroker, ScriptedCluster
from tests.support.waiting import failure, until

BEGINNING = SingleConsumer.BEGINNING
NO_ID = b"\0" * 16
OFFSET_OUT_OF_RANGE, NOT_LEADER, TOPIC_AUTHORIZATION_FAILED, OFFSET_NOT_AVAILABLE = 1, 6, 29, 78
FETCH_SESSION_TOPIC_ID_ERROR, UNKNOWN_SERVER_ERROR = 106, -1


@gen.coroutine
def connected(kafka, **options):
    """A consumer that hands out bytes as numbers."""
    consumer = yield consumer_of(kafka, deserializer=int, **options)
    raise gen.Return(consumer)


def numbers(*values):
    return batch([b"%d" % value for value in values])


def answered(*parts):
    """A FetchResponse for topic "t" of (partition, records)."""
    data = [
        PartitionData(partition_index=partition, error_code=0, high_watermark=9, last_stable_offset=9, records=records)
        for partition, records in parts
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=data)])


# Leaders that move


@gen.coroutine
def waiting_for(cluster, api, late, written=(1,)):
    """A consumer of topic "t" that has read what is `written`, and to which broker 1 is yet to answer `late`.

    Metadata comes from broker 2, which has nothing else to do: what broker 1 answers comes in its order.
    """
    cluster.topics = {"t": {0: 1}, "other": {0: 2}}
    if written:
        cluster.append("t", 0, numbers(*written))
    consumer = yield connected(cluster)
    if api == "fetch":
        found = yield consumer.consume("t", start=BEGINNING)
        assert found == list(written)
    yield consumer.consume("other")
    consumer.pause("other")
    yield consumer.consume("other")
    first = cluster.brokers[0]
    first.on(api, [Late(0.3, late)])
    asked = len(first.seen(api))
    if api == "offset":
        consumer.under_way = consumer.consume("t", start=BEGINNING)
    yield until(lambda: len(first.seen(api)) > asked)
    raise gen.Return(consumer)


@pytest.mark.parametrize("code", [OFFSET_OUT_OF_RANGE, TOPIC_AUTHORIZATION_FAILED])
@on_loop()
def test_an_error_of_a_former_leader_counts_no_more(code):
    with ScriptedCluster(brokers=2) as cluster:
        consumer = yield waiting_for(cluster, "fetch", Error(code))
        cluster.move("t", 0, 2)
        yield consumer.cluster.refresh()
        # Nothing is reset (that would be logged, too), and there is nothing to tell.
        end = time.time() + 0.4
        while time.time() < end:
            assert (yield consumer.consume("t")) == []
        cluster.append("t", 0, numbers(2))
        assert (yield gathered(consumer, "t", 1)) == [2]
        yield consumer.close()


@pytest.mark.parametrize("new_one_is_first", [True, False])
@on_loop()
def test_records_that_two_leaders_send_are_handed_out_once(new_one_is_first):
    with ScriptedCluster(brokers=2) as cluster:
        # Both are asked for offset 1, and both answer with it.
        consumer = yield waiting_for(cluster, "fetch", lambda call: answered((0, _at(1, numbers(2, 3)))))
        cluster.move("t", 0, 2)
        yield consumer.cluster.refresh()
        if not new_one_is_first:
            cluster.brokers[1].on("fetch", [Late(0.5)])
        yield gen.sleep(0.02)
        cluster.append("t", 0, numbers(2, 3))
        assert (yield gathered(consumer, "t", 2)) == [2, 3]
        yield gen.sleep(0.6)
        cluster.append("t", 0, numbers(4))
        assert (yield gathered(consumer, "t", 1)) == [4]
        yield consumer.close()


def _at(base, data):
    return struct.pack(">q", base) + data[8:]


@on_loop()
def test_what_comes_with_an_error_is_not_held_up_by_the_look_for_a_leader():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1, 1: 1}}
        broker.cluster.append("t", 0, numbers(1))
        consumer = yield connected(broker)
        assert (yield gathered(consumer, "t", 1)) == [1]
        broker.on("metadata", Late(3))
        broker.cluster.append("t", 0, numbers(2))
        broker.on("fetch", [Error(NOT_LEADER, {("t", 1)})] * 2)
        began = time.time()
        assert (yield gathered(consumer, "t", 1)) == [2]
        assert time.time() - began < 1
        yield consumer.close()


# Topics that are made again


@on_loop()
def test_a_topic_is_the_same_where_some_brokers_know_no_ids():
    """In the middle of an upgrade metadata comes with ids and without."""
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        ids, known = broker.cluster.topic_ids, uuid.uuid4().bytes
        broker.cluster.append("t", 0, numbers(1, 2))
        ids["t"] = NO_ID
        consumer = yield connected(broker)
        assert (yield gathered(consumer, "t", 2)) == [1, 2]
        for topic_id in (known, NO_ID, known):
            ids["t"] = topic_id
            yield consumer.cluster.refresh()
            assert consumer.position("t", 0) == 2
        broker.cluster.append("t", 0, numbers(3))
        assert (yield gathered(consumer, "t", 1)) == [3]
        yield consumer.close()


@on_loop()
def test_a_topic_that_is_made_again_with_fewer_partitions():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1, 1: 1}}
        broker.cluster.append("t", 0, numbers(1))
        broker.cluster.append("t", 1, numbers(2))
        consumer = yield connected(broker)
        assert sorted((yield gathered(consumer, "t", 2))) == [1, 2]
        consumer.acknowledge()
        broker.cluster.delete("t")
        broker.topics = {"t": {0: 1}}
        broker.cluster.append("t", 0, numbers(3))
        yield consumer.cluster.refresh()
        assert consumer.allocation == {"t": [0]}
        assert consumer.acknowledged == {}
        assert (yield gathered(consumer, "t", 1)) == [3]
        yield consumer.close()


@on_loop()
def test_what_the_topic_of_before_sends_late_is_dropped():
    """Its offset is what the new one is asked for, too."""
    with ScriptedCluster(brokers=2) as cluster:
        late = lambda call: answered((0, numbers(7, 8)))  # noqa: E731
        consumer = yield waiting_for(cluster, "fetch", late, written=())
        cluster.topic_ids["t"] = uuid.uuid4().bytes
        cluster.topics["t"] = {0: 2}
        yield consumer.cluster.refresh()
        yield until(lambda: consumer.position("t", 0) == 0)
        yield gen.sleep(0.4)
        cluster.append("t", 0, numbers(1, 2))
        assert (yield gathered(consumer, "t", 2)) == [1, 2]
        yield consumer.close()


@on_loop()
def test_a_topic_that_was_told_to_be_gone_is_a_new_one_once():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.cluster.append("t", 0, numbers(1, 2))
        consumer = yield connected(broker)
        yield gathered(consumer, "t", 2)
        broker.cluster.delete("t")
        assert isinstance((yield failure(gathered(consumer, "t", 1))), UnknownTopicError)
        broker.topics = {"t": {0: 1}}
        broker.cluster.append("t", 0, numbers(3, 4))
        assert (yield gathered(consumer, "t", 2)) == [3, 4]
        yield consumer.cluster.refresh()
        assert (yield consumer.consume("t")) == []
        assert consumer.position("t", 0) == 2
        yield consumer.close()


# Positions that are being looked up


@on_loop()
def test_a_seek_while_the_position_is_looked_up(logbook):
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        broker.cluster.append("t", 0, numbers(1, 2, 3))
        consumer = yield connected(broker)
        yield gathered(consumer, "t", 3)
        asked = len(broker.seen("offset"))
        broker.on("offset", [Late(0.2)])
        broker.on("fetch", [Error(OFFSET_OUT_OF_RANGE)])
        yield until(lambda: len(broker.seen("offset")) > asked)
        logbook.expect("out of range")
        assert consumer.position("t", 0) is None
        consumer.seek("t", 0, 2)
        assert (yield gathered(consumer, "t", 1)) == [3]
        assert consumer.position("t", 0) == 3
        yield consumer.close()


@on_loop()
def test_a_partition_that_is_added_while_the_others_positions_are_looked_up():
    with ScriptedCluster(brokers=2) as cluster:
        consumer = yield waiting_for(cluster, "offset", None)
        cluster.topics["t"][1] = 1
        cluster.append("t", 1, numbers(2))
        yield consumer.cluster.refresh()
        values = yield consumer.under_way
        assert consumer.allocation["t"] == [0, 1]
        values += yield gathered(consumer, "t", 2 - len(values))
        assert sorted(values) == [1, 2]
        yield consumer.close()


# Answers


@on_loop()
def test_a_part_of_a_batch_counts_for_the_first_partition_alone():
    whole = numbers(1, 2)
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1, 1: 1}}
        for partition in (0, 1):
            broker.cluster.append("t", partition, whole)
        cut = [answered((first, whole), (second, whole[:40])) for first, second in ((0, 1), (1, 0))]
        broker.on("fetch", [cut[0], cut[1], answered((0, whole[:40]))])
        consumer = yield connected(broker)
        assert (yield gathered(consumer, "t", 4)) == [1, 2, 1, 2]
        error = yield failure(gathered(consumer, "t", 1))
        assert isinstance(error, RecordTooLargeError)
        for part in ("t[0] at offset 2", "%d bytes" % len(whole), "max_bytes"):
            assert part in str(error)
        yield consumer.close()


@pytest.mark.parametrize("code, told", [(FETCH_SESSION_TOPIC_ID_ERROR, False), (UNKNOWN_SERVER_ERROR, True)])
@on_loop()
def test_an_error_of_the_whole_fetch(code, told):
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1, 1: 1}}
        for partition in (0, 1):
            broker.cluster.append("t", partition, numbers(partition))
        broker.on("fetch", [FetchResponse(error_code=code, responses=[])] * 2)
        consumer = yield connected(broker)
        for _ in range(2 if told else 0):
            error = yield failure(gathered(consumer, "t", 1))
            assert error.code == code
        assert sorted((yield gathered(consumer, "t", 2))) == [0, 1]
        yield consumer.close()


@on_loop()
def test_a_partition_that_the_answer_leaves_out_or_puts_in():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1, 1: 1}}
        broker.cluster.append("t", 0, numbers(1))
        broker.on("fetch", [answered((7, numbers(9))), answered(), FetchResponse(responses=[])])
        consumer = yield connected(broker)
        assert (yield gathered(consumer, "t", 1)) == [1]
        assert consumer.allocation == {"t": [0, 1]}
        yield consumer.close()


@on_loop()
def test_what_an_idle_broker_may_send_leaves_room_for_others():
    with ScriptedCluster(brokers=2) as cluster:
        cluster.topics = {"t": {0: 1, 1: 2}}
        for number in range(10):
            cluster.append("t", 1, batch([b"%d" % number + b" " * 30000]))
        consumer = yield connected(cluster, max_bytes=100000, prefetch_bytes=100000, max_wait_time=4000)
        assert (yield consumer.consume("t", start=BEGINNING, max_records=1)) == [0]
        # Broker 1 waits for two seconds with what it may send; now nobody waits for more of broker 2's.
        yield until(lambda: len(cluster.brokers[1].seen("fetch")) >= 2, 1)
        yield consumer.close()


# How often


@on_loop()
def test_a_broker_is_not_asked_all_the_time_however_short_max_wait_time_is():
    with ScriptedBroker() as broker:
        broker.topics = {"t": {0: 1}}
        consumer = yield connected(broker, max_wait_time=1)
        yield consumer.consume("t", start=BEGINNING)
        before, end = len(broker.seen("fetch")), time.time() + 0.5
        while time.time() < end:
            assert (yield consumer.consume("t")) == []
        assert 2 <= len(broker.seen("fetch")) - before <= 12
        broker.cluster.append("t", 0, numbers(1))
        assert (yield gathered(consumer, "t", 1)) == [1]
        yield consumer.close()


@on_loop()
def test_a_partition_that_does_not_work_for_long_is_logged_once(monkeypatch, logbook):
    monkeypatch.setattr(broker_loop, "WARN_AFTER_SECONDS", 0.2)
    with ScriptedCluster(brokers=2) as cluster:
        cluster.topics = {"t": {0: 1, 1: 2}}
        consumer = yield connected(cluster)
        yield consumer.consume("t", start=BEGINNING)
        second = cluster.brokers[1]
        second.on("fetch", Error(OFFSET_NOT_AVAILABLE))
        yield gen.sleep(0.8)
        assert len(logbook.expect("t[1]: OFFSET_NOT_AVAILABLE (error 78)")) == 1
        second.on("fetch", None)
        cluster.append("t", 1, numbers(1))
        assert (yield gathered(consumer, "t", 1)) == [1]
        yield consumer.close()
