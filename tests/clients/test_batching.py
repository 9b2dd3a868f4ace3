import pytest
from hypothesis import given, settings, strategies

from kiel.clients.batching import Accumulator, Identity
from kiel.exc import (
    BrokerConnectionError,
    BrokerError,
    DeadlineError,
    ProtocolError,
    RecordTooLargeError,
    UnsupportedVersionError,
)
from kiel.protocol import errors, records
from kiel.protocol.primitives import Span
from kiel.protocol.produce import BatchIndexAndErrorMessage, PartitionProduceResponse

BACKOFF = 0.1
HUNG_UP = BrokerConnectionError("kafka:9092", "closed", "the broker hung up")


def accumulator(**changes):
    options = dict(
        new_builder=records.BatchBuilder, batch_size=100, batch_bytes=10000, linger=0,
        max_request_bytes=100000, backoff=lambda attempt: BACKOFF * 2 ** attempt, is_idempotent=True,
    )  # fmt: skip
    options.update(changes)
    made = Accumulator(**options)
    made.identity = Identity(7, 0)
    return made


def put(box, *values, **where):
    topic, partition = where.get("topic", "t"), where.get("partition", 0)
    now, deadline = where.get("now", 0), where.get("deadline", 100)
    added = [
        box.append(
            topic, partition, 1000 + int(now), where.get("key"), value, where.get("headers"),
            records.record_size(where.get("key"), value, where.get("headers")), 100, value, now, deadline,
            where.get("generation", box.generation),
        )  # fmt: skip
        for value in values
    ]
    return added


def leader_is(broker_id):
    return lambda topic, partition: broker_id


def only_batch(box, now=0, broker_id=1):
    sent = box.ready(now, leader_is(broker_id))
    assert list(sent) == [broker_id] and len(sent[broker_id]) == 1
    return sent[broker_id][0]


def answer(name, offset=-1, record_errors=(), text=None, append_time=-1):
    return PartitionProduceResponse(
        error_code=errors.named(name).code, base_offset=offset, record_errors=list(record_errors),
        error_message=text, log_append_time_ms=append_time,
    )  # fmt: skip


def content(batch):
    data = batch.build()
    (read,) = records.batches(Span(data, 0, len(data)))
    values = [value for columns in read.columns() if columns is not None for value in columns.values]
    return (read.producer_id, read.producer_epoch, read.base_sequence), values


def answered(box, batch, name, now=0, **more):
    box.request_ended(batch.broker_id)
    return box.answered(batch, answer(name, **more), now)


def hung_up(box, batch, now=0, error=HUNG_UP):
    box.request_ended(batch.broker_id)
    return box.unanswered(batch, error, now)


# -- what goes out when


def test_records_of_one_partition_share_a_batch_and_one_acknowledgement():
    box = accumulator()
    put(box, b"a", b"b", b"c", now=5)
    batch = only_batch(box, now=5)
    assert content(batch) == ((7, 0, 0), [b"a", b"b", b"c"])
    (outcome,) = answered(box, batch, "NONE", offset=40, append_time=77)
    assert outcome == ("t", 0, 0, [b"a", b"b", b"c"], [1005] * 3, 40, 77, None, False)
    assert box.used_bytes == 0 and box.ready(0, leader_is(1)) == {}


def test_a_partition_has_one_batch_in_flight_and_the_next_goes_on_in_sequence():
    box = accumulator()
    put(box, b"a", b"b")
    first = only_batch(box)
    put(box, b"c")
    assert box.ready(0, leader_is(1)) == {}
    answered(box, first, "NONE")
    assert content(only_batch(box)) == ((7, 0, 2), [b"c"])


def test_a_batch_is_closed_at_its_number_of_records():
    box = accumulator(batch_size=2)
    put(box, b"a", b"b", b"c")
    first = only_batch(box)
    assert first.waiters == [b"a", b"b"]
    answered(box, first, "NONE")
    assert only_batch(box).waiters == [b"c"]


