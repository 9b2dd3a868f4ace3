import binascii
import datetime
import gc
import json
import os

import pytest
import six
from tornado import gen

from kiel import exc
from kiel.clients.producer import Producer
from kiel.clients.record import RecordMetadata
from kiel.protocol import produce as api
from tests.support.logs import columns_of, numbers_in, values_in
from tests.support.loop import on_loop
from tests.support.scripted import KAFKA_0_10, Error, Late, Never, ScriptedCluster
from tests.support.waiting import Ticker, failure, until

MESSAGE_TOO_LARGE, INVALID_TOPIC, TOPIC_REFUSED, LEADER_NOT_AVAILABLE, INVALID_RECORD = 10, 17, 29, 5, 87


def as_it_is(message):
    return message


@gen.coroutine
def connected(cluster, **options):
    options.setdefault("serializer", as_it_is)
    made = Producer(cluster.addresses, **options)
    yield made.connect()
    raise gen.Return(made)


def one_topic(partitions=1, brokers=1):
    cluster = ScriptedCluster(brokers=brokers)
    cluster.topics = {"t": {number: number % brokers + 1 for number in range(partitions)}}
    return cluster


def record_of(cluster, topic="t", partition=0):
    """(timestamp, key, value, headers) of the only record in a log."""
    (stored,) = cluster.log(topic, partition).batches
    (columns,) = columns_of(stored.data)
    assert len(columns.values) == 1
    return columns.timestamps[0], columns.keys[0], columns.values[0], list((columns.headers or [()])[0])


# -- one record


@on_loop(timeout=10)
def test_a_record_is_acknowledged_where_it_is():
    with one_topic() as cluster:
        producer = yield connected(cluster, serializer=None)
        first = yield producer.produce("t", {"b": 1, "a": u"\u00fc"}, timestamp=1500000000000)
        second = yield producer.produce("t", [2], timestamp=datetime.datetime(2020, 1, 2, 3, 4, 5, 678000))
        assert first == RecordMetadata("t", 0, 0, 1500000000000)
        assert second == RecordMetadata("t", 0, 1, 1577934245678)
        assert values_in(cluster.log("t")) == [b'{"a": "\\u00fc", "b": 1}', b"[2]"]
        yield producer.close()


@on_loop(timeout=10)
def test_key_headers_and_null_go_along():
    with one_topic() as cluster:
        producer = yield connected(cluster, serializer=json.dumps)
        yield producer.produce("t", None, key=u"k\u00fc", timestamp=7, headers={u"h": u"\u00fc"})
        assert record_of(cluster) == (7, u"k\u00fc".encode("utf-8"), None, [(u"h", u"\u00fc".encode("utf-8"))])
        yield producer.close()


@pytest.mark.parametrize("headers", [[("a", b"1"), ("a", None)], ((u"a", bytearray(b"1")), (u"a", None))])
@on_loop(timeout=10)
def test_headers_may_come_again(headers):
    with one_topic() as cluster:
        producer = yield connected(cluster)
        yield producer.produce("t", u"text", key=bytearray(b"k"), timestamp=1, headers=headers)
        assert record_of(cluster) == (1, b"k", b"text", [(u"a", b"1"), (u"a", None)])
        yield producer.close()


@on_loop(timeout=10)
def test_a_record_without_a_timestamp_has_that_of_its_call():
    with one_topic() as cluster:
        producer = yield connected(cluster)
        before = producer.loop.time()
        metadata = yield producer.produce("t", b"x")
        assert before - 0.001 <= metadata.timestamp / 1000.0 <= producer.loop.time()
        yield producer.close()


@on_loop(timeout=10)
def test_a_time_that_the_broker_gave_is_told():
    with one_topic() as cluster:
        producer = yield connected(cluster)
        cluster.brokers[0].on("produce", lambda call: api.ProduceResponse(responses=[
            api.TopicProduceResponse(name="t", partition_responses=[
                api.PartitionProduceResponse(index=0, base_offset=5, log_append_time_ms=99)
            ])
        ]))  # fmt: skip
        results = yield [producer.produce("t", b"x"), producer.produce("t", b"y")]
        assert results == [RecordMetadata("t", 0, 5, 99), RecordMetadata("t", 0, 6, 99)]
        yield producer.close()


# -- where a record goes


