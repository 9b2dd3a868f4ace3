"""ManagedConsumer on the embedded cluster, which forms groups and fails as it is told to."""
import re

import pytest
from tornado import gen

from kiel import GroupMembershipProtocol, ManagedConsumer, RangeProtocol
from kiel.exc import (
    AllocationError,
    AuthorizationError,
    ClosedError,
    ConfigurationError,
    RebalanceError,
    UsageError,
)
from tests.support.consuming import Writer
from tests.support.embedded import embedded_cluster
from tests.support.loop import on_loop
from tests.support.managing import App, member_of, places
from tests.support.waiting import failure, until

pytestmark = pytest.mark.embedded

# The embedded cluster ends a rebalance a second before the members' sessions would end.
SHORT = dict(session_timeout_ms=2000)


@pytest.fixture
def cluster():
    with embedded_cluster() as cluster:
        cluster.create_topic("events", 2)
        cluster.track_requests()
        yield cluster


@pytest.fixture
def writer(cluster):
    with Writer(cluster) as writer:
        yield writer


def count(cluster, api):
    return len(cluster.requests(api))


@gen.coroutine
def handled(consumer, topic, number):
    """The next `number` values, which are still in the application's hands afterwards."""
    found = []
    while len(found) < number:
        found += yield consumer.consume(topic)
    raise gen.Return(found)


# What is committed, and when


@on_loop()
def test_what_is_acknowledged_is_committed_and_nothing_else(cluster, writer):
    writer.write("events", [1, 2, 3])
    consumer = yield member_of(cluster, "group", ["events"], **SHORT)
    assert (yield handled(consumer, "events", 3)) == [1, 2, 3]
    yield gen.sleep(0.3)
    assert count(cluster, "offset_commit") == 0
    # Asking for the next batch says that this one is done; its commit doesn't hold up the call.
    asked = consumer.consume("events")
    yield until(lambda: count(cluster, "offset_commit") == 1)
    assert not asked.done()
    assert (yield consumer.committed("events")) == {0: 3, 1: None}
    assert (yield asked) == []
    yield consumer.close()
    assert count(cluster, "offset_commit") == 1


@on_loop()
def test_commits_are_no_closer_than_the_interval(cluster, writer):
    consumer = yield member_of(cluster, "group", ["events"], auto_commit_interval_ms=400, **SHORT)
    yield until(lambda: consumer.allocation)
    for number in range(20):
        writer.write("events", [number])
        assert (yield handled(consumer, "events", 1)) == [number]
    consumer.acknowledge()
    yield until(lambda: not consumer._group_offsets.commits.pending)
    times = [request.timestamp for request in cluster.requests("offset_commit")]
    assert min(later - time for time, later in zip(times, times[1:])) > 390
    yield consumer.close()
    assert (yield committed_by_another(cluster)) == {0: 20, 1: None}


@gen.coroutine
def committed_by_another(cluster, group="group"):
    consumer = yield member_of(cluster, group, ["events"], **SHORT)
    yield until(lambda: consumer.coordinator_id is not None)
    found = yield consumer.committed("events")
    yield consumer.close()
    raise gen.Return(found)


@pytest.mark.parametrize("acknowledge, expected", [(False, None), (True, 3)])
@on_loop()
def test_close(cluster, writer, acknowledge, expected):
    writer.write("events", [1, 2, 3])
    consumer = yield member_of(cluster, "group", ["events"], **SHORT)
    yield handled(consumer, "events", 3)
    yield consumer.close(acknowledge=acknowledge)
    assert count(cluster, "leave_group") == 1
    assert (yield committed_by_another(cluster)) == {0: expected, 1: None}
    with pytest.raises(ClosedError):
        consumer.consume("events")


@on_loop()
def test_without_autocommit_nothing_is_committed_unasked(cluster, writer):
    writer.write("events", [1])
    consumer = yield member_of(cluster, "group", ["events"], autocommit=False, **SHORT)
    yield handled(consumer, "events", 1)
    assert (yield consumer.consume("events")) == []
    yield consumer.close()
    assert count(cluster, "offset_commit") == 0


@pytest.mark.parametrize(
    "error",
    ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "REQUEST_TIMED_OUT", "DISCONNECT"],
)
@on_loop()
def test_a_commit_that_fails_for_a_while(cluster, writer, error):
    writer.write("events", [1])
    consumer = yield member_of(cluster, "group", ["events"], **SHORT)
    yield handled(consumer, "events", 1)
    generation = consumer.health()["generation"]
    cluster.push_errors("offset_commit", [cluster.DISCONNECT if error == "DISCONNECT" else error] * 2)
    consumer.acknowledge()
    yield until(lambda: not consumer._group_offsets.commits.pending and count(cluster, "offset_commit") == 3, 5)
    yield until(lambda: consumer.coordinator_id is not None)
    assert (yield consumer.committed("events", [0])) == {0: 1}
    assert consumer.health()["generation"] == generation and consumer.allocation == {"events": [0, 1]}
    yield consumer.close()


