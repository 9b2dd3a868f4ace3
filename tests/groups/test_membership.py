"""Scripts of a member's life: at this time, this event; then it is in this state, and these are the actions."""
import pytest

from kiel.exc import (
    BrokerConnectionError,
    KielError,
    NoBrokersError,
    ProtocolError,
    RebalanceError,
    UnsupportedVersionError,
)
from kiel.groups.actions import (
    Adopt,
    Assign,
    Cancel,
    FindCoordinator,
    Revoke,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    Tell,
    Warn,
)
from kiel.groups.events import (
    ApplicationBack,
    ApplicationTook,
    Assigned,
    CommitFailed,
    CoordinatorFound,
    Failed,
    HeartbeatAnswered,
    Joined,
    Leave,
    Left,
    Revoked,
    Start,
    SubscriptionChanged,
    Synced,
    Tick,
)
from kiel.groups.membership import Membership, Settings
from kiel.groups.transitions import SPEAKS, TRANSITIONS
from kiel.protocol import errors

T0, T1, T2, U0 = ("t", 0), ("t", 1), ("t", 2), ("u", 0)
NOTHING = frozenset()


def these(*partitions):
    return frozenset(partitions)


def error(name):
    return errors.exception(errors.named(name).code)


GONE = BrokerConnectionError("b:9092", "read", "hung up")
MOVED, LOADING = error("NOT_COORDINATOR"), error("COORDINATOR_LOAD_IN_PROGRESS")
REBALANCE = error("REBALANCE_IN_PROGRESS")
UNKNOWN, ILLEGAL, FENCED = error("UNKNOWN_MEMBER_ID"), error("ILLEGAL_GENERATION"), error("FENCED_INSTANCE_ID")


def new(cooperative=False, static=False, topics=("t",), max_poll_interval=300):
    return Membership(
        Settings(
            group="g",
            topics=topics,
            cooperative=cooperative,
            static=static,
            session_timeout=10,
            heartbeat_interval=3,
            max_poll_interval=max_poll_interval,
            max_retries=3,
            retry_backoff=lambda number: [0.2, 0.4, 0.8, 1, 1, 1, 1][number],
            rebalance_backoff=lambda number: 2,
        )
    )


def play(machine, *script):
    for number, (now, event, state, expected) in enumerate(script):
        done = machine.handle(now, event)
        assert machine.state == state, "line %d: %s" % (number, done)
        assert _without_text(done) == expected, "line %d" % number
    return machine


def _without_text(done):
    return [Warn if isinstance(action, Warn) else action for action in done]


BEGINNING = (
    (0, Start(), "unjoined", [FindCoordinator(1)]),
    (0, CoordinatorFound(1, 7), "joining", [SendJoin(2, -1, "", NOTHING)]),
    (0, Joined(2, "a", 1, "z", "range", []), "syncing", [SendSync(3, 1, "a", {})]),
    (0, Synced(3, {T0, T1}), "stable", [Adopt(these(T0, T1), NOTHING)]),
)


def member(**settings):
    """One that is stable at the time 0, with t[0] and t[1]; its application isn't here; its next attempt is 4."""
    return play(new(**settings), *BEGINNING)


def in_state(state, **settings):
    """A machine in that state and the attempt that it waits for; where it can be so, it owns t[0] and t[1]."""
    machine = new(max_poll_interval=8 if state == "withdrawing" else 300, **settings)
    if state in ("unjoined", "joining", "syncing"):
        length = {"unjoined": 1, "joining": 2, "syncing": 3}[state]
        return play(machine, *BEGINNING[:length]), length
    if state == "assigning":
        play(machine, *BEGINNING[:2])
        play(machine, (0, Joined(2, "a", 1, "a", "range", ["a"]), "assigning", [Assign(3, "range", ["a"])]))
        return play(machine, (3, Tick(), "assigning", [SendHeartbeat(4, 1, "a")])), 4
    play(machine, *BEGINNING)
    play(machine, (3, Tick(), "stable", [SendHeartbeat(4, 1, "a")]))
    if state == "stable":
        return machine, 4
    if state == "withdrawing":
        play(machine, (8, Tick(), state, [Warn, Revoke(5, these(T0, T1), False)]))
        return machine, 4
    events = {"rebalance announced": [SubscriptionChanged(["t"])], "parting": [Leave()]}
    for event in events.get(state, [SubscriptionChanged(["t"]), ApplicationBack()]):
        machine.handle(3, event)
    assert machine.state == state
    return machine, 4