@on_loop(timeout=10)
def test_records_go_where_java_would_send_their_keys():
    with one_topic(partitions=12) as cluster:
        producer = yield connected(cluster)
        for key in (u"100:48069", b"100:48069", bytearray(b"100:48069")):
            metadata = yield producer.produce("t", b"x", key=key)
            assert metadata.partition == 9
        yield producer.close()


@on_loop(timeout=10)
def test_the_key_maker_gives_keys_to_records_without_one():
    with one_topic(partitions=6) as cluster:
        producer = yield connected(cluster, key_maker=lambda message: message[:2])
        assert (yield producer.produce("t", b"k0 and more")).partition == 5
        assert (yield producer.produce("t", b"k0 and more", key="other")).partition != 5
        yield producer.close()


@on_loop(timeout=10)
def test_a_partitioner_decides_on_records_without_a_partition():
    asked = []

    def last(key, partitions):
        asked.append((key, partitions))
        return partitions[-1]

    with one_topic(partitions=3) as cluster:
        producer = yield connected(cluster, partitioner=last)
        assert (yield producer.produce("t", b"x", key="k")).partition == 2
        assert (yield producer.produce("t", b"x")).partition == 2
        assert (yield producer.produce("t", b"x", partition=1)).partition == 1
        assert asked == [(b"k", [0, 1, 2]), (None, [0, 1, 2])]
        yield producer.close()


@on_loop(timeout=10)
def test_a_partitioner_that_is_wrong_fails_the_record(logbook):
    with one_topic() as cluster:
        producer = yield connected(cluster, partitioner=lambda key, partitions: key and 7)
        error = yield failure(producer.produce("t", b"x", key="k"))
        assert isinstance(error.cause, ValueError) and "7" in str(error)
        assert producer.unsent_count == 0
        logbook.expect("t")
        yield producer.close()


@on_loop(timeout=10)
def test_records_without_a_key_stick_to_a_partition_for_a_batch_and_use_all_of_them():
    with one_topic(partitions=4) as cluster:
        producer = yield connected(cluster)
        batches = []
        for _ in range(40):
            results = yield [producer.produce("t", b"x") for _ in range(5)]
            assert len({each.partition for each in results}) == 1
            batches.append(results[0].partition)
        assert sorted(set(batches)) == [0, 1, 2, 3]
        assert all(one != other for one, other in zip(batches, batches[1:]))
        yield producer.close()


@on_loop(timeout=10)
def test_records_without_a_key_leave_out_a_partition_without_a_leader():
    with one_topic(partitions=3) as cluster:
        cluster.topics["t"][1] = None
        producer = yield connected(cluster)
        for _ in range(10):
            assert (yield producer.produce("t", b"x")).partition in (0, 2)
        yield producer.close()


@on_loop(timeout=10)
def test_a_partition_that_is_not_there_fails_after_a_look_at_the_metadata(logbook):
    with one_topic(partitions=2) as cluster:
        producer = yield connected(cluster)
        yield producer.produce("t", b"x", partition=1)
        error = yield failure(producer.produce("t", b"x", partition=5))
        assert isinstance(error.cause, exc.UnknownTopicError) and "[0, 1]" in str(error)
        logbook.expect("t[5]")
        yield producer.close()


@on_loop(timeout=10)
def test_a_partition_that_was_just_added_is_found():
    with one_topic() as cluster:
        producer = yield connected(cluster)
        yield producer.produce("t", b"x")
        cluster.topics["t"][1] = 1
        assert (yield producer.produce("t", b"x", partition=1)).partition == 1
        used = set()
        for _ in range(4):
            used.add((yield producer.produce("t", b"x")).partition)
        assert used == {0, 1}
        yield producer.close()


# -- batches


@on_loop(timeout=10)
def test_calls_that_are_not_yielded_share_a_batch_also_while_metadata_is_fetched():
    with one_topic() as cluster:
        producer = yield connected(cluster)
        cluster.brokers[0].on("metadata", [Late(0.1)])
        futures = [producer.produce("t", b"%d" % number) for number in range(100)]
        assert producer.unsent_count == 100
        results = yield futures
        assert [each.offset for each in results] == list(range(100))
        assert len(cluster.seen("produce")) == 1 and producer.unsent_count == 0
        assert values_in(cluster.log("t")) == [b"%d" % number for number in range(100)]
        yield producer.close()


