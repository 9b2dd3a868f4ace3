"""What a member of a group does: carries out the machine's actions, and hands it what comes of them.

The machine (kiel.groups.membership) decides, on events alone. Here are its requests, on a connection to the
coordinator that nothing else uses, its timer, and the leader's work. What concerns the application goes to the
consumer.
"""
import collections
import logging

from tornado import gen

from kiel import futures
from kiel.clients import sharing
from kiel.exc import AllocationError, BrokerConnectionError, KielError, ProtocolError
from kiel.groups import actions, events
from kiel.groups.membership import Membership
from kiel.protocol import errors
from kiel.protocol.coordinator import GROUP, GroupCoordinatorRequest
from kiel.protocol.heartbeat import HeartbeatRequest
from kiel.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kiel.protocol.leave_group import LeaveGroupRequest, MemberIdentity
from kiel.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

log = logging.getLogger(__name__)

# Its connection: a fetch that waits for records never holds up a heartbeat.
LANE = "group"

PROTOCOL_TYPE = u"consumer"

# librdkafka's mock cluster refuses the SyncGroup of a follower that comes after the leader's, with this error.
# (To Kafka the order is all the same.) So the leader takes a moment; who comes too late all the same joins again.
FOLLOWERS_FIRST_SECONDS = 0.01
_TOO_LATE = errors.named("INVALID_REQUEST").code
_REBALANCE = errors.named("REBALANCE_IN_PROGRESS").code

# A loop that looks at the clock so much too late was held: answers may have come in that nobody has read.
HELD_SECONDS = 0.25
# So many turns of the loop bring an answer from the socket to the machine.
TURNS = 30