def test_a_batch_is_closed_at_its_bytes_and_a_larger_record_goes_alone():
    box = accumulator(batch_bytes=300)
    small, large = b"s" * 80, b"l" * 1000
    put(box, small, small, large, small)
    sent = []
    for _ in range(3):
        batch = only_batch(box)
        sent.append(batch.waiters)
        answered(box, batch, "NONE")
    assert sent == [[small, small], [large], [small]]


def test_a_batch_lingers_and_says_when_to_come_back():
    box = accumulator(linger=0.5, batch_size=3)
    assert put(box, b"a", b"b", now=10) == [True, False]
    assert box.ready(10.4, leader_is(1)) == {}
    assert box.wake_at() == 10.5
    assert only_batch(box, now=10.5).waiters == [b"a", b"b"]


def test_a_full_batch_does_not_linger():
    box = accumulator(linger=60, batch_size=2)
    assert put(box, b"a", b"b") == [True, True]
    assert only_batch(box).waiters == [b"a", b"b"]


def test_a_flush_ends_the_linger_of_what_was_there_before_it():
    box = accumulator(linger=60)
    put(box, b"a")
    assert box.flush() == 0
    put(box, b"b")
    put(box, b"late, but asked for before the flush", partition=1, generation=0)
    sent = box.ready(0, leader_is(1))[1]
    assert [batch.waiters for batch in sent] == [[b"a"], [b"late, but asked for before the flush"]]
    answered(box, sent[0], "NONE")
    assert box.ready(1, leader_is(1)) == {}


def test_batches_for_one_broker_share_a_request_up_to_its_size():
    box = accumulator(max_request_bytes=1200)
    for partition in range(3):
        put(box, b"x" * 500, partition=partition)
    first, second = box.ready(0, leader_is(1)), box.ready(0, leader_is(1))
    assert [batch.partition for batch in first[1]] == [0, 1]
    assert [batch.partition for batch in second[1]] == [2]
    assert box.ready(0, leader_is(1)) == {}


def test_a_batch_larger_than_a_request_goes_by_itself():
    box = accumulator(max_request_bytes=100)
    put(box, b"x" * 500)
    assert only_batch(box).partition == 0


def test_each_broker_gets_the_partitions_that_it_leads():
    box = accumulator()
    for partition in range(4):
        put(box, b"x", partition=partition)
    sent = box.ready(0, lambda topic, partition: partition % 2)
    assert sorted(sent) == [0, 1]
    assert [each.partition for each in sent[0]] == [0, 2] and [each.partition for each in sent[1]] == [1, 3]


def test_a_broker_has_five_requests_at_most():
    box = accumulator()
    flying = []
    for partition in range(6):
        put(box, b"x", partition=partition)
        flying += box.ready(0, leader_is(1)).get(1, [])
    assert [batch.partition for batch in flying] == [0, 1, 2, 3, 4]
    assert box.ready(0, leader_is(2))[2][0].partition == 5
    put(box, b"y", partition=6)
    answered(box, flying[0], "NONE")
    assert only_batch(box).partition == 6


def test_a_batch_without_a_leader_waits_and_says_so():
    box = accumulator()
    put(box, b"x")
    assert box.ready(0, leader_is(None)) == {} and box.lacks_leader
    assert only_batch(box).waiters == [b"x"] and not box.lacks_leader


def test_batches_wait_for_a_producer_id_where_they_need_one():
    box = accumulator()
    box.identity = None
    put(box, b"x")
    assert box.ready(0, leader_is(1)) == {}
    box.identity = Identity(8, 3)
    assert content(only_batch(box))[0] == (8, 3, 0)
    plain = accumulator(is_idempotent=False)
    put(plain, b"x")
    assert content(only_batch(plain))[0] == (-1, -1, -1)


def test_a_sticky_record_is_told_whether_it_would_join_a_batch():
    box = accumulator(batch_size=2)
    assert not box.takes("t", 0, 10, 0)
    put(box, b"x")
    assert box.takes("t", 0, 10, 0)
    assert not box.takes("t", 0, 100000, 0)
    assert not box.takes("t", 0, 10, 1)
    put(box, b"x")
    assert not box.takes("t", 0, 10, 0)