@on_loop(timeout=10)
def test_what_comes_while_a_batch_is_in_flight_is_the_next():
    with one_topic() as cluster:
        producer = yield connected(cluster)
        cluster.brokers[0].on("produce", [Late(0.1)])
        futures = [producer.produce("t", b"first")]
        yield until(lambda: cluster.seen("produce"))
        for _ in range(10):
            futures.append(producer.produce("t", b"second"))
            yield gen.moment
        yield futures
        assert len(cluster.seen("produce")) == 2
        yield producer.close()


@on_loop(timeout=10)
def test_partitions_share_a_request_and_batches_have_their_limits():
    with one_topic(partitions=3) as cluster:
        producer = yield connected(cluster, batch_size=2)
        yield producer.produce("t", b"x")
        futures = [producer.produce("t", b"%d" % number, partition=number % 3) for number in range(9)]
        yield futures
        requests = [call.body.topic_data for call in cluster.seen("produce")[1:]]
        assert [sorted(part.index for part in data[0].partition_data) for data in requests] == [[0, 1, 2]] * 2
        yield producer.close()


@on_loop(timeout=10)
def test_a_batch_lingers_for_others():
    with one_topic() as cluster:
        producer = yield connected(cluster, linger_ms=100)
        started = producer.loop.time()
        futures = []
        for number in range(5):
            futures.append(producer.produce("t", b"x"))
            yield gen.sleep(0.01)
        yield futures
        assert len(cluster.seen("produce")) == 1 and 0.1 <= producer.loop.time() - started < 0.5
        yield producer.close()


@on_loop(timeout=10)
def test_a_flush_does_not_linger_and_waits_for_what_was_before_it():
    with one_topic() as cluster:
        producer = yield connected(cluster, linger_ms=60000)
        before = [producer.produce("t", b"%d" % number) for number in range(10)]
        flushed = producer.flush()
        after = producer.produce("t", b"after")
        yield flushed
        assert all(future.done() for future in before) and not after.done()
        assert producer.unsent_count == 1
        yield producer.close()
        assert after.result().offset == 10


@on_loop(timeout=10)
def test_a_flush_that_takes_too_long_loses_nothing():
    with one_topic() as cluster:
        producer = yield connected(cluster)
        yield producer.flush(timeout_ms=0)
        cluster.brokers[0].on("produce", [Late(0.3)])
        future = producer.produce("t", b"x")
        error = yield failure(producer.flush(timeout_ms=50))
        assert isinstance(error, exc.DeadlineError) and "1 records" in str(error)
        assert (yield future).offset == 0
        yield producer.close()


@on_loop(timeout=10)
def test_batches_are_compressed():
    with one_topic() as cluster:
        producer = yield connected(cluster, compression="gzip", compression_level=9)
        yield [producer.produce("t", b"x" * 1000) for _ in range(100)]
        assert values_in(cluster.log("t")) == [b"x" * 1000] * 100
        assert sum(len(stored.data) for stored in cluster.log("t").batches) < 5000
        yield producer.close()


# -- room


@on_loop(timeout=20)
def test_compressing_does_not_hold_the_loop():
    with one_topic() as cluster:
        producer = yield connected(cluster, compression="gzip", compression_level=9)
        yield producer.produce("t", b"")
        value = binascii.hexlify(os.urandom(3500000))
        future = producer.produce("t", value)
        longest, last = 0, producer.loop.time()
        while len(cluster.seen("produce")) == 1:
            yield gen.sleep(0)
            now = producer.loop.time()
            longest, last = max(longest, now - last), now
        assert longest < 0.25
        yield future
        assert values_in(cluster.log("t"))[1] == value
        yield producer.close()


@on_loop(timeout=10)
def test_past_buffer_bytes_produce_waits_for_room_and_the_order_is_kept():
    with one_topic() as cluster:
        producer = yield connected(cluster, buffer_bytes=10000, batch_size=3)
        cluster.brokers[0].on("produce", lambda call: Late(0.01))
        values = [b"%03d" % number + b"x" * 1000 for number in range(50)]
        futures = [producer.produce("t", value) for value in values]
        most = 0
        while not futures[-1].done():
            most = max(most, producer._accumulator.used_bytes)
            yield gen.sleep(0.002)
        assert values_in(cluster.log("t")) == values and 5000 < most <= 10000
        assert producer._accumulator.used_bytes == 0
        yield producer.close()


