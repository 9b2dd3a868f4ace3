"""A coordinator and the members of a group, simulated in virtual time: nothing waits, and chance comes from one seed.

The members' part of it is kiel's: Process drives a Membership as a client does, with an application, a network that
delays and breaks, and a death now and then. The coordinator follows Kafka's.
"""
import heapq
import itertools
import random

from kiel.exc import BrokerConnectionError
from kiel.groups import events
from kiel.groups.membership import Membership, Settings
from kiel.protocol import errors

SESSION, HEARTBEAT, MAX_POLL = 6.0, 2.0, 20.0
REBALANCE = MAX_POLL + SESSION  # a member that is told of a rebalance late may still be in time


def refusal(name):
    return errors.exception(errors.named(name).code)


class World(object):
    """Time, chance, a topic's partitions, the coordinator and all processes."""

    def __init__(self, seed, cooperative, partitions=6):
        self.random = random.Random(seed)
        self.now = 0.0
        self.cooperative = cooperative
        self.partitions = frozenset(("t", number) for number in range(partitions))
        self.coordinator = Coordinator(self)
        self.processes = []
        self.steps = 0
        self.strict = True  # no partition may have two owners
        self.slow = True  # whether applications stay away too long now and then
        self._agenda = []
        self._numbers = itertools.count()

    def at(self, delay, function, *arguments):
        heapq.heappush(self._agenda, (self.now + delay, next(self._numbers), function, arguments))

    def run(self, seconds):
        end = self.now + seconds
        while self._agenda and self._agenda[0][0] <= end:
            self.now, _, function, arguments = heapq.heappop(self._agenda)
            function(*arguments)
            self.steps += 1
            self.check()
        self.now = end

    def start(self, instance=None):
        process = Process(self, instance)
        self.processes.append(process)
        process.begin()
        return process

    def living(self):
        return [process for process in self.processes if process.alive]

    def owners(self):
        """{partition: the processes that may consume it now}; who is stalled consumes nothing."""
        owners = dict((partition, []) for partition in self.partitions)
        for process in self.living():
            if not process.stalled:
                for partition in process.machine.owned:
                    owners[partition].append(process)
        return owners

    def check(self):
        for partition, owners in self.owners().items():
            assert len(owners) <= 1 or not self.strict, "%s has %d owners at %s" % (partition, len(owners), self.now)
        for process in self.living():
            machine = process.machine
            assert machine.generation >= 0 or not machine.owned
            process.watch()