def test_a_follower_joins_beats_and_leaves():
    play(
        new(),
        *BEGINNING + (
            (2, Tick(), "stable", []),
            (3, Tick(), "stable", [SendHeartbeat(4, 1, "a")]),
            (3.5, HeartbeatAnswered(4), "stable", []),
            (6, Tick(), "stable", [SendHeartbeat(5, 1, "a")]),
            (6, HeartbeatAnswered(5), "stable", []),
            (7, Leave(), "parting", [Revoke(6, these(T0, T1), False)]),
            (7, Revoked(6), "leaving", [SendLeave(7, "a")]),
            (7, Left(7), "left", []),
            (8, Leave(), "left", []),
        )
    )


def test_the_leader_assigns_and_its_heartbeats_go_on_meanwhile():
    machine = play(
        new(),
        *BEGINNING[:2] + (
            (0, Joined(2, "a", 1, "a", "range", ["a", "b"]), "assigning", [Assign(3, "range", ["a", "b"])]),
            (3, Tick(), "assigning", [SendHeartbeat(4, 1, "a")]),
            # Older brokers answer so while they wait for the leader.
            (3, Failed(4, REBALANCE), "assigning", []),
            (6, Tick(), "assigning", [SendHeartbeat(5, 1, "a")]),
            (6, HeartbeatAnswered(5), "assigning", []),
            (7, Assigned(3, {"a": 1, "b": 2}), "syncing", [SendSync(6, 1, "a", {"a": 1, "b": 2})]),
            (7, Synced(6, {T0}), "stable", [Adopt(these(T0), NOTHING)]),
        )
    )
    assert machine.is_leader and machine.protocol == "range"
    assert (machine.member_id, machine.generation, machine.owned) == ("a", 1, {T0})


def test_a_leader_that_comes_back_with_nothing_changed_assigns_nothing():
    machine = play(
        new(static=True),
        *BEGINNING[:2] + (
            (0, Joined(2, "a", 1, "a", "range", ["a"], True), "syncing", [SendSync(3, 1, "a", {})]),
            (0, Synced(3, {T0}), "stable", [Adopt(these(T0), NOTHING)]),
        )
    )
    assert machine.is_leader


def test_an_assignor_that_fails_is_told_and_the_group_is_left_so_that_another_leads():
    failure = KielError("no")
    machine = in_state("assigning")[0]
    play(machine, (3, Failed(3, failure), "failed", [SendLeave(5, "a"), Tell(failure)]))
    machine = in_state("assigning")[0]
    play(machine, (3, Failed(3, NoBrokersError("no metadata")), "unjoined", []))


def test_a_member_id_that_is_given_is_joined_with_at_once():
    required = error("MEMBER_ID_REQUIRED")
    play(
        new(),
        *BEGINNING[:2] + (
            (0, Failed(2, required, "b"), "joining", [SendJoin(3, -1, "b", NOTHING)]),
            (0, Failed(3, required, "c"), "unjoined", []),
            (2, Tick(), "joining", [SendJoin(4, -1, "b", NOTHING)]),
        )
    )


# What an eager rebalance does