@on_loop(timeout=10)
def test_nothing_lingers_while_others_wait_for_room():
    with one_topic(partitions=3) as cluster:
        producer = yield connected(cluster, buffer_bytes=5000, linger_ms=60000)
        futures = [producer.produce("t", b"x" * 1000, partition=number % 3) for number in range(30)]
        yield until(lambda: sum(future.done() for future in futures) > 25)
        yield producer.close()
        assert all(future.result().offset >= 0 for future in futures)


@on_loop(timeout=10)
def test_who_waits_for_room_too_long_fails(logbook):
    with one_topic() as cluster:
        producer = yield connected(cluster, buffer_bytes=5000, delivery_timeout_ms=1500)
        cluster.brokers[0].on("produce", Never())
        futures = [producer.produce("t", b"x" * 1000) for _ in range(10)]
        errors = []
        for future in futures:
            errors.append((yield failure(future)))
        assert {type(error.cause) for error in errors} == {exc.DeadlineError}
        assert "room" in str(errors[-1])
        logbook.expect("room")
        logbook.expect("delivery_timeout_ms")
        yield producer.close()


# -- records that are at fault


@on_loop(timeout=10)
def test_only_the_record_that_is_too_large_for_the_broker_fails(logbook):
    def limited(call):
        (part,) = call.body.topic_data[0].partition_data
        return Error(MESSAGE_TOO_LARGE) if len(part.records) > 2000 else None

    with one_topic() as cluster:
        producer = yield connected(cluster)
        cluster.brokers[0].on("produce", limited)
        values = [b"%d" % number for number in range(5)] + [b"x" * 5000] + [b"%d" % number for number in range(5, 10)]
        futures = [producer.produce("t", value) for value in values]
        error = yield failure(futures.pop(5))
        results = yield futures
        assert isinstance(error, exc.ProduceError) and isinstance(error.cause, exc.RecordTooLargeError)
        assert [each.offset for each in results] == list(range(10))
        assert values_in(cluster.log("t")) == [b"%d" % number for number in range(10)]
        assert (yield producer.produce("t", b"later")).offset == 10
        logbook.expect("t[0]")
        yield producer.close()


@on_loop(timeout=10)
def test_the_records_that_the_broker_rejects_fail_by_themselves(logbook):
    def checked(call):
        response = cluster.brokers[0].usual(call, Error(INVALID_RECORD))
        (part,) = response.responses[0].partition_responses
        part.record_errors = [api.BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="no key")]
        return response

    with one_topic() as cluster:
        producer = yield connected(cluster)
        cluster.brokers[0].on("produce", [checked])
        futures = [producer.produce("t", value) for value in (b"a", b"bad", b"c")]
        error = yield failure(futures[1])
        assert error.cause.name == "INVALID_RECORD" and "no key" in str(error)
        assert [(yield futures[0]).offset, (yield futures[2]).offset] == [0, 1]
        assert values_in(cluster.log("t")) == [b"a", b"c"]
        logbook.expect("no key")
        yield producer.close()


class Unserializable(object):
    pass


@on_loop(timeout=10)
def test_what_a_broker_says_may_be_in_any_language(logbook):
    with one_topic() as cluster:
        producer = yield connected(cluster)
        text = u"ung\xfcltig"
        bad = api.BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message=text)
        part = api.PartitionProduceResponse(
            index=0, error_code=INVALID_RECORD, base_offset=-1, record_errors=[bad], error_message=text
        )
        cluster.brokers[0].on("produce", [
            api.ProduceResponse(responses=[api.TopicProduceResponse(name="t", partition_responses=[part])])
        ])  # fmt: skip
        error = yield failure(producer.produce("t", b"x"))
        assert text in exc.text_of(error)
        logbook.expect(text)
        yield producer.close()


@on_loop(timeout=10)
def test_what_a_serializer_says_may_be_in_any_language(logbook):
    def fail(message):
        raise ValueError(u"ung\xfcltig".encode("utf-8") if six.PY2 else u"ung\xfcltig")

    with one_topic() as cluster:
        producer = yield connected(cluster, serializer=fail)
        error = yield failure(producer.produce(u"t", b"x"))
        assert u"ung\xfcltig" in exc.text_of(error)
        logbook.expect(u"ung\xfcltig")
        yield producer.close()