def test_a_record_that_cannot_be_encoded_changes_nothing():
    box = accumulator()
    put(box, b"a")
    with pytest.raises(ProtocolError):
        put(box, b"b", headers=[(5, b"x")])
    with pytest.raises(ProtocolError):
        put(box, b"b", partition=1, headers=[(5, b"x")])
    put(box, b"c")
    batch = only_batch(box)
    assert batch.waiters == [b"a", b"c"] and content(batch)[1] == [b"a", b"c"]


# -- what an answer does


def test_the_same_batch_goes_again_under_the_same_number_before_what_came_later():
    box = accumulator()
    put(box, b"a", b"b")
    batch = only_batch(box)
    put(box, b"c")
    assert hung_up(box, batch, now=20) == []
    assert box.ready(20, leader_is(1)) == {} and box.wake_at() == 20 + BACKOFF
    again = only_batch(box, now=20 + BACKOFF)
    assert again is batch and content(again) == ((7, 0, 0), [b"a", b"b"])
    answered(box, again, "NONE")
    assert content(only_batch(box, now=21)) == ((7, 0, 2), [b"c"])


def test_a_new_leader_gets_the_batch_without_waiting_for_the_back_off():
    box = accumulator()
    put(box, b"a")
    batch = only_batch(box, broker_id=1)
    answered(box, batch, "NOT_LEADER_OR_FOLLOWER", now=5)
    assert box.ready(5, leader_is(1)) == {}
    assert only_batch(box, now=5, broker_id=2) is batch


@pytest.mark.parametrize(
    "name", [row.name for row in errors.ROWS if row.retriable and row.reaction != errors.NONE]
)
def test_whatever_is_retriable_is_tried_again_later_each_time(name):
    box = accumulator()
    put(box, b"a")
    batch, now = only_batch(box), 0
    for attempt in range(3):
        assert answered(box, batch, name, now=now) == []
        assert box.ready(now, leader_is(1)) == {}
        assert box.wake_at() == now + BACKOFF * 2 ** attempt
        now = box.wake_at()
        batch = only_batch(box, now=now)
        assert content(batch)[0] == (7, 0, 0)


def test_a_batch_that_the_broker_knows_already_is_acknowledged():
    box = accumulator()
    put(box, b"a")
    batch = only_batch(box)
    hung_up(box, batch)
    batch = only_batch(box, now=1)
    (outcome,) = answered(box, batch, "DUPLICATE_SEQUENCE_NUMBER")
    assert (outcome.waiters, outcome.offset, outcome.error) == ([b"a"], -1, None)


def test_an_error_for_good_fails_the_batch_and_renews_the_producer_id():
    box = accumulator()
    put(box, b"a")
    batch = only_batch(box)
    put(box, b"b")
    (outcome,) = answered(box, batch, "TOPIC_AUTHORIZATION_FAILED", text="not you")
    assert outcome.waiters == [b"a"] and outcome.offset == -1
    assert outcome.error.name == "TOPIC_AUTHORIZATION_FAILED" and "t[0]" in str(outcome.error)
    assert "not you" in str(outcome.error)
    assert box.identity is None and box.ready(0, leader_is(1)) == {}
    box.identity = Identity(8, 0)
    assert content(only_batch(box)) == ((8, 0, 0), [b"b"])


def test_a_code_that_is_not_in_the_table_fails_the_batch():
    box = accumulator()
    put(box, b"a")
    batch = only_batch(box)
    box.request_ended(1)
    (outcome,) = box.answered(batch, PartitionProduceResponse(error_code=999), 0)
    assert isinstance(outcome.error, BrokerError) and outcome.error.code == 999


def test_what_cannot_be_sent_at_all_fails_at_once():
    box = accumulator()
    put(box, b"a")
    (outcome,) = hung_up(box, only_batch(box), error=UnsupportedVersionError("too old"))
    assert isinstance(outcome.error, UnsupportedVersionError)