def test_a_rebalance_waits_for_the_application_with_heartbeats_going_on():
    play(
        member(),
        (3, Tick(), "stable", [SendHeartbeat(4, 1, "a")]),
        (3, Failed(4, REBALANCE), "rebalance announced", []),
        (6, Tick(), "rebalance announced", [SendHeartbeat(5, 1, "a")]),
        (6, Failed(5, REBALANCE), "rebalance announced", []),
        (9, Tick(), "rebalance announced", [SendHeartbeat(6, 1, "a")]),
        (9.5, ApplicationBack(), "revoking", [Revoke(7, these(T0, T1), False)]),
        (9.6, HeartbeatAnswered(6), "revoking", []),
        (12, Tick(), "revoking", [SendHeartbeat(8, 1, "a")]),
        (12, Failed(8, REBALANCE), "revoking", []),
        (12.5, Revoked(7), "joining", [SendJoin(9, 1, "a", NOTHING)]),
        (13, Joined(9, "a", 2, "z", "range", []), "syncing", [SendSync(10, 2, "a", {})]),
        (13, Synced(10, {T1, T2}), "stable", [Adopt(these(T1, T2), NOTHING)]),
    )


def test_a_rebalance_is_carried_out_at_once_while_the_application_waits():
    play(
        member(),
        (1, ApplicationBack(), "stable", []),
        (3, Tick(), "stable", [SendHeartbeat(4, 1, "a")]),
        (3, Failed(4, REBALANCE), "revoking", [Revoke(5, these(T0, T1), False)]),
        (3, Revoked(5), "joining", [SendJoin(6, 1, "a", NOTHING)]),
    )


def test_a_rebalance_that_begins_during_a_sync_joins_again_but_not_in_a_hurry():
    play(
        new(),
        *BEGINNING[:3] + (
            (0.02, Failed(3, REBALANCE), "unjoined", []),
            (0.1, Tick(), "joining", [SendJoin(4, 1, "a", NOTHING)]),
            (5, Failed(4, REBALANCE), "joining", [SendJoin(5, 1, "a", NOTHING)]),
        )
    )


def test_a_member_without_partitions_does_not_wait_for_the_application():
    play(
        new(),
        *BEGINNING[:3] + (
            (0, Synced(3, set()), "stable", [Adopt(NOTHING, NOTHING)]),
            (3, Tick(), "stable", [SendHeartbeat(4, 1, "a")]),
            (3, Failed(4, REBALANCE), "joining", [SendJoin(5, 1, "a", NOTHING)]),
        )
    )


# What a cooperative one does


def test_a_cooperative_member_keeps_what_it_has_and_gives_up_what_is_taken_afterwards():
    play(
        member(cooperative=True),
        (3, Tick(), "stable", [SendHeartbeat(4, 1, "a")]),
        (3, Failed(4, REBALANCE), "joining", [SendJoin(5, 1, "a", these(T0, T1))]),
        (4, Joined(5, "a", 2, "z", "coop", []), "syncing", [SendSync(6, 2, "a", {})]),
        (4, Synced(6, {T0, T2}), "rebalance announced", [Adopt(these(T2), these(T0))]),
        (5, ApplicationBack(), "revoking", [Revoke(7, these(T1), False)]),
        (5, Revoked(7), "joining", [SendJoin(8, 2, "a", these(T0, T2))]),
        (5, Joined(8, "a", 3, "z", "coop", []), "syncing", [SendSync(9, 3, "a", {})]),
        (5, Synced(9, {T0, T2}), "stable", [Adopt(NOTHING, these(T0, T2))]),
    )


def test_a_cooperative_member_loses_all_with_its_place():
    play(
        member(cooperative=True),
        (3, Tick(), "stable", [SendHeartbeat(4, 1, "a")]),
        (3, Failed(4, REBALANCE), "joining", [SendJoin(5, 1, "a", these(T0, T1))]),
        (4, Failed(5, UNKNOWN), "joining", [Warn, Revoke(6, these(T0, T1), True), SendJoin(7, -1, "", NOTHING)]),
    )