@on_loop(timeout=10)
def test_a_record_that_cannot_be_serialized_fails_by_itself(logbook):
    with one_topic() as cluster:
        producer = yield connected(cluster, serializer=None)
        messages = [1, Unserializable(), 2]
        futures = [producer.produce("t", message) for message in messages]
        error = yield failure(futures[1])
        assert isinstance(error, exc.ProduceError) and isinstance(error.cause, TypeError)
        yield [futures[0], futures[2]]
        assert values_in(cluster.log("t")) == [b"1", b"2"]
        logbook.expect("serializable")
        yield producer.close()


@pytest.mark.parametrize("arguments, text", [
    (dict(key=5), "int"),
    (dict(partition=-1), "partition"),
    (dict(partition="0"), "partition"),
    (dict(timestamp="now"), "timestamp"),
    (dict(timestamp=-1), "timestamp"),
    (dict(headers=[("a", 5)]), "int"),
    (dict(headers=[(5, b"x")]), "header"),
    (dict(headers=5), "int"),
    (dict(topic=5), "topic"),
    (dict(message=5), "int"),
    (dict(message=b"x" * 3000), "max_request_bytes=2048"),
])  # fmt: skip
@on_loop(timeout=10)
def test_arguments_that_cannot_be_right_fail_that_record_at_once(arguments, text, logbook):
    with one_topic() as cluster:
        producer = yield connected(cluster, max_request_bytes=2048)
        yield producer.produce("t", b"x")
        future = producer.produce(**dict(dict(topic="t", message=b"x"), **arguments))
        assert future.done() and isinstance(future.exception(), exc.ProduceError)
        assert text in str(future.exception()) and producer.unsent_count == 0
        logbook.expect(text)
        yield producer.close()


# -- topics


@pytest.mark.parametrize("code, kind", [
    (INVALID_TOPIC, exc.InvalidTopicError), (TOPIC_REFUSED, exc.AuthorizationError),
])  # fmt: skip
@on_loop(timeout=10)
def test_a_topic_that_is_refused_fails_at_once_and_others_go_on(code, kind, logbook):
    with one_topic() as cluster:
        cluster.topic_errors = {"bad": code}
        producer = yield connected(cluster)
        started = producer.loop.time()
        bad = [producer.produce("bad", b"x") for _ in range(10)]
        yield [producer.produce("t", b"x") for _ in range(10)]
        for future in bad:
            error = yield failure(future)
            assert isinstance(error.cause, kind) and error.cause.code == code and error.topic == "bad"
        assert producer.loop.time() - started < 1
        assert len([call for call in cluster.seen("metadata") if call.body.topics]) <= 3
        logbook.expect("bad")
        yield producer.close()


@on_loop(timeout=10)
def test_a_topic_that_becomes_forbidden_fails_what_waits_for_its_leader(logbook):
    with one_topic(brokers=2) as cluster:
        producer = yield connected(cluster)
        yield producer.produce("t", b"x")
        cluster.topics["t"][0] = None
        yield producer.cluster.refresh()
        future = producer.produce("t", b"x")
        cluster.topic_errors = {"t": TOPIC_REFUSED}
        error = yield failure(future)
        assert isinstance(error.cause, exc.AuthorizationError)
        logbook.expect("t[0]")
        yield producer.close()


@pytest.mark.parametrize("topic", [u"x" * 250, u"x" * 40000, u"\xe4" * 125, u"\ud800"],
                         ids=["longer", "much longer", "longer in bytes", "no text"])  # fmt: skip
@on_loop(timeout=10)
def test_a_name_that_no_topic_can_have_spoils_no_other(topic, logbook):
    if six.PY2 and topic == u"\ud800":
        pytest.skip("Python 2 writes half a surrogate pair as if it were a character")
    with one_topic() as cluster:
        producer = yield connected(cluster)
        error = yield failure(producer.produce(topic, b"x"))
        assert isinstance(error.cause, exc.InvalidTopicError) and len(str(error)) < 700
        logbook.expect("INVALID_TOPIC_EXCEPTION")
        assert (yield producer.produce("t", b"x")).offset == 0
        yield producer.close()


@on_loop(timeout=10)
def test_a_topic_that_was_deleted_is_named_as_such(logbook):
    with one_topic() as cluster:
        producer = yield connected(cluster, delivery_timeout_ms=500)
        yield producer.produce("t", b"x")
        cluster.delete("t")
        yield producer.cluster.refresh()
        error = yield failure(producer.produce("t", b"x"))
        assert isinstance(error.cause, exc.DeadlineError) and isinstance(error.cause.cause, exc.UnknownTopicError)
        logbook.expect("UNKNOWN_TOPIC_OR_PARTITION")
        yield producer.close()


