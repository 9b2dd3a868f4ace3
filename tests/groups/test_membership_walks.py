"""Seeded random walks: whatever is answered in whatever order, and whatever the application does meanwhile,

- there are no heartbeats, and nothing is owned, while the machine is not a member
- something is outstanding or there is a deadline, until it is left, failed, fenced or away
- a partition is adopted only while it isn't owned, and each given up once
- every word met is in the table, and every row of the table is met
"""
import random

import pytest

from kiel.exc import BrokerConnectionError, UnsupportedVersionError
from kiel.groups import actions, events, membership
from kiel.groups.membership import Membership, Settings
from kiel.groups.transitions import SPEAKS, TRANSITIONS
from kiel.protocol import errors

RESTING = ("idle", "left", "failed", "fenced", "away")
ANSWERED = (
    actions.FindCoordinator,
    actions.SendJoin,
    actions.SendSync,
    actions.SendHeartbeat,
    actions.SendLeave,
    actions.Assign,
)
CODES = [row.code for row in errors.ROWS if row.code] + [9999]
LIKELY = ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "REBALANCE_IN_PROGRESS"] * 2
LIKELY += ["UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "FENCED_INSTANCE_ID"]


class Walk(object):
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.now, self.met, self.pending, self.owned = 0.0, set(), [], set()
        self.machine = Membership(
            Settings(
                group="g",
                topics=["t"],
                cooperative=seed % 2 == 1,
                static=seed % 5 == 0,
                session_timeout=10.0,
                heartbeat_interval=3.0,
                max_poll_interval=self.random.choice([4.0, 30.0]),
                max_retries=3,
                retry_backoff=lambda number: 0.1,
                rebalance_backoff=lambda number: 2.0,
            )
        )
        self._watch(self.machine)

    def _watch(self, machine):
        """Notes the rows of the table that are used, by the table itself."""
        met = self.met

        class Table(dict):
            def __getitem__(self, row):
                met.add(row)
                return dict.__getitem__(self, row)

        self.table = Table(TRANSITIONS)

    def handle(self, event):
        for action in self.machine.handle(self.now, event):
            self.look(action)
        machine = self.machine
        assert self.owned == machine.owned
        if machine.generation < 0:
            assert not machine.owned
        if machine.state not in RESTING:
            assert machine.deadline is not None or machine.outstanding, machine.state
        else:
            assert machine.deadline is None

    def look(self, action):
        machine = self.machine
        if isinstance(action, actions.SendHeartbeat):
            assert action.member_id and action.generation >= 0
            assert SPEAKS[machine.state] is actions.SendHeartbeat
        elif isinstance(action, actions.Adopt):
            assert not action.added & self.owned and action.kept <= self.owned
            self.owned |= action.added
        elif isinstance(action, actions.Revoke):
            assert action.partitions and action.partitions <= self.owned
            if action.lost:
                self.owned -= action.partitions
                assert not self.owned
        if isinstance(action, ANSWERED) or isinstance(action, actions.Revoke) and not action.lost:
            self.pending.append(action)

    def step(self):
        """Answer something, be it late or wrong, or let the application or time do something."""
        choice = self.random.random()
        if choice < 0.45 and self.pending:
            newest = self.random.random() < 0.7
            action = self.pending.pop() if newest else self.pending.pop(self.random.randrange(len(self.pending)))
            self.now += self.random.uniform(0, 0.5)
            if isinstance(action, actions.Revoke):
                if action in self.machine.outstanding:
                    self.owned -= action.partitions
                return self.handle(events.Revoked(action.attempt))
            return self.handle(self.answer(action))
        if choice < 0.75:
            due = self.machine.deadline
            self.now = max(self.now, due if due is not None else self.now + self.random.uniform(0, 3))
            return self.handle(events.Tick())
        if choice < 0.84:
            return self.handle(events.ApplicationBack())
        if choice < 0.90:
            return self.handle(events.ApplicationTook())
        if choice < 0.94:
            return self.handle(events.SubscriptionChanged(self.random.choice([["t"], ["t", "u"], ["u"]])))
        if choice < 0.98:
            return self.handle(events.CommitFailed(self.machine.generation, self.error()))
        if choice < 0.985:
            return self.handle(events.Leave())
        self.now += self.random.uniform(5, 15)

    def error(self):
        choice = self.random.random()
        if choice < 0.3:
            return BrokerConnectionError("b:9092", "read", "gone")
        if choice < 0.35:
            return UnsupportedVersionError("too old")
        if choice < 0.9:
            return errors.exception(errors.named(self.random.choice(LIKELY)).code)
        return errors.exception(self.random.choice(CODES))

    def answer(self, action):
        if self.random.random() < 0.25:
            return events.Failed(action.attempt, self.error())
        if isinstance(action, actions.FindCoordinator):
            return events.CoordinatorFound(action.attempt, self.random.randrange(3))
        if isinstance(action, actions.SendJoin):
            if not action.member_id and self.random.random() < 0.8:
                required = errors.exception(errors.named("MEMBER_ID_REQUIRED").code)
                return events.Failed(action.attempt, required, "m%d" % action.attempt)
            name = action.member_id or "m%d" % action.attempt
            leader, skip = self.random.choice([name, "other"]), self.random.random() < 0.1
            return events.Joined(action.attempt, name, action.generation + 1, leader, "range", [(name, b"")], skip)
        if isinstance(action, actions.Assign):
            return events.Assigned(action.attempt, {})
        if isinstance(action, actions.SendSync):
            owned = set((topic, number) for topic in "tu" for number in range(4) if self.random.random() < 0.5)
            return events.Synced(action.attempt, owned)
        if isinstance(action, actions.SendHeartbeat):
            return events.HeartbeatAnswered(action.attempt)
        return events.Left(action.attempt)


def walk(seed, monkeypatch, steps=400):
    one = Walk(seed)
    monkeypatch.setattr(membership, "TRANSITIONS", one.table)
    if seed % 10:
        one.handle(events.Start())
    for _ in range(steps):
        if one.machine.state == "idle":
            one.handle(events.Leave())
        one.step()
    return one.met


@pytest.mark.parametrize("seed", range(20))
def test_walks_hold_the_invariants(seed, monkeypatch):
    assert walk(seed, monkeypatch)


def test_every_row_of_the_table_is_met(monkeypatch):
    met = set()
    for seed in range(100, 4000):
        met |= walk(seed, monkeypatch, steps=100)
        if met == set(TRANSITIONS):
            break
    assert set(TRANSITIONS) - met == set()