def test_what_a_cooperative_member_keeps_while_it_cannot_join_is_lost_at_the_end_of_its_session():
    play(
        member(cooperative=True),
        (3, Tick(), "stable", [SendHeartbeat(4, 1, "a")]),
        (3, Failed(4, REBALANCE), "joining", [SendJoin(5, 1, "a", these(T0, T1))]),
        (12, Failed(5, LOADING), "unjoined", []),
        (13, Tick(), "unjoined", [Warn, Revoke(6, these(T0, T1), True)]),
        (14, Tick(), "joining", [SendJoin(7, -1, "a", NOTHING)]),
    )


def test_a_topic_that_is_not_subscribed_any_more_is_given_up_before_joining():
    machine = play(new(cooperative=True, topics=("t", "u")), *BEGINNING[:3])
    play(
        machine,
        (0, Synced(3, {T0, U0}), "stable", [Adopt(these(T0, U0), NOTHING)]),
        (1, SubscriptionChanged(["t"]), "rebalance announced", []),
        (2, ApplicationBack(), "revoking", [Revoke(4, these(U0), False)]),
        (2, Revoked(4), "joining", [SendJoin(5, 1, "a", these(T0))]),
    )


# The coordinator

MEMBERS = ("stable", "rebalance announced", "revoking", "parting", "withdrawing")
JOINERS = ("joining", "syncing")


@pytest.mark.parametrize("state", MEMBERS)
@pytest.mark.parametrize("cause", [MOVED, error("COORDINATOR_NOT_AVAILABLE"), GONE], ids=["16", "15", "hung up"])
def test_a_member_that_has_lost_its_coordinator_looks_it_up_and_stays_what_it_is(state, cause):
    machine, attempt = in_state(state)
    now, before = machine.now, (machine.member_id, machine.generation, machine.owned)
    done = machine.handle(now, Failed(attempt, cause))
    assert [type(action) for action in done] == [FindCoordinator]
    find = done[0].attempt
    assert machine.handle(now + 0.1, Failed(find, error("COORDINATOR_NOT_AVAILABLE"))) == []
    assert machine.deadline == now + 0.1 + 0.4
    done = machine.handle(now + 0.5, Tick())
    assert [type(action) for action in done] == [FindCoordinator]
    done = machine.handle(now + 0.6, CoordinatorFound(done[0].attempt, 8))
    assert [type(action) for action in done] == [SendHeartbeat]
    assert (machine.state, machine.coordinator) == (state, 8)
    assert (machine.member_id, machine.generation, machine.owned) == before
    assert before[2] == {T0, T1}


@pytest.mark.parametrize("state", MEMBERS)
def test_a_member_whose_coordinator_is_loading_asks_the_same_one_again(state):
    machine, attempt = in_state(state)
    now = machine.now
    assert machine.handle(now, Failed(attempt, LOADING)) == []
    assert machine.deadline == now + 0.2
    done = machine.handle(now + 0.2, Tick())
    assert [type(action) for action in done] == [SendHeartbeat]
    assert (machine.state, machine.coordinator, machine.owned) == (state, 7, {T0, T1})


@pytest.mark.parametrize("state", JOINERS + ("assigning",))
@pytest.mark.parametrize("cause", [MOVED, GONE, ProtocolError("garbage")], ids=["16", "hung up", "garbage"])
def test_whoever_joins_and_loses_the_coordinator_looks_it_up_and_joins_again_under_its_name(state, cause):
    machine, attempt = in_state(state)
    done = machine.handle(5, Failed(attempt, cause))
    assert (machine.state, done) == ("unjoined", [FindCoordinator(attempt + 1)])
    done = machine.handle(5, CoordinatorFound(attempt + 1, 8))
    assert done == [SendJoin(attempt + 2, machine.generation, machine.member_id, NOTHING)]
    assert machine.member_id == ("" if state == "joining" else "a")


@pytest.mark.parametrize("state", JOINERS + ("assigning",))
def test_whoever_joins_a_coordinator_that_is_loading_waits_and_joins_it_again(state):
    machine, attempt = in_state(state)
    assert (machine.handle(5, Failed(attempt, LOADING)), machine.state, machine.deadline) == ([], "unjoined", 7)
    assert [type(action) for action in machine.handle(7, Tick())] == [SendJoin]