@on_loop(timeout=10)
def test_a_topic_that_is_no_longer_used_is_not_asked_for():
    with one_topic() as cluster:
        cluster.topics = {"t": {0: 1}, "idle": {0: 1}}
        producer = yield connected(
            cluster, metadata_max_age_ms=1000, metadata_max_idle_ms=500, delivery_timeout_ms=500
        )
        yield producer.produce("idle", b"1")

        def names():
            return {topic.name for topic in cluster.seen("metadata")[-1].body.topics}

        while "idle" in names() or "t" not in names():
            yield producer.produce("t", b"x")
            yield gen.sleep(0.1)
        assert (yield producer.produce("idle", b"2")).offset == 1
        yield producer.close()
        assert [each[2:] for each in numbers_in(cluster.log("idle"))] == [(0, 1), (1, 1)]


@on_loop(timeout=10)
def test_a_topic_that_is_not_there_yet_is_waited_for_without_hurry():
    with ScriptedCluster() as cluster:
        cluster.auto_create = 1
        producer = yield connected(cluster)
        cluster.brokers[0].on("metadata", [Error(LEADER_NOT_AVAILABLE)] * 4)
        started = producer.loop.time()
        yield producer.produce("new", b"x")
        assert values_in(cluster.log("new")) == [b"x"] and len(cluster.seen("produce")) == 1
        assert len(cluster.seen("metadata")) <= 2 + 10 * max(1, producer.loop.time() - started)
        yield producer.close()


@on_loop(timeout=10)
def test_a_topic_that_never_comes_fails_in_time(logbook):
    with ScriptedCluster() as cluster:
        producer = yield connected(cluster, delivery_timeout_ms=400)
        started = producer.loop.time()
        error = yield failure(producer.produce("none", b"x"))
        assert isinstance(error.cause, exc.UnknownTopicError) and producer.loop.time() - started < 0.5
        logbook.expect("none")
        yield producer.close()


# -- Futures that nobody looks at


@on_loop(timeout=10)
def test_a_failure_that_nobody_looks_at_is_logged_once_a_batch(logbook):
    with one_topic() as cluster:
        producer = yield connected(cluster)
        cluster.brokers[0].on("produce", [Error(TOPIC_REFUSED)])
        for _ in range(50):
            producer.produce("t", b"x")
        yield producer.flush()
        gc.collect()
        (line,) = logbook.expect("TOPIC_AUTHORIZATION_FAILED")
        assert ": 50:" in line and "t[0]" in line
        yield producer.close()


@on_loop(timeout=10)
def test_a_record_whose_future_was_cancelled_is_sent_all_the_same():
    with one_topic() as cluster:
        producer = yield connected(cluster)
        future = producer.produce("t", b"x")
        if not future.cancel():
            pytest.skip("Futures can't be cancelled on this Python")
        yield producer.produce("t", b"y")
        assert values_in(cluster.log("t")) == [b"x", b"y"]
        yield producer.close()


@on_loop(timeout=20)
def test_many_that_waited_for_their_topic_do_not_hold_the_loop():
    with one_topic() as cluster:
        producer = yield connected(cluster)
        futures = [producer.produce("t", b"%d" % number) for number in range(60000)]
        longest, last = 0, producer.loop.time()
        while not cluster.log("t").batches:
            yield gen.sleep(0)
            now = producer.loop.time()
            longest, last = max(longest, now - last), now
        assert longest < 0.15
        yield futures
        assert values_in(cluster.log("t")) == [b"%d" % number for number in range(60000)]
        yield producer.close()


# -- produce_many


@on_loop(timeout=10)
def test_nothing_more_is_read_when_many_records_are_cancelled():
    def endless():
        while True:
            read[0] += 1
            yield b"x"

    with one_topic() as cluster:
        producer = yield connected(cluster)
        read = [0]
        future = producer.produce_many("t", endless())
        yield until(lambda: cluster.log("t").batches)
        if not future.cancel():
            producer.close()
            yield failure(future)
            pytest.skip("Futures can't be cancelled on this Python")
        yield gen.sleep(0.05)
        so_far = read[0]
        yield gen.sleep(0.1)
        assert read[0] == so_far
        yield producer.flush()
        assert len(values_in(cluster.log("t"))) == so_far
        yield producer.close()