class Process(object):
    """A client and its application: `instance` makes it a static member."""

    def __init__(self, world, instance):
        self.world, self.instance = world, instance
        self.alive, self.stalled = True, False
        self.tell = self.watch = lambda *error: None  # for tests that look on
        self.machine = Membership(
            Settings(
                group="g",
                topics=["t"],
                cooperative=world.cooperative,
                static=instance is not None,
                session_timeout=SESSION,
                heartbeat_interval=HEARTBEAT,
                max_poll_interval=MAX_POLL,
                max_retries=5,
                retry_backoff=lambda number: min(1, 0.1 * 2 ** number),
                rebalance_backoff=lambda number: 2.0,
            )
        )
        self._connection = set()  # the attempts that wait on it
        self._missed = []  # what came while it was stalled
        self._ticking = None

    def begin(self):
        self.handle(events.Start())
        self.world.at(0.01, self.come)

    def handle(self, event):
        if not self.alive:
            return
        if self.stalled:
            self._missed.append(event)
            return
        for action in self.machine.handle(self.world.now, event):
            getattr(self, "_" + type(action).__name__)(action)
        due = self.machine.deadline
        if due is not None and due != self._ticking:
            self._ticking = due
            self.world.at(max(0, due - self.world.now), self._tick, due)

    def _tick(self, due):
        if due == self._ticking and self.alive and not self.stalled:
            self._ticking = None
            self.handle(events.Tick())

    # What befalls it

    def die(self):
        self.alive = False

    def stall(self, seconds):
        """The loop is held: nothing is handled, and nothing consumed."""
        self.stalled = True
        self.world.at(seconds, self._wake)

    def _wake(self):
        self.stalled, missed, self._missed = False, self._missed, []
        answers = [event for event in missed if hasattr(event, "attempt")]
        others = [event for event in missed if not hasattr(event, "attempt")]
        for event in answers + [events.Tick()] + others:
            self.handle(event)

    def disconnect(self):
        """What is on its way is lost, and that is noticed a while later."""
        broken, self._connection = self._connection, set()
        delay = self.world.random.uniform(0, 2)
        for attempt in broken:
            self.world.at(delay, self.handle, events.Failed(attempt, BrokerConnectionError("b:9092", "read", "gone")))

    def leave(self):
        self.handle(events.Leave())

    def subscribe(self):
        self.handle(events.SubscriptionChanged(["t"]))

    # The application

    def come(self):
        if self.machine.state != "left":
            self.handle(events.ApplicationBack())
            self.world.at(self.world.random.uniform(0.01, 1), self._take)

    def _take(self):
        self.handle(events.ApplicationTook())
        slow = self.world.slow and self.world.random.random() < 0.02
        self.world.at(MAX_POLL + 5 if slow else self.world.random.expovariate(1), self.come)

    # Actions

    def _send(self, action, function, *details):
        """Ask the coordinator over this connection; an answer on a connection that broke meanwhile is lost."""
        connection = self._connection
        connection.add(action.attempt)

        def arrive():
            if action.attempt in connection and connection is self._connection:
                function(*(details + (answer,)))

        def answer(event):
            self.world.at(self.world.random.uniform(0.001, 0.02), deliver, event)

        def deliver(event):
            if action.attempt in connection and connection is self._connection:
                connection.discard(action.attempt)
                self.handle(event)

        self.world.at(self.world.random.uniform(0.001, 0.02), arrive)

    def _FindCoordinator(self, action):
        self._send(action, self.world.coordinator.find, action)

    def _SendJoin(self, action):
        self._send(action, self.world.coordinator.join, action, self.instance)

    def _SendSync(self, action):
        self._send(action, self.world.coordinator.sync, action, self.instance)

    def _SendHeartbeat(self, action):
        assert self.machine.member_id and self.machine.generation >= 0
        self._send(action, self.world.coordinator.heartbeat, action, self.instance)

    def _SendLeave(self, action):
        self._send(action, self.world.coordinator.leave, action)

    def _Cancel(self, action):
        self._connection = set()

    def _Assign(self, action):
        self.world.at(0.005, self.handle, events.Assigned(action.attempt, self.assign(dict(action.members))))

    def assign(self, claims):
        """In turn; what a cooperative member still has goes to nobody else in this generation."""
        holders = dict((partition, member) for member, owned in claims.items() for partition in owned)
        shares = dict((member, set()) for member in claims)
        members = sorted(claims)
        for number, partition in enumerate(sorted(self.world.partitions)):
            member = members[number % len(members)]
            if holders.get(partition, member) == member:
                shares[member].add(partition)
        return shares

    def _Revoke(self, action):
        if not action.lost:
            self.world.at(self.world.random.uniform(0, 0.5), self.handle, events.Revoked(action.attempt))

    def _Adopt(self, action):
        assert not action.added & action.kept

    def _Tell(self, action):
        self.tell(action.error)

    def _Warn(self, action):
        pass


class _Member(object):
    def __init__(self, instance):
        self.instance = instance
        self.owned = frozenset()
        self.expires = None
        self.joining = self.syncing = None  # how to answer