@pytest.mark.parametrize("name", [row.name for row in errors.ROWS if row.reaction == errors.NEW_PRODUCER_ID])
def test_a_lost_producer_id_is_replaced_and_the_sequence_starts_anew(name):
    box = accumulator()
    put(box, b"a", b"b")
    answered(box, only_batch(box), "NONE")
    put(box, b"c")
    batch = only_batch(box)
    assert content(batch)[0] == (7, 0, 2)
    put(box, b"d")
    assert answered(box, batch, name) == []
    assert box.identity is None and box.ready(1, leader_is(1)) == {}
    box.identity = Identity(8, 0)
    batch = only_batch(box, now=1)
    assert content(batch) == ((8, 0, 0), [b"c"])
    answered(box, batch, "NONE")
    assert content(only_batch(box)) == ((8, 0, 1), [b"d"])


def test_other_partitions_keep_the_producer_id_that_they_began_with():
    box = accumulator()
    put(box, b"a", partition=0)
    put(box, b"b", partition=1)
    first, second = box.ready(0, leader_is(1))[1]
    hung_up(box, second)
    answered(box, first, "UNKNOWN_PRODUCER_ID")
    box.identity = Identity(8, 0)
    again = {batch.partition: content(batch)[0] for batch in box.ready(1, leader_is(1))[1]}
    assert again == {0: (8, 0, 0), 1: (7, 0, 0)}


def test_two_partitions_that_lose_one_producer_id_share_the_new_one():
    box = accumulator()
    put(box, b"a", partition=0)
    put(box, b"b", partition=1)
    first, second = box.ready(0, leader_is(1))[1]
    answered(box, first, "UNKNOWN_PRODUCER_ID")
    box.identity = Identity(8, 0)
    answered(box, second, "UNKNOWN_PRODUCER_ID")
    assert box.identity == Identity(8, 0)
    assert {content(batch)[0] for batch in box.ready(1, leader_is(1))[1]} == {(8, 0, 0)}


def test_sequence_numbers_wrap_to_zero():
    box = accumulator()
    put(box, b"a")
    batch = only_batch(box)
    box._queues["t", 0].sequence = 2 ** 31 - 2
    answered(box, batch, "NONE")
    put(box, b"b", b"c", b"d")
    batch = only_batch(box)
    assert batch.sequence == 2 ** 31 - 2
    answered(box, batch, "NONE")
    put(box, b"e")
    assert only_batch(box).sequence == 1


# -- refused records


@pytest.mark.parametrize("name", ["MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"])
def test_only_the_record_that_is_too_large_fails_and_the_sequence_has_no_gap(name):
    box = accumulator()
    small = [b"%d" % number for number in range(10)]
    values = small[:5] + [b"x" * 5000] + small[5:]
    put(box, *values)
    put(box, b"later")
    log, failed, expected = [], [], 0
    while True:
        sent = box.ready(0, leader_is(1))
        if not sent:
            break
        (batch,) = sent[1]
        (_, _, sequence), inside = content(batch)
        assert sequence == expected
        if any(len(value) > 2000 for value in inside):
            outcomes = answered(box, batch, name)
            failed += [(each.waiters, each.error, each.is_record_at_fault) for each in outcomes]
        else:
            expected += len(inside)
            (outcome,) = answered(box, batch, "NONE", offset=len(log))
            log += inside
            assert outcome.waiters == inside
    assert log == small + [b"later"]
    ((waiters, error, is_record_at_fault),) = failed
    assert waiters == [b"x" * 5000] and is_record_at_fault
    assert isinstance(error, RecordTooLargeError) and "max.message.bytes" in str(error)
    assert box.used_bytes == 0 and box.identity == Identity(7, 0)


def test_a_batch_in_doubt_that_is_then_too_large_does_not_reuse_its_numbers():
    box = accumulator()
    put(box, b"a", b"b")
    batch = only_batch(box)
    hung_up(box, batch)
    answered(box, only_batch(box, now=1), "MESSAGE_TOO_LARGE")
    assert box.identity is None
    box.identity = Identity(8, 0)
    assert content(only_batch(box)) == ((8, 0, 0), [b"a"])