@on_loop(timeout=10)
def test_many_records_are_one_result_in_order_with_bounded_memory_and_the_loop_free():
    with one_topic() as cluster:
        producer = yield connected(cluster, buffer_bytes=200000)
        ticker = Ticker()
        count, most = 20000, [0]

        def messages():
            for number in range(count):
                most[0] = max(most[0], producer.unsent_count)
                yield b"%010d" % number

        assert (yield producer.produce_many("t", messages())) == count
        yield ticker.stop()
        assert values_in(cluster.log("t")) == [b"%010d" % number for number in range(count)]
        assert most[0] < 200000 / 10 and ticker.gap < 0.25
        yield producer.close()


@pytest.mark.parametrize("topic, partition", [(5, None), (["t"], None), ("t", "0"), ("t", -1)])
@on_loop(timeout=10)
def test_many_records_for_a_place_that_cannot_be_are_not_even_read(topic, partition):
    with one_topic() as cluster:
        producer = yield connected(cluster)
        messages = iter([b"x"] * 10)
        error = yield failure(producer.produce_many(topic, messages, partition=partition))
        assert isinstance(error, exc.ConfigurationError) and len(list(messages)) == 10
        yield producer.close()


@on_loop(timeout=10)
def test_many_records_have_keys_from_the_function_given():
    with one_topic(partitions=10) as cluster:
        producer = yield connected(cluster)
        assert (yield producer.produce_many("t", [b"wu"] * 3, key=lambda message: message)) == 3
        assert values_in(cluster.log("t", 0)) == [b"wu"] * 3
        assert (yield producer.produce_many("t", [])) == 0
        yield producer.close()


@on_loop(timeout=10)
def test_many_records_go_on_after_bad_ones_and_tell_the_first_failure(logbook):
    with one_topic() as cluster:
        producer = yield connected(cluster, serializer=None)
        error = yield failure(producer.produce_many("t", [1, Unserializable(), 2, Unserializable(), 3]))
        assert isinstance(error, exc.ProduceError) and (error.acknowledged, error.failed) == (3, 2)
        assert values_in(cluster.log("t")) == [b"1", b"2", b"3"]
        logbook.expect("serializable")
        yield producer.close()


@on_loop(timeout=10)
def test_many_records_stop_where_going_on_is_in_vain(logbook):
    with ScriptedCluster() as cluster:
        cluster.topic_errors = {"bad": TOPIC_REFUSED}
        producer = yield connected(cluster)
        messages = iter([b"x"] * 100)
        error = yield failure(producer.produce_many("bad", messages))
        assert isinstance(error.cause, exc.AuthorizationError)
        assert error.failed + len(list(messages)) == 100 and error.failed == 1
        logbook.expect("bad")
        yield producer.close()


@on_loop(timeout=10)
def test_an_error_of_the_iterable_is_raised_after_what_it_gave_is_through():
    def messages():
        yield b"x"
        yield b"y"
        raise KeyError("no more")

    with one_topic() as cluster:
        producer = yield connected(cluster)
        error = yield failure(producer.produce_many("t", messages()))
        assert isinstance(error, KeyError)
        assert values_in(cluster.log("t")) == [b"x", b"y"] and producer.unsent_count == 0
        yield producer.close()


# -- acks, close, settings


@on_loop(timeout=10)
def test_without_acks_records_are_gone_when_they_are_written():
    with one_topic() as cluster:
        producer = yield connected(cluster, required_acks=0)
        results = yield [producer.produce("t", b"%d" % number) for number in range(10000)]
        assert {(each.partition, each.offset) for each in results} == {(0, -1)}
        yield producer.cluster.refresh()
        yield until(lambda: len(values_in(cluster.log("t"))) == 10000)
        assert values_in(cluster.log("t")) == [b"%d" % number for number in range(10000)]
        assert not cluster.seen("init_producer_id") and len(cluster.brokers[0].connections) <= 2
        yield producer.close()


@pytest.mark.parametrize("acks, sent", [("all", -1), (-1, -1), (1, 1)])
@on_loop(timeout=10)
def test_acks_go_to_the_broker_with_the_time_out(acks, sent):
    with one_topic() as cluster:
        producer = yield connected(cluster, required_acks=acks, ack_timeout=1234)
        yield producer.produce("t", b"x")
        (call,) = cluster.seen("produce")
        assert (call.body.acks, call.body.timeout_ms, call.body.transactional_id) == (sent, 1234, None)
        assert bool(cluster.seen("init_producer_id")) == (sent == -1)
        yield producer.close()