def test_look_ups_are_no_more_than_ten_a_second():
    machine, now, count = member(), 3.0, 0
    done = machine.handle(now, Tick())
    while now < 5:
        for action in done:
            if isinstance(action, FindCoordinator):
                count += 1
                answer = CoordinatorFound(action.attempt, 7)
            else:
                answer = Failed(action.attempt, MOVED)
            done = machine.handle(now, answer)
        if not done:
            now = machine.deadline
            done = machine.handle(now, Tick())
    assert 3 <= count <= 20


def test_nobody_who_can_be_asked_counts_as_a_failure_and_the_last_one_is_told():
    causes = [error("COORDINATOR_NOT_AVAILABLE"), NoBrokersError("none"), GONE]
    machine = play(
        new(),
        (0, Start(), "unjoined", [FindCoordinator(1)]),
        (0, Failed(1, causes[0]), "unjoined", []),
        (0.1, Tick(), "unjoined", [FindCoordinator(2)]),
        (0.2, Failed(2, causes[1]), "unjoined", []),
        (2.2, Tick(), "unjoined", [FindCoordinator(3)]),
    )
    (told,) = machine.handle(2.3, Failed(3, causes[2]))
    assert machine.state == "failed" and machine.deadline is None
    assert isinstance(told.error, RebalanceError) and told.error.cause is GONE and told.error.failures == 3
    play(
        machine,
        (2.3, ApplicationTook(), "failed", []),
        (3, ApplicationBack(), "unjoined", [FindCoordinator(4)]),
        (3, Failed(4, GONE), "unjoined", []),
    )


def test_failures_that_are_not_in_a_row_are_not_counted():
    machine = member()
    for time in (3, 13, 23):
        heartbeat = machine.handle(time, Tick())[-1]
        assert isinstance(heartbeat, SendHeartbeat)
        find = machine.handle(time, Failed(heartbeat.attempt, GONE))[0]
        machine.handle(time, CoordinatorFound(find.attempt, 7))
        beat = machine.handle(time + 0.1, Tick())[0]
        join = machine.handle(time + 0.1, Failed(beat.attempt, UNKNOWN))[-1]
        assert machine.handle(time + 1, Failed(join.attempt, LOADING)) == []
        join = machine.handle(time + 3, Tick())[0]
        sync = machine.handle(time + 3, Joined(join.attempt, "a", 1, "z", "range", []))[0]
        machine.handle(time + 7, Synced(sync.attempt, []))
        assert machine.state == "stable"


# Being thrown out


@pytest.mark.parametrize("state", ["stable", "rebalance announced", "revoking"])
@pytest.mark.parametrize("cause, name", [(UNKNOWN, ""), (ILLEGAL, "a")], ids=["unknown", "illegal"])
def test_a_member_whose_place_is_lost_owns_nothing_at_once_and_joins(state, cause, name):
    machine, attempt = in_state(state)
    done = machine.handle(4, Failed(attempt, cause))
    assert [type(action) for action in done] == [Warn, Revoke, SendJoin]
    assert done[1][1:] == (these(T0, T1), True)
    assert done[2][1:] == (-1, name, NOTHING)
    assert machine.owned == NOTHING


@pytest.mark.parametrize("state", ["stable", "rebalance announced", "revoking"])
def test_a_member_that_hears_nothing_for_a_session_gives_itself_up(state):
    machine, attempt = in_state(state)
    assert machine.deadline == 10
    done = machine.handle(10, Tick())
    assert [type(action) for action in done] == [Warn, Revoke, SendJoin]
    assert done[1][1:] == (these(T0, T1), True) and done[2][1:] == (-1, "a", NOTHING)
    assert machine.handle(10, HeartbeatAnswered(attempt)) == []