@on_loop()
def test_a_commit_that_is_refused_is_tried_again_with_the_next(cluster, writer, logbook):
    writer.write("events", [1])
    consumer = yield member_of(cluster, "group", ["events"], **SHORT)
    yield handled(consumer, "events", 1)
    cluster.push_errors("offset_commit", ["TOPIC_AUTHORIZATION_FAILED"])
    assert (yield consumer.consume("events")) == []
    (text,) = logbook.expect("TOPIC_AUTHORIZATION_FAILED")
    assert "group group: offset 1 of events[0]" in text
    writer.write("events", [2], partition=1)
    yield handled(consumer, "events", 1)
    yield consumer.close(acknowledge=True)
    assert (yield committed_by_another(cluster)) == {0: 1, 1: 1}


@on_loop()
def test_a_commit_that_is_asked_for_and_refused(cluster, writer):
    writer.write("events", [1])
    consumer = yield member_of(cluster, "group", ["events"], autocommit=False, **SHORT)
    yield handled(consumer, "events", 1)
    consumer.acknowledge()
    cluster.push_errors("offset_commit", ["GROUP_AUTHORIZATION_FAILED"])
    error = yield failure(consumer.commit_offsets())
    assert isinstance(error, AuthorizationError)
    cluster.push_errors("offset_commit", ["OFFSET_METADATA_TOO_LARGE"])
    yield consumer.commit_offsets(metadata="so long")
    assert (yield consumer.committed("events")) == {0: 1, 1: None}
    yield consumer.close()


# Joining