def test_the_records_that_the_broker_names_fail_and_the_others_go_again():
    box = accumulator()
    put(box, b"a", b"bad", b"c", b"worse", b"e")
    batch = only_batch(box)
    named = [BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="no key"),
             BatchIndexAndErrorMessage(batch_index=3), BatchIndexAndErrorMessage(batch_index=99)]  # fmt: skip
    outcomes = answered(box, batch, "INVALID_RECORD", record_errors=named, text="some were bad")
    assert [each.waiters for each in outcomes] == [[b"bad"], [b"worse"]]
    assert "no key" in str(outcomes[0].error) and "some were bad" in str(outcomes[1].error)
    again = only_batch(box)
    assert content(again) == ((7, 0, 0), [b"a", b"c", b"e"])
    (outcome,) = answered(box, again, "NONE", offset=3)
    assert outcome.waiters == [b"a", b"c", b"e"] and box.used_bytes == 0


def test_a_batch_whose_every_record_is_named_fails_whole():
    box = accumulator()
    put(box, b"bad")
    named = [BatchIndexAndErrorMessage(batch_index=0)]
    (outcome,) = answered(box, only_batch(box), "INVALID_RECORD", record_errors=named)
    assert outcome.waiters == [b"bad"] and outcome.error.name == "INVALID_RECORD"
    put(box, b"good")
    assert content(only_batch(box)) == ((7, 0, 0), [b"good"])


def test_parts_keep_keys_headers_and_timestamps():
    box = accumulator()
    put(box, b"a", now=1, key=b"k", headers=[(u"h", b"1"), (u"n", None)])
    put(box, b"x" * 3000, now=1)
    answered(box, only_batch(box, now=1), "MESSAGE_TOO_LARGE")
    data = only_batch(box).build()
    (batch,) = records.batches(Span(data, 0, len(data)))
    columns = next(each for each in batch.columns() if each is not None)
    assert columns == ([0], [1001], [b"k"], [b"a"], [((u"h", b"1"), (u"n", None))])


# -- the end of the wait


def test_a_batch_fails_at_its_deadline_with_the_last_failure():
    box = accumulator()
    put(box, b"a", deadline=10)
    hung_up(box, only_batch(box))
    assert box.expire(9.9) == [] and box.wake_at() <= 10
    (outcome,) = box.expire(10)
    assert outcome.waiters == [b"a"] and isinstance(outcome.error, DeadlineError)
    assert outcome.error.cause is HUNG_UP and "hung up" in str(outcome.error)
    # It may be in the log, so the next batch can't go on with its number.
    assert box.identity is None and box.used_bytes == 0


def test_a_batch_that_was_never_sent_leaves_the_sequence_alone():
    box = accumulator()
    put(box, b"a", deadline=10)
    box.ready(0, leader_is(None))
    (outcome,) = box.expire(11)
    assert outcome.error.cause.name == "LEADER_NOT_AVAILABLE"
    put(box, b"b")
    assert content(only_batch(box)) == ((7, 0, 0), [b"b"])


@pytest.mark.parametrize("name, renews", [("NONE", False), ("NOT_LEADER_OR_FOLLOWER", True)])
def test_a_batch_in_flight_at_its_deadline_holds_its_partition_until_its_request_ends(name, renews):
    box = accumulator()
    put(box, b"a", deadline=10)
    batch = only_batch(box)
    put(box, b"b", now=9)
    (outcome,) = box.expire(10)
    assert outcome.waiters == [b"a"] and box.expire(10) == []
    assert box.ready(10, leader_is(1)) == {}
    assert answered(box, batch, name, now=11) == []
    assert (box.identity is None) == renews
    box.identity = Identity(8, 0)
    assert content(only_batch(box, now=12)) == ((8, 0, 0) if renews else (7, 0, 1), [b"b"])