def test_a_session_is_counted_from_when_the_heartbeat_was_sent():
    play(
        member(),
        (3, Tick(), "stable", [SendHeartbeat(4, 1, "a")]),
        (9, HeartbeatAnswered(4), "stable", [SendHeartbeat(5, 1, "a")]),
        (12.9, Tick(), "stable", []),
        (13, Tick(), "joining", [Warn, Revoke(6, these(T0, T1), True), SendJoin(7, -1, "a", NOTHING)]),
    )


def test_an_answer_that_lay_unread_for_a_session_comes_too_late():
    play(
        new(),
        *BEGINNING[:3] + ((10, Synced(3, {T0}), "joining", [Warn, SendJoin(4, -1, "a", NOTHING)]),)
    )
    ticked = [(now, Tick(), "syncing", []) for now in (3, 6, 9)]
    play(new(), *BEGINNING[:3] + tuple(ticked) + ((10, Synced(3, {T0}), "stable", [Adopt(these(T0), NOTHING)]),))
    play(
        new(),
        *BEGINNING[:3] + ((10, Tick(), "joining", [Warn, Cancel(3), SendJoin(4, -1, "a", NOTHING)]),)
    )


@pytest.mark.parametrize("cause", [UNKNOWN, ILLEGAL])
@pytest.mark.parametrize("state", JOINERS)
def test_whoever_joins_and_is_unknown_joins_again(state, cause):
    machine, attempt = in_state(state)
    done = machine.handle(5, Failed(attempt, cause))
    name = machine.member_id
    assert done[-1] == SendJoin(attempt + 1, -1, name, NOTHING)
    assert name == ("a" if (state, cause) == ("syncing", ILLEGAL) else "")
    machine.handle(5, Failed(attempt + 1, UNKNOWN))
    assert (machine.state, machine.deadline) == ("unjoined", 7)


@pytest.mark.parametrize("state", ["joining", "syncing", "assigning", "stable", "rebalance announced", "revoking"])
def test_a_fenced_member_is_told_and_takes_nothing_back(state):
    machine, attempt = in_state(state, static=True)
    done = machine.handle(5, Failed(attempt, FENCED))
    assert done[-1] == Tell(FENCED) and machine.state == "fenced" and machine.owned == NOTHING
    assert not any(isinstance(action, SendLeave) for action in done)
    play(machine, (6, ApplicationTook(), "fenced", []), (7, ApplicationBack(), "fenced", [Tell(FENCED)]))
    play(machine, (8, Leave(), "left", []))


FATAL = [
    error(name)
    for name in (
        "GROUP_AUTHORIZATION_FAILED",
        "INCONSISTENT_GROUP_PROTOCOL",
        "INVALID_SESSION_TIMEOUT",
        "INVALID_GROUP_ID",
        "GROUP_MAX_SIZE_REACHED",
        "UNKNOWN_SERVER_ERROR",
    )
] + [UnsupportedVersionError("Kafka 0.9 is needed"), errors.exception(9999)]


@pytest.mark.parametrize(
    "state", ["unjoined", "joining", "syncing", "assigning", "stable", "rebalance announced", "revoking"]
)
@pytest.mark.parametrize("cause", FATAL, ids=lambda cause: getattr(cause, "name", "version"))
def test_what_no_trying_mends_is_told_at_once_and_tried_anew_by_the_next_call(state, cause):
    machine, attempt = in_state(state)
    owned, known = machine.owned, machine.member_id
    done = machine.handle(5, Failed(attempt, cause))
    assert done[-1] == Tell(cause) and machine.state == "failed" and machine.deadline is None
    assert [action[1:] for action in done if isinstance(action, Revoke)] == ([(owned, True)] if owned else [])
    assert [action[1:] for action in done if isinstance(action, SendLeave)] == ([(known,)] if known else [])
    done = machine.handle(6, ApplicationBack())
    assert [type(action) for action in done] == [FindCoordinator if state == "unjoined" else SendJoin]


# What a commit tells