class GroupMember(object):
    """:param client: the consumer; :param settings: of the machine; :param protocols: in order of preference

    ``machine`` is for reading; ``changed`` rings after each event.
    """

    def __init__(self, client, settings, protocols, session_timeout_ms, rebalance_timeout_ms):
        self.machine = Membership(settings)
        self.changed = futures.Bell()
        self._client = client
        self._protocols = collections.OrderedDict((protocol.name, protocol) for protocol in protocols)
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._inbox = collections.deque()
        self._is_handling = False
        self._catching_up = False
        self._postponed = []
        self._timer = None
        self._under_way = {}  # {attempt: broker id}
        self._asked = {}  # {id of a request: its action}
        self._previous = None, -1  # what it was given last, and the generation then
        self._shared = {}  # {topic: its partitions} that the leader has shared out, or goes by

    # -- events

    def post(self, event):
        """Hand the machine an event, and carry out what it says."""
        self._inbox.append(event)
        if self._is_handling or self._client.cluster.stopped:
            return
        self._is_handling = True
        try:
            while self._inbox:
                for action in self.machine.handle(self._client.loop.time(), self._inbox.popleft()):
                    _DO[type(action)](self, action)
        finally:
            self._is_handling = False
        self._set_timer()
        self.changed.ring()
        self._client.membership_changed()

    def want(self, event):
        """Post what the application wants. When the loop was held, the answers that lie there come first."""
        if self._is_late() or self._catching_up:
            self._postponed.append(event)
            self._catch_up()
        else:
            self.post(event)

    def stop(self):
        """Look at the clock no more."""
        if self._timer is not None:
            self._client.loop.remove_timeout(self._timer)
            self._timer = None

    def _is_late(self):
        deadline = self.machine.deadline
        return deadline is not None and self._client.loop.time() > deadline + HELD_SECONDS

    def _set_timer(self):
        self.stop()
        deadline = self.machine.deadline
        if deadline is not None and not self._catching_up and not self._client.cluster.stopped:
            self._timer = self._client.loop.call_at(deadline, self._look_at_clock)

    def _look_at_clock(self):
        self._timer = None
        if self._is_late():
            self._catch_up()
        else:
            self.post(events.Tick())

    def _catch_up(self):
        if not self._catching_up:
            self._catching_up = True
            self._client.spawn(self._read_first())

    @gen.coroutine
    def _read_first(self):
        for _ in range(TURNS):
            yield gen.moment
        self._catching_up = False
        postponed, self._postponed = self._postponed, []
        for event in [events.Tick()] + postponed:
            self.post(event)

    # -- the coordinator

    def _find(self, action):
        self._client.spawn(self._find_coordinator(action))

    @gen.coroutine
    def _find_coordinator(self, action):
        """Ask one broker after another who the coordinator is."""
        error = None
        for broker_id in self._client.cluster.by_readiness():
            request = GroupCoordinatorRequest(coordinator_keys=[self._client.group_name], key_type=GROUP)
            result = yield self._send(broker_id, request, self._answer_ms)
            if not isinstance(result, BrokerConnectionError):
                break
            error = result
        else:
            result = yield self._reach_any(error)
        found = getattr(result, "node_id", None)
        if found is not None and found not in self._client.cluster.brokers:
            yield self._client.cluster.heal()
        if found is not None and found != broker_id:
            self._client.cluster.disconnect(broker_id, LANE)
        if found is None:
            self.post(events.Failed(action.attempt, result))
        else:
            self.post(events.CoordinatorFound(action.attempt, found))

    @gen.coroutine
    def _reach_any(self, error):
        """No known broker answers: see whether there are others by now."""
        try:
            yield self._client.cluster.refresh()
        except KielError as failure:
            error = failure
        raise gen.Return(error or BrokerConnectionError("any broker", "resolve", "none is known"))

    def read_coordinator(self, response):
        """The Coordinator of a GroupCoordinatorResponse, or the BrokerError."""
        found = response.coordinator(self._client.group_name)
        return self._error(found.error_code) if found.error_code else found

    def _error(self, code):
        return errors.exception(code, about="group %s" % self._client.group_name)

    # -- requests

    @property
    def _answer_ms(self):
        """How long the coordinator may take for an answer that it needn't wait for itself."""
        least = max(self._client.heartbeat_interval_ms, self._session_timeout_ms / 2.0)
        return min(self._client.request_timeout_ms, least)

    def _join(self, action):
        self._ask(action, self._build_join, self._rebalance_timeout_ms + self._client.request_timeout_ms)

    def _build_join(self, action):
        previous, generation = self._previous
        asked = []
        for protocol in self._protocols.values():
            try:
                told = protocol.join_metadata(self._client.subscribed, sorted(action.owned), generation, previous)
            except Exception as error:
                raise AllocationError("metadata of protocol %s failed: %r" % (protocol.name, error))
            asked.append(JoinGroupRequestProtocol(name=protocol.name, metadata=told))
        return JoinGroupRequest(
            group_id=self._client.group_name,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=action.member_id,
            group_instance_id=self._client.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=asked,
        )

    def _sync(self, action):
        self._ask(action, self._build_sync, self._rebalance_timeout_ms + self._client.request_timeout_ms)

    def _build_sync(self, action):
        return SyncGroupRequest(
            group_id=self._client.group_name,
            generation_id=action.generation,
            member_id=action.member_id,
            group_instance_id=self._client.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.machine.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=given)
                for member_id, given in action.assignments.items()
            ],
        )

    def _beat(self, action):
        self._ask(action, self._build_heartbeat, self._answer_ms)

    def _build_heartbeat(self, action):
        return HeartbeatRequest(
            group_id=self._client.group_name,
            generation_id=action.generation,
            member_id=action.member_id,
            group_instance_id=self._client.group_instance_id,
        )

    def _leave(self, action):
        self._ask(action, self._build_leave, self._answer_ms)

    def _build_leave(self, action):
        member = MemberIdentity(
            member_id=action.member_id, group_instance_id=self._client.group_instance_id, reason=u"the consumer leaves"
        )
        return LeaveGroupRequest(group_id=self._client.group_name, members=[member])

    def _ask(self, action, build, timeout_ms):
        self._under_way[action.attempt] = self.machine.coordinator
        self._client.spawn(self._request(action, build, timeout_ms))

    @gen.coroutine
    def _request(self, action, build, timeout_ms):
        broker_id = self._under_way[action.attempt]
        try:
            request = build(action)
            # The connection first: what is cancelled while it opens must not be sent any more.
            yield self._client.cluster.connection(broker_id, LANE)
            if action.attempt not in self._under_way:
                return
            self._asked[id(request)] = action
            try:
                result = yield self._send(broker_id, request, timeout_ms)
            finally:
                del self._asked[id(request)]
        except KielError as error:
            result = error
            self._client.spawn(self._client.cluster.heal())
        finally:
            self._under_way.pop(action.attempt, None)
        if isinstance(result, KielError):
            self.post(events.Failed(action.attempt, result))

    @gen.coroutine
    def _send(self, broker_id, request, timeout_ms):
        try:
            results = yield self._client.send({broker_id: request}, timeout_ms, LANE)
        except KielError as error:
            raise gen.Return(error)
        raise gen.Return(results[broker_id])

    def _cancel(self, action):
        broker_id = self._under_way.pop(action.attempt, None)
        if broker_id is not None:
            self._client.cluster.disconnect(broker_id, LANE)

    def read(self, response):
        """Tell the machine what the coordinator has answered to one of its requests."""
        action = self._asked[id(response.request)]
        self.post(_READ[type(action)](self, action, response))

    def _read_join(self, action, response):
        if response.error_code:
            return events.Failed(action.attempt, self._error(response.error_code), response.member_id)
        if response.protocol_name not in self._protocols:
            return events.Failed(action.attempt, ProtocolError("protocol %r was chosen" % response.protocol_name))
        if response.skip_assignment:
            self._go_by(sharing.topics_of(self._read_members(response.protocol_name, response.members)))
        return events.Joined(
            action.attempt,
            response.member_id,
            response.generation_id,
            response.leader,
            response.protocol_name,
            response.members,
            response.skip_assignment,
        )

    def _read_sync(self, action, response):
        code = response.error_code
        if code:
            return events.Failed(action.attempt, self._error(_REBALANCE if code == _TOO_LATE else code))
        try:
            given = self._protocols[self.machine.protocol].read_assignment(response.assignment)
        except ProtocolError as error:
            return events.Failed(action.attempt, error)
        partitions = frozenset((topic, partition) for topic in given for partition in given[topic])
        self._previous = sorted(partitions), action.generation
        return events.Synced(action.attempt, partitions)

    def _read_heartbeat(self, action, response):
        if response.error_code:
            return events.Failed(action.attempt, self._error(response.error_code))
        return events.HeartbeatAnswered(action.attempt)

    def _read_leave(self, action, response):
        code = response.member_error(action.member_id)
        return events.Failed(action.attempt, self._error(code)) if code else events.Left(action.attempt)

    # -- the leader's work

    def _assign(self, action):
        self._client.spawn(self._share_out(action))

    @gen.coroutine
    def _share_out(self, action):
        protocol = self._protocols[action.protocol]
        try:
            members = self._read_members(action.protocol, action.members)
            topics = sharing.topics_of(members)
            yield self._learn_of(topics)
            partitions = self._go_by(topics)
            given = sharing.share(protocol, members, partitions)
            if len(members) > 1:
                yield self._client.wait(FOLLOWERS_FIRST_SECONDS)
        except KielError as error:
            self.post(events.Failed(action.attempt, error))
        else:
            self.post(events.Assigned(action.attempt, given))

    def _read_members(self, protocol_name, members):
        """{member id: Subscription} in the order in which the coordinator has them."""
        read = self._protocols[protocol_name].read_metadata
        return collections.OrderedDict(
            (each.member_id, read(each.metadata, each.group_instance_id)) for each in members
        )

    @gen.coroutine
    def _learn_of(self, topics):
        cluster = self._client.cluster
        for topic in topics:
            cluster.track(topic)
        if any(topic not in cluster.topics for topic in topics):
            yield cluster.refresh()

    def _go_by(self, topics):
        """{topic: its partitions}: what is there of the group's topics now, for any change to be noticed."""
        cluster = self._client.cluster
        for topic in set(self._shared) - set(topics) - set(self._client.subscribed):
            cluster.forget(topic)
        for topic in topics:
            cluster.track(topic)
        self._shared = {topic: sorted(cluster.topics.get(topic, ())) for topic in topics}
        return self._shared

    def notice_metadata(self):
        """Whether the leader's shares don't cover the group's topics as they are by now; it is said once."""
        if not self.machine.is_leader or not self._shared:
            return False
        before = self._shared
        return self._go_by(list(before)) != before

    @property
    def group_topics(self):
        """The topics that matter to the leader."""
        return list(self._shared) if self.machine.is_leader else []

    # -- the application

    def _revoke(self, action):
        self._client.revoke(action)

    def _adopt(self, action):
        self._client.adopt(action)

    def _tell(self, action):
        self._client.tell(action.error)

    def _warn(self, action):
        log.warning("%s", action.text)


_DO = {
    actions.FindCoordinator: GroupMember._find,
    actions.SendJoin: GroupMember._join,
    actions.SendSync: GroupMember._sync,
    actions.SendHeartbeat: GroupMember._beat,
    actions.SendLeave: GroupMember._leave,
    actions.Cancel: GroupMember._cancel,
    actions.Assign: GroupMember._assign,
    actions.Revoke: GroupMember._revoke,
    actions.Adopt: GroupMember._adopt,
    actions.Tell: GroupMember._tell,
    actions.Warn: GroupMember._warn,
}

_READ = {
    actions.SendJoin: GroupMember._read_join,
    actions.SendSync: GroupMember._read_sync,
    actions.SendHeartbeat: GroupMember._read_heartbeat,
    actions.SendLeave: GroupMember._read_leave,
}