def test_everything_can_be_failed_at_once():
    box = accumulator()
    put(box, b"a")
    batch = only_batch(box)
    put(box, b"b")
    put(box, b"c", partition=1)
    assert sorted(each.waiters for each in box.fail_all(HUNG_UP)) == [[b"a"], [b"b"], [b"c"]]
    assert box.used_bytes == 0 and hung_up(box, batch) == []
    assert box.ready(100, leader_is(1)) == {}


def test_what_waits_can_be_failed_by_partition():
    box = accumulator()
    put(box, b"a", partition=0)
    put(box, b"b", partition=1)
    assert sorted(box.waiting_places()) == [("t", 0, False), ("t", 1, False)]
    (outcome,) = box.fail_waiting(HUNG_UP, [("t", 1)])
    assert outcome.waiters == [b"b"]
    assert only_batch(box).waiters == [b"a"]
    assert box.fail_waiting(HUNG_UP) == []


class Log(object):
    """A partition's leader: numbers are checked as Kafka does it, and a batch may be lost before or after."""

    def __init__(self):
        self.values, self.last = [], {}

    def take(self, batch):
        (producer_id, _, sequence), values = content(batch)
        following, known = self.last.get(producer_id, (0, None))
        if known == (sequence, values):
            return "DUPLICATE_SEQUENCE_NUMBER"
        if sequence != following:
            return "OUT_OF_ORDER_SEQUENCE_NUMBER"
        self.values += values
        self.last[producer_id] = sequence + len(values), (sequence, values)
        return "NONE"


STEPS = (
    "append", "append", "send", "send", "lose the request", "lose the answer", "refuse", "too large",
    "forget", "wait",
)  # fmt: skip


@settings(deadline=None, max_examples=200)
@given(strategies.lists(strategies.tuples(strategies.sampled_from(STEPS), strategies.integers(0, 2))))
def test_whatever_happens_each_acknowledged_record_is_in_the_log_once_and_in_order(steps):
    """Invariant: acknowledged records are in their log once, in the order of the calls; every record ends."""
    box = accumulator(batch_size=4)
    logs = {partition: Log() for partition in range(3)}
    acknowledged, ended, number, now, ids = {0: [], 1: [], 2: []}, [], 0, 0.0, 8

    def note(outcomes):
        for each in outcomes:
            ended.extend(each.waiters)
            if each.error is None:
                acknowledged[each.partition] += each.waiters

    for step, partition in steps + [("send", 0)] * 60:
        now += 0.5
        if step == "append":
            put(box, b"%d" % number, partition=partition, now=now, deadline=now + 20)
            number += 1
            continue
        if step == "wait":
            now += 15
        note(box.expire(now))
        if box.identity is None:
            box.identity, ids = Identity(ids, 0), ids + 1
        for batch in box.ready(now, leader_is(1)).get(1, []):
            if batch.partition != partition and step not in ("send", "wait"):
                outcome = logs[batch.partition].take(batch)
                note(box.answered(batch, answer(outcome), now))
            elif step == "lose the request":
                note(box.unanswered(batch, HUNG_UP, now))
            elif step == "lose the answer":
                logs[batch.partition].take(batch)
                note(box.unanswered(batch, HUNG_UP, now))
            elif step == "refuse":
                note(box.answered(batch, answer("NOT_LEADER_OR_FOLLOWER"), now))
            elif step == "too large" and not batch.in_doubt:
                note(box.answered(batch, answer("MESSAGE_TOO_LARGE"), now))
            elif step == "forget" and not batch.in_doubt:
                note(box.answered(batch, answer("UNKNOWN_PRODUCER_ID"), now))
            else:
                note(box.answered(batch, answer(logs[batch.partition].take(batch)), now))
        box.request_ended(1)
        box._in_flight.clear()
    assert sorted(map(int, ended)) == list(range(number))
    for partition, log in logs.items():
        kept = set(acknowledged[partition])
        assert [value for value in log.values if value in kept] == acknowledged[partition]
        assert log.values == sorted(log.values, key=int)
    assert box.used_bytes == 0