class Coordinator(object):
    """The group, as Kafka's keeps it: empty, preparing (joins come in), completing (the leader assigns) or stable."""

    def __init__(self, world):
        self.world = world
        self.state, self.generation = "empty", 0
        self.members, self.leader, self.shares = {}, None, {}
        self.broker, self.missing, self.loading = 1, 0, 0  # when a successor is there, and has loaded the group
        self._numbers = itertools.count(1)
        self._written = (0, {}, {})
        self._ends = None

    def move(self, missing, loading):
        """Another broker takes over, with what was written of the last stable generation."""
        for member in self.members.values():
            for answer, attempt in filter(None, (member.joining, member.syncing)):
                answer(events.Failed(attempt, refusal("NOT_COORDINATOR")))
        self.broker += 1
        self.missing, self.loading = self.world.now + missing, self.world.now + missing + loading
        self.generation, instances, self.shares = self._written
        self.members = dict((member, _Member(instance)) for member, instance in instances.items())
        self.state = "stable" if self.members else "empty"
        for member in self.members.values():
            self._renew(member, self.loading)

    def _elsewhere(self, action, answer):
        name = None
        if self.world.now < self.missing:
            name = "NOT_COORDINATOR"
        elif self.world.now < self.loading:
            name = "COORDINATOR_LOAD_IN_PROGRESS"
        if name is not None:
            answer(events.Failed(action.attempt, refusal(name)))
        return name

    def find(self, action, answer):
        if self.world.now < self.missing:
            return answer(events.Failed(action.attempt, refusal("COORDINATOR_NOT_AVAILABLE")))
        answer(events.CoordinatorFound(action.attempt, self.broker))

    def join(self, action, instance, answer):
        if self._elsewhere(action, answer):
            return
        name = action.member_id
        if instance is not None and not name:
            name = self._replace(instance)
        elif not name:
            name = "m%d" % next(self._numbers)
            self.members[name] = _Member(None)
            self._renew(self.members[name], self.world.now)
            return answer(events.Failed(action.attempt, refusal("MEMBER_ID_REQUIRED"), name))
        member = self._known(action, name, instance, answer)
        if member is not None:
            member.owned, member.joining, member.syncing = action.owned, (answer, action.attempt), None
            self._prepare()
            self._complete_if_all_are_there()

    def _replace(self, instance):
        name = "%s-%d" % (instance, next(self._numbers))
        for before, member in list(self.members.items()):
            if member.instance == instance:
                del self.members[before]
        self.members[name] = _Member(instance)
        return name

    def _known(self, action, name, instance, answer):
        member = self.members.get(name)
        if member is None:
            taken = instance is not None and any(each.instance == instance for each in self.members.values())
            error = refusal("FENCED_INSTANCE_ID" if taken else "UNKNOWN_MEMBER_ID")
            answer(events.Failed(action.attempt, error))
        return member

    def _prepare(self):
        if self.state != "preparing":
            for member in self.members.values():
                if member.syncing:
                    answer, attempt = member.syncing
                    member.syncing = None
                    answer(events.Failed(attempt, refusal("REBALANCE_IN_PROGRESS")))
                    self._renew(member, self.world.now)
            self.state, self._ends = "preparing", self.world.now + REBALANCE
            self.world.at(REBALANCE, self._end, self._ends)

    def _end(self, ends):
        if self.state == "preparing" and ends == self._ends:
            self.members = dict((name, member) for name, member in self.members.items() if member.joining)
            self._complete_if_all_are_there()

    def _complete_if_all_are_there(self):
        if self.state != "preparing":
            return
        if not self.members:
            self.state = "empty"
        elif all(member.joining for member in self.members.values()):
            self.generation += 1
            self.state, self.leader, self.shares = "completing", min(self.members), {}
            claims = [(name, member.owned) for name, member in sorted(self.members.items())]
            for name, member in self.members.items():
                answer, attempt = member.joining
                member.joining = None
                self._renew(member, self.world.now)
                seen = claims if name == self.leader else []
                answer(events.Joined(attempt, name, self.generation, self.leader, "range", seen))

    def _current(self, action, instance, answer):
        if self._elsewhere(action, answer):
            return None
        member = self._known(action, action.member_id, instance, answer)
        if member is not None and action.generation != self.generation:
            answer(events.Failed(action.attempt, refusal("ILLEGAL_GENERATION")))
            return None
        return member

    def sync(self, action, instance, answer):
        member = self._current(action, instance, answer)
        if member is None:
            return
        if self.state == "preparing":
            return answer(events.Failed(action.attempt, refusal("REBALANCE_IN_PROGRESS")))
        member.syncing = (answer, action.attempt)
        if self.state == "completing" and action.member_id == self.leader:
            self.state, self.shares = "stable", action.assignments
            instances = dict((name, each.instance) for name, each in self.members.items())
            self._written = (self.generation, instances, self.shares)
        if self.state == "stable":
            for name, each in self.members.items():
                if each.syncing:
                    (answer, attempt), each.syncing = each.syncing, None
                    self._renew(each, self.world.now)
                    answer(events.Synced(attempt, self.shares[name]))

    def heartbeat(self, action, instance, answer):
        member = self._current(action, instance, answer)
        if member is not None:
            self._renew(member, self.world.now)
            if self.state == "preparing":
                return answer(events.Failed(action.attempt, refusal("REBALANCE_IN_PROGRESS")))
            answer(events.HeartbeatAnswered(action.attempt))

    def leave(self, action, answer):
        if not self._elsewhere(action, answer):
            self._remove(action.member_id)
            answer(events.Left(action.attempt))

    def _renew(self, member, now):
        member.expires = now + SESSION
        self.world.at(member.expires - self.world.now, self._expire, member, member.expires)

    def _expire(self, member, expires):
        if member.expires == expires and not member.joining and not member.syncing:
            for name, each in list(self.members.items()):
                if each is member:
                    self._remove(name)

    def _remove(self, name):
        if self.members.pop(name, None) is not None:
            if self.state in ("stable", "completing"):
                self._prepare()
            self._complete_if_all_are_there()