@on_loop(timeout=10)
def test_close_sends_what_is_left_and_gives_everything_back():
    with one_topic(brokers=2, partitions=2) as cluster:
        producer = yield connected(cluster, linger_ms=60000)
        futures = [producer.produce("t", b"x", partition=number % 2) for number in range(10)]
        yield producer.close()
        assert all(future.result().offset >= 0 for future in futures) and producer.unsent_count == 0
        yield until(lambda: not any(broker.open_connections for broker in cluster.brokers))
        yield producer.close()
        for call in (lambda: producer.produce("t", b"x"), lambda: producer.flush().result()):
            with pytest.raises(exc.UsageError):
                call()
        error = yield failure(producer.produce_many("t", [b"x"]))
        assert isinstance(error, exc.UsageError)


@on_loop(timeout=10)
def test_what_close_cannot_send_in_time_fails(logbook):
    with one_topic() as cluster:
        producer = yield connected(cluster, batch_size=1, buffer_bytes=1100)
        cluster.brokers[0].on("produce", Never())
        futures = [producer.produce("t", b"x" * 100) for _ in range(5)] + [producer.produce("none", b"x")]
        yield until(lambda: cluster.seen("produce"))
        started = producer.loop.time()
        error = yield failure(producer.close(timeout_ms=200))
        assert isinstance(error, exc.DeadlineError) and producer.loop.time() - started < 1.5
        for future in futures:
            assert isinstance(future.exception(), exc.ProduceError)
            assert isinstance(future.exception().cause, exc.DeadlineError)
        assert producer.unsent_count == 0
        yield until(lambda: not cluster.brokers[0].open_connections)
        logbook.expect("not acknowledged")


@on_loop(timeout=10)
def test_a_producer_that_is_not_connected_says_so():
    producer = Producer("localhost:1")
    with pytest.raises(exc.UsageError):
        producer.produce("t", b"x")
    yield producer.close()


@on_loop(timeout=10)
def test_a_producer_that_is_still_connecting_is_not_connected():
    with one_topic() as cluster:
        cluster.brokers[0].on("connect", Late(0.2))
        producer = Producer(cluster.addresses, serializer=as_it_is)
        connecting = producer.connect()
        with pytest.raises(exc.UsageError):
            producer.produce("t", b"x")
        yield connecting
        yield producer.produce("t", b"x")
        yield producer.close()


@on_loop(timeout=10)
def test_a_broker_that_is_too_old_is_named(logbook):
    with ScriptedCluster(versions=KAFKA_0_10) as cluster:
        cluster.topics = {"t": {0: 1}}
        producer = yield connected(cluster)
        error = yield failure(producer.produce("t", b"x"))
        assert isinstance(error.cause, exc.UnsupportedVersionError) and "0.11" in str(error)
        logbook.expect("t[0]")
        yield producer.close()


@pytest.mark.parametrize("settings, words", [
    (dict(serializer=5), "serializer"),
    (dict(key_maker="k"), "key_maker"),
    (dict(partitioner=[]), "partitioner"),
    (dict(batch_size=0), "batch_size"),
    (dict(batch_bytes=1.5), "batch_bytes"),
    (dict(linger_ms=-1), "linger_ms"),
    (dict(compression="zip"), "compression"),
    (dict(compression="gzip", compression_level=77), "level"),
    (dict(required_acks=2), "required_acks"),
    (dict(ack_timeout="1"), "ack_timeout"),
    (dict(delivery_timeout_ms=0), "delivery_timeout_ms"),
    (dict(buffer_bytes=-1), "buffer_bytes"),
    (dict(max_request_bytes=None), "max_request_bytes"),
    (dict(enable_idempotence="yes"), "enable_idempotence"),
    (dict(enable_idempotence=True, required_acks=1), "enable_idempotence"),
])  # fmt: skip
def test_a_setting_that_cannot_be_right_is_named(settings, words):
    with pytest.raises(exc.ConfigurationError) as caught:
        Producer("localhost", **settings)
    assert words in str(caught.value)


def test_a_codec_that_is_not_there_is_named():
    with pytest.raises(exc.UnsupportedCodecError) as caught:
        Producer("localhost", compression="lz4")
    assert "lz4" in str(caught.value)