@pytest.mark.parametrize(
    "cause, kinds, state",
    [
        (UNKNOWN, [Warn, Revoke, SendJoin], "joining"),
        (ILLEGAL, [Warn, Revoke, SendJoin], "joining"),
        (REBALANCE, [], "rebalance announced"),
        (FENCED, [Revoke, Tell], "fenced"),
        (MOVED, [FindCoordinator], "stable"),
        (LOADING, [], "stable"),
        (error("OFFSET_METADATA_TOO_LARGE"), [], "stable"),
    ],
)
def test_a_commit_tells_of_the_membership_too(cause, kinds, state):
    machine = member()
    assert [type(action) for action in machine.handle(1, CommitFailed(0, cause))] == []
    assert machine.state == "stable"
    assert [type(action) for action in machine.handle(1, CommitFailed(1, cause))] == kinds
    assert machine.state == state


# The application


def test_an_application_that_stays_away_has_left_and_joins_again_when_it_comes():
    machine, attempt = in_state("withdrawing")
    assert machine.owned == {T0, T1}
    play(machine, (8, Revoked(5), "away", [SendLeave(6, "a")]))
    assert machine.deadline is None and machine.owned == NOTHING
    play(
        machine,
        (9, Left(6), "away", []),
        (99, ApplicationBack(), "joining", [SendJoin(7, -1, "", NOTHING)]),
    )


def test_an_application_that_never_came_has_left_too():
    machine = new()
    machine.handle(0, Start())
    while machine.state == "unjoined":
        now = machine.deadline or 300
        machine.handle(now, Tick())
    assert (machine.state, now) == ("away", 300)


def test_a_static_member_says_nothing_when_it_goes_and_keeps_its_place():
    machine, _ = in_state("withdrawing", static=True)
    play(machine, (8, Revoked(5), "away", []))
    play(
        member(static=True),
        (1, Leave(), "parting", [Revoke(4, these(T0, T1), False)]),
        (1, Revoked(4), "left", []),
    )


def test_an_application_that_comes_back_while_it_is_being_withdrawn_is_joined_again_at_once():
    machine, _ = in_state("withdrawing")
    play(
        machine,
        (8, ApplicationBack(), "withdrawing", []),
        (8, Revoked(5), "joining", [SendLeave(6, "a"), SendJoin(7, -1, "", NOTHING)]),
    )


def test_taking_another_batch_begins_the_poll_interval_anew():
    machine = new()
    machine.handle(0, Start())
    for now in (0, 200, 400):
        machine.handle(now, ApplicationTook())
    machine.handle(600, Tick())
    assert machine.state == "unjoined"


@pytest.mark.parametrize("state", ["joining", "syncing", "assigning"])
def test_a_subscription_that_changes_while_it_joins_is_joined_with_afterwards(state):
    machine, _ = in_state(state)
    assert machine.handle(3, SubscriptionChanged(["t", "u"])) == [] and machine.state == state
    machine = play(new(), *BEGINNING[:3])
    play(
        machine,
        (0, SubscriptionChanged(["t", "u"]), "syncing", []),
        (0, Synced(3, {T0}), "rebalance announced", [Adopt(these(T0), NOTHING)]),
        (1, ApplicationBack(), "revoking", [Revoke(4, these(T0), False)]),
        (1, Revoked(4), "joining", [SendJoin(5, 1, "a", NOTHING)]),
        (1, Joined(5, "a", 2, "z", "range", []), "syncing", [SendSync(6, 2, "a", {})]),
        (1, Synced(6, {T0, U0}), "stable", [Adopt(these(T0, U0), NOTHING)]),
    )


# Leaving, and what comes late

GOING = {
    "unjoined": ("left", []),
    "joining": ("left", [Cancel]),
    "syncing": ("leaving", [Cancel, SendLeave]),
    "assigning": ("leaving", [SendLeave]),
    "stable": ("parting", [Revoke]),
    "rebalance announced": ("parting", [Revoke]),
    "revoking": ("parting", []),
    "withdrawing": ("parting", []),
}