@pytest.mark.parametrize("api", ["find_coordinator", "join_group", "sync_group", "offset_fetch"])
@pytest.mark.parametrize(
    "error", ["COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "DISCONNECT"]
)
@on_loop()
def test_what_passes(cluster, writer, logbook, api, error):
    writer.write("events", [1])
    cluster.push_errors(api, [cluster.DISCONNECT if error == "DISCONNECT" else error] * 2)
    consumer = yield member_of(cluster, "group", ["events"], **SHORT)
    assert (yield handled(consumer, "events", 1)) == [1]
    yield consumer.close()


@pytest.mark.parametrize("error", ["REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID"])
@pytest.mark.parametrize("api", ["heartbeat", "sync_group", "offset_commit"])
@on_loop()
def test_what_makes_it_join_again(cluster, writer, logbook, api, error):
    writer.write("events", [1])
    consumer = yield member_of(cluster, "group", ["events"], **SHORT)
    if api == "sync_group":
        cluster.push_errors(api, [error])
    app = App(consumer, "events")
    yield until(lambda: app.handled, 5)
    joins = count(cluster, "join_group")
    if api != "sync_group":
        cluster.push_errors(api, [error])
        writer.write("events", [2])
        yield until(lambda: count(cluster, "join_group") > joins, 5)
        yield until(lambda: app.consumer.health()["state"] == "stable" and len(app.share) == 2, 5)
    writer.write("events", [3])
    yield until(lambda: 3 in app.values, 5)
    logbook.allow("no member of generation")
    yield app.stop()
    assert (yield committed_by_another(cluster))[0] == app.handled[-1].offset + 1


@pytest.mark.parametrize(
    "error", ["GROUP_AUTHORIZATION_FAILED", "INVALID_SESSION_TIMEOUT", "INCONSISTENT_GROUP_PROTOCOL"]
)
@on_loop()
def test_what_is_told_at_once(cluster, writer, error):
    writer.write("events", [1])
    cluster.push_errors("join_group", [error])
    consumer = yield member_of(cluster, "group", ["events"], **SHORT)
    told = yield failure(handled(consumer, "events", 1))
    assert told.name == error and "group group" in str(told)
    # The next call tries anew.
    assert (yield handled(consumer, "events", 1)) == [1]
    yield consumer.close()


@on_loop()
def test_too_many_failures(cluster, writer):
    writer.write("events", [1])
    cluster.push_errors("join_group", ["COORDINATOR_LOAD_IN_PROGRESS"] * 3)
    consumer = yield member_of(
        cluster, "group", ["events"], rebalance_max_retries=3, **dict(SHORT, rebalance_backoff_ms=20)
    )
    error = yield failure(handled(consumer, "events", 1))
    assert isinstance(error, RebalanceError) and "COORDINATOR_LOAD_IN_PROGRESS" in str(error)
    assert (yield handled(consumer, "events", 1)) == [1]
    yield consumer.close()


class Careless(GroupMembershipProtocol):
    name = "careless"

    def __init__(self, give):
        self.give = give

    def assign(self, members, partitions):
        return self.give(list(members)[0])


@pytest.mark.parametrize(
    "give, text",
    [
        (lambda member: {member: {"events": [0]}}, r"events\[1\] \(left out\)"),
        (lambda member: {member: {"events": [0, 1, 1]}}, r"events\[1\] \(given out twice\)"),
        (lambda member: {member: {"events": [0, 1, 2]}}, r"events\[2\] \(to the wrong member"),
        (lambda member: {"nobody": {"events": [0, 1]}}, r"events\[0\] \(to the wrong member"),
        (lambda member: 1 // 0, "ZeroDivisionError"),
    ],
)
@on_loop()
def test_a_protocol_that_shares_out_badly(cluster, give, text):
    consumer = yield member_of(cluster, "group", ["events"], membership_protocol=Careless(give), **SHORT)
    error = yield failure(handled(consumer, "events", 1))
    assert isinstance(error, AllocationError) and re.search(text, str(error))
    yield consumer.close()


@on_loop()
def test_two_members(cluster, writer):
    first = App((yield member_of(cluster, "group", ["events"], **SHORT)), "events")
    yield until(lambda: first.share == places("events", 2), 5)
    second = App((yield member_of(cluster, "group", ["events"], **SHORT)), "events")
    yield until(lambda: len(first.share) == len(second.share) == 1, 10)
    for number in range(10):
        writer.write("events", [number], number % 2)
    yield until(lambda: len(first.handled) + len(second.handled) == 10, 5)
    assert sorted(first.values + second.values) == list(range(10))
    yield first.stop()
    yield until(lambda: second.share == places("events", 2), 10)
    yield second.stop()


@on_loop()
def test_heartbeats_go_on_while_a_batch_is_handled(cluster, writer):
    writer.write("events", [1])
    consumer = yield member_of(cluster, "group", ["events"], **SHORT)
    yield handled(consumer, "events", 1)
    joins, beats = count(cluster, "join_group"), count(cluster, "heartbeat")
    yield gen.sleep(2.5)
    assert count(cluster, "join_group") == joins and count(cluster, "heartbeat") - beats >= 8
    assert consumer.health()["heartbeat_age_ms"] < 1000
    yield consumer.close()


# Calls


@on_loop()
def test_a_member_without_a_partition_waits_and_does_not_spin(cluster, writer):
    first = App((yield member_of(cluster, "group", ["events"], **SHORT)), "events")
    apps = [first]
    for _ in range(2):
        apps.append(App((yield member_of(cluster, "group", ["events"], **SHORT)), "events"))
    yield until(lambda: sorted(len(app.share) for app in apps) == [0, 1, 1], 15)
    (idle,) = [app for app in apps if not app.share]
    times = [when for when, batch in idle.batches]
    assert min(later - when for when, later in zip(times, times[1:])) > 0.25
    yield [app.stop() for app in apps]


@on_loop()
def test_any_topic(cluster, writer):
    cluster.create_topic("others", 1)
    writer.write("events", [1, 2])
    writer.write("others", [3])
    consumer = yield member_of(cluster, "group", ["events", "others"], **SHORT)
    app = App(consumer, None)
    yield until(lambda: sorted(app.values) == [1, 2, 3], 5)
    assert all(len({record.topic for record in batch}) <= 1 for _, batch in app.batches)
    asked = consumer.consume_records("others")
    with pytest.raises(UsageError, match="under way"):
        consumer.consume_records()
    assert (yield asked) == []
    yield app.stop()
    assert consumer.acknowledged == {"events": {}, "others": {}}


@on_loop()
def test_a_topic_that_is_not_subscribed(cluster):
    consumer = yield member_of(cluster, "group", ["events"], **SHORT)
    with pytest.raises(UsageError, match="others"):
        consumer.consume("others")
    with pytest.raises(ConfigurationError, match="auto_offset_reset"):
        consumer.consume("events", start=0)
    yield until(lambda: consumer.allocation)
    yield consumer.close()


@on_loop()
def test_before_it_is_connected(cluster):
    consumer = ManagedConsumer(cluster.brokers, "group", ["events"])
    with pytest.raises(UsageError, match="connect"):
        consumer.consume("events")
    assert consumer.coordinator_id is None and consumer.group_name == "group"
    yield consumer.close()


@pytest.mark.parametrize(
    "bad",
    [
        dict(group=""),
        dict(group=None),
        dict(topics="events"),
        dict(topics=[]),
        dict(topics=[1]),
        dict(membership_protocol=int),
        dict(membership_protocol=[]),
        dict(membership_protocol=[RangeProtocol, RangeProtocol()]),
        dict(membership_protocol=GroupMembershipProtocol),
        dict(heartbeat_interval_ms=30000),
        dict(session_timeout_ms=0),
        dict(max_poll_interval_ms=None),
        dict(rebalance_max_retries=0),
        dict(auto_offset_reset="first"),
        dict(group_instance_id=""),
        dict(pre_rebalance_callback=1),
        dict(post_rebalance_callback="x"),
    ],
)
def test_settings_that_can_not_be_right(bad):
    with pytest.raises(ConfigurationError, match=list(bad)[0].rstrip("s")):
        ManagedConsumer("localhost", **dict(dict(group="group", topics=["events"]), **bad))