@pytest.mark.parametrize("state", sorted(GOING))
def test_leaving_is_possible_in_every_state(state):
    machine, _ = in_state(state)
    done = machine.handle(machine.now, Leave())
    assert (machine.state, [type(action) for action in done]) == GOING[state]


def test_leaving_before_anything_and_after_everything():
    play(new(), (0, Leave(), "left", []))
    machine, attempt = in_state("stable")
    machine.handle(3, Failed(attempt, FATAL[0]))
    play(machine, (3, Leave(), "left", []))
    machine, _ = in_state("withdrawing")
    machine.handle(8, Revoked(5))
    play(machine, (400, Leave(), "left", []))


def test_leaving_while_some_is_given_up_gives_up_the_rest():
    machine = play(member(cooperative=True), (1, ApplicationBack(), "stable", []))
    play(
        machine,
        (1, SubscriptionChanged(["t"]), "joining", [SendJoin(4, 1, "a", these(T0, T1))]),
        (1, Joined(4, "a", 2, "z", "coop", []), "syncing", [SendSync(5, 2, "a", {})]),
        (1, Synced(5, {T0}), "revoking", [Adopt(NOTHING, these(T0)), Revoke(6, these(T1), False)]),
        (1, Leave(), "parting", []),
        (1, Revoked(6), "parting", [Revoke(7, these(T0), False)]),
        (1, Revoked(7), "leaving", [SendLeave(8, "a")]),
    )


def test_leaving_looks_a_lost_coordinator_up_and_does_not_wait_for_ever():
    machine, attempt = in_state("parting")
    play(
        machine,
        (4, Revoked(5), "leaving", [SendLeave(6, "a")]),
        (4, Failed(6, MOVED), "leaving", [FindCoordinator(7)]),
        (4, CoordinatorFound(7, 8), "leaving", []),
        (4.1, Tick(), "leaving", [SendLeave(8, "a")]),
        (4.1, Failed(8, GONE), "leaving", []),
        (4.5, Tick(), "leaving", [FindCoordinator(9)]),
        (4.5, Failed(9, GONE), "left", []),
    )
    machine, attempt = in_state("parting")
    play(machine, (4, Revoked(5), "leaving", [SendLeave(6, "a")]), (4, Failed(6, UNKNOWN), "left", []))


def test_a_member_that_is_thrown_out_while_it_leaves_has_nothing_to_leave():
    machine, attempt = in_state("parting")
    play(machine, (4, Failed(attempt, UNKNOWN), "left", [Warn, Revoke(6, these(T0, T1), True)]))
    machine, attempt = in_state("parting")
    machine.handle(4, Failed(attempt, FATAL[0]))
    assert machine.state == "leaving"
    machine, attempt = in_state("withdrawing")
    machine.handle(machine.now, Failed(attempt, ILLEGAL))
    assert machine.state == "away"


@pytest.mark.parametrize("state", sorted(GOING))
def test_answers_of_earlier_attempts_are_dropped(state):
    machine, attempt = in_state(state)
    before = machine.state, machine.deadline, machine.owned
    waited_for = [action.attempt for action in machine.outstanding]
    for number in set(range(1, attempt)) - set(waited_for):
        for event in (
            CoordinatorFound(number, 1),
            Joined(number, "x", 9, "x", "range", []),
            Synced(number, {T2}),
            Assigned(number, {}),
            Revoked(number),
            Left(number),
            Failed(number, FENCED),
        ):
            assert machine.handle(machine.now, event) == []
    assert (machine.state, machine.deadline, machine.owned) == before


def test_an_answer_of_the_wrong_kind_is_a_fault():
    with pytest.raises(KeyError):
        in_state("joining")[0].handle(0, Left(2))
    with pytest.raises(KeyError):
        member().handle(1, Start())


def test_the_table_names_every_state_once_and_each_can_be_reached():
    states = set(state for state, _ in TRANSITIONS)
    assert set(TRANSITIONS.values()) == states - {"idle"}
    assert set(SPEAKS) < states
