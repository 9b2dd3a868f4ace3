"""A member of a group that Kafka's coordinator keeps: when it joins, what it owns, how it leaves.

Theory of operation
===================

A group's coordinator is one of the brokers. The members ask any broker which (FindCoordinator), and join
there (JoinGroup). The coordinator waits until all members of the group have joined, or until their rebalance
time-out, and begins a new generation: it answers all the joins at once, and to one of the members, the
leader, it names the others. The leader shares the partitions out and sends the result with its SyncGroup; the
others send an empty one; each gets its own share as the answer. From then on each member shows by heartbeats
that it is alive. Whenever somebody comes, goes or is missed, the answer to the heartbeat is
REBALANCE_IN_PROGRESS, and all join again.

Under an eager protocol a member gives up all that it owns before it joins. Under a cooperative one (KIP-429)
it keeps consuming; what the new assignment takes away it gives up afterwards, and then joins once more, so
that another member can get it.

The machine below does nothing itself. Whoever drives it hands it events with the time (``handle``), carries
out the actions that it gives back, in their order, and hands it the answers as events again. Between events
it does nothing but wait for ``deadline``, when it wants a Tick. A driver that was held up hands over the
answers that have come in first, then the Tick, then what the application wants. It gives the coordinator a
rebalance time-out that is a session longer than max_poll_interval, so that a member that hears late of a
rebalance is still in time. All times are in seconds, on any clock that doesn't go back.

What it does depends on its state and on what it knows.

TRANSITIONS (transitions.py) is all that there is to know of the states. An event is put into a word ("joined"
into "leads" or "follows", an error into what it means: verdict.py), and the table says where that word leads.
A word that the table doesn't have in a state is a fault in kiel, and raises KeyError. WHEN has the words that
need no event: "stable" is left by itself when the subscription has changed meanwhile, and nobody stays in
"rebalance announced" while the application waits for a batch anyway.

What it knows is data: the coordinator, member id and generation; the partitions that it owns (what the
application may be handed) and was assigned; the one request and the one piece of work that are outstanding;
and these times.

- When to send next. A state has one kind of request (SPEAKS), and at most one is on its way; without a
  coordinator it is FindCoordinator in its place. So a lost coordinator costs a member nothing: it stays in
  its state, with what it owns, and its heartbeats go on as soon as the coordinator is found. No kind of
  request is sent twice within LEAST_PAUSE.
- When the session ends: so long after the last answered heartbeat was *sent*. The coordinator counts from
  when it came in, which is later: until the one time this member may consume, after the other another one
  may. While a JoinGroup or SyncGroup is outstanding the coordinator keeps whoever waits for its answer, and
  answers no heartbeat on that connection. Then only this process can fail the session: an answer may have
  lain unread for as long as its loop was held. So the machine wants to be ticked meanwhile too, and takes the
  answer to be as old as the last Tick.
- By when the application has to be back, unless it is here, waiting for its next batch. An application that
  isn't back in time has left the group, and joins again when it comes.
- When each kind of request was sent last.

What is given up in order ("revoking", "parting", "withdrawing") is owned until Revoked says that it is
committed; heartbeats go on that long. What is lost is another's, perhaps, already: it is owned no more at
once, and nothing is waited for.

An answer counts only while it is waited for. Each action has a number, its attempt, which its answer has too:
what comes for an earlier one is dropped, in whatever state.
"""
import collections

from kiel.exc import RebalanceError
from kiel.groups import events, verdict
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
from kiel.groups.transitions import COMMITTING, SPEAKS, TRANSITIONS, TRYING
from kiel.protocol import errors

LEAST_PAUSE = 0.1  # seconds between two requests of a kind

# `cooperative` is whether all of the member's protocols are, `static` whether it has a group_instance_id;
# max_retries is a number of failures in a row; the back-offs are functions of the number of failures before
# (from 0), in seconds as all times: `retry_backoff` of a member that has lost its coordinator, or leaves,
# `rebalance_backoff` of one that tries to join.
Settings = collections.namedtuple(
    "Settings",
    "group topics cooperative static session_timeout heartbeat_interval max_poll_interval max_retries"
    " retry_backoff rebalance_backoff",
)


class Membership(object):
    """One member. Its public attributes are for reading.

    ``state``, ``deadline`` (when a Tick is due, None for never), ``outstanding`` (the actions whose answers are
    waited for), ``coordinator`` (a broker's id or None), ``member_id``, ``generation`` (-1 while not a member), and in
    that ``protocol`` and ``is_leader``; ``owned`` and ``assigned`` (sets of (topic, partition)), ``now`` (the time of
    the last event), ``heartbeat_answered_at``, ``error`` (what was told to the application last).
    """

    def __init__(self, settings):
        self.settings = settings
        self.state = "idle"
        self.coordinator = None
        self.member_id = ""
        self.generation = -1
        self.protocol = None
        self.is_leader = False
        self.owned = self.assigned = frozenset()
        self.heartbeat_answered_at = None
        self.error = None
        self.now = None
        self._topics = frozenset(settings.topics)
        self._changes = 0  # of the subscription, so far
        self._changes_joined = 0  # those that the last join knew of
        self._failures = 0  # in a row
        self._attempt = 0
        self._request = None  # the action that is outstanding
        self._task = None  # the Assign or Revoke that is outstanding
        self._send_at = None
        self._sent_at = {}  # {kind of request: when it was sent last}
        self._session_ends = None
        self._looked_at = None  # when all answers that had come in were known, while a join or sync is outstanding
        self._back_by = None  # None while the application is here
        self._actions = []

    def handle(self, now, event):
        """The list of actions that `event` at the time `now` calls for."""
        self.now, self._actions = now, []
        if self._awaits(event):
            _HANDLERS[type(event)](self, event)
            self._watch_session()
            self._settle()
        return self._actions

    @property
    def deadline(self):
        times = []
        if self._request is None and self.state in SPEAKS:
            times.append(self._due_at())
        if self._session_counts():
            times.append(self._session_end())
        if isinstance(self._request, (SendJoin, SendSync)):
            times.append(self._looked_at + self.settings.heartbeat_interval)
        if self._presence_counts():
            times.append(self._back_by)
        return min(times) if times else None

    @property
    def outstanding(self):
        return [action for action in (self._request, self._task) if action is not None]

    def _awaits(self, event):
        attempt = getattr(event, "attempt", None)
        return attempt is None or attempt in [action.attempt for action in self.outstanding]

    # Moving

    def _move(self, word):
        before, self.state = self.state, TRANSITIONS[self.state, word]
        if self.state == before:
            return
        if isinstance(self._request, (SendJoin, SendSync)):
            self._actions.append(Cancel(self._request.attempt))
            self._request = None
        if not (self.state in SPEAKS and isinstance(self._request, (FindCoordinator, SPEAKS[self.state]))):
            self._request = None
        if isinstance(self._task, Assign):
            self._task = None
        if self.state in _ENTER:
            _ENTER[self.state](self, before)

    def _settle(self):
        """Go where no event is needed, and then send or give up what is due."""
        while self.state in WHEN:
            word, condition = WHEN[self.state]
            if not condition(self):
                break
            self._move(word)
        if self._task is None and self.state in _GIVES_UP:
            self._task = self._act(Revoke, _GIVES_UP[self.state](self), False)
        if self._request is None and self.state in SPEAKS and self.now >= self._due_at():
            self._speak()

    def _act(self, kind, *details):
        self._attempt += 1
        action = kind(self._attempt, *details)
        self._actions.append(action)
        return action

    # What is due when

    def _kind(self):
        return FindCoordinator if self.coordinator is None else SPEAKS[self.state]

    def _due_at(self):
        last = self._sent_at.get(self._kind())
        return self._send_at if last is None else max(self._send_at, last + LEAST_PAUSE)

    def _speak(self):
        kind = self._kind()
        if kind is FindCoordinator:
            self._ask(kind)
        elif kind is SendHeartbeat:
            self._ask(kind, self.generation, self.member_id)
        else:
            self._ask(SendLeave, self.member_id)

    def _ask(self, kind, *details):
        self._request = self._act(kind, *details)
        self._sent_at[kind] = self._looked_at = self.now

    def _session_counts(self):
        return (self.state, "lost") in TRANSITIONS and (self.generation >= 0 or self.state in ("joining", "syncing"))

    def _session_end(self):
        if self.state in ("joining", "syncing"):
            return self._looked_at + self.settings.session_timeout
        return self._session_ends

    def _presence_counts(self):
        return (self.state, "stayed away") in TRANSITIONS and self._back_by is not None

    def _tick(self, event):
        self._watch_session()
        self._looked_at = self.now
        if self._presence_counts() and self.now >= self._back_by:
            text = "group %s: left, since the application hasn't come back for %g s (max_poll_interval_ms)"
            self._actions.append(Warn(text % (self.settings.group, self.settings.max_poll_interval)))
            self._move("stayed away")

    def _watch_session(self):
        if self._session_counts() and self.now >= self._session_end():
            self._expire()

    def _expire(self):
        self._lose("nothing was heard of the coordinator for %g s" % self.settings.session_timeout)
        self._move("lost")

    # The application

    def _start(self, event):
        self._back_by = self.now + self.settings.max_poll_interval
        self._move("start")

    def _application_back(self, event):
        self._back_by = None
        if (self.state, "application back") in TRANSITIONS:
            self._move("application back")
            if self.state == "fenced":
                self._actions.append(Tell(self.error))

    def _application_took(self, event):
        self._back_by = self.now + self.settings.max_poll_interval

    def _subscription_changed(self, event):
        self._topics = frozenset(event.topics)
        self._changes += 1

    def _leave(self, event):
        self._move("leave")

    # Joining

    def _coordinator_found(self, event):
        self._request = None
        self.coordinator = event.broker_id
        self._send_at = self.now
        self._move("coordinator found")

    def _may_join(self):
        return self.coordinator is not None and self._request is None and self.now >= self._due_at()

    def _enter_unjoined(self, before):
        self._send_at = self.now
        if before not in TRYING:
            self._failures = 0

    def _enter_joining(self, before):
        self._changes_joined = self._changes
        self._ask(SendJoin, self.generation, self.member_id, self.owned)

    def _joined(self, event):
        self._request = None
        self._session_ends = self._session_end()
        if self.now >= self._session_ends:
            return self._expire()
        self.member_id, self.generation, self.protocol = event.member_id, event.generation, event.protocol
        self.is_leader = event.leader == event.member_id
        self._send_at = self.now + self.settings.heartbeat_interval
        if self.is_leader and not event.skip_assignment:
            self._move("leads")
            self._task = self._act(Assign, event.protocol, event.members)
        else:
            self._move("follows")
            self._ask(SendSync, self.generation, self.member_id, {})

    def _assigned(self, event):
        self._task = None
        self._move("assigned")
        self._ask(SendSync, self.generation, self.member_id, event.assignments)

    def _synced(self, event):
        self._request = None
        self._session_ends = self._session_end()
        if self.now >= self._session_ends:
            return self._expire()
        self._failures = 0
        self._move("synced")
        self._send_at = self.now + self.settings.heartbeat_interval
        self.assigned = frozenset(event.partitions)
        self._actions.append(Adopt(self.assigned - self.owned, self.assigned & self.owned))
        self.owned |= self.assigned

    # Being a member

    def _heartbeat_answered(self, event):
        self._failures = 0
        self._renew()
        self._move("heartbeat answered")

    def _renew(self):
        """The session is renewed by the heartbeat that was outstanding, as of when it was sent."""
        sent, self._request = self._sent_at[SendHeartbeat], None
        self.heartbeat_answered_at = self.now
        self._session_ends = sent + self.settings.session_timeout
        self._send_at = sent + self.settings.heartbeat_interval

    def _has_to_join_again(self):
        return self._changes != self._changes_joined or self.owned != self.assigned

    def _to_give_up(self):
        """What a member may not keep when it joins."""
        if not self.settings.cooperative:
            return self.owned
        return frozenset(each for each in self.owned if each not in self.assigned or each[0] not in self._topics)

    def _everything(self):
        return self.owned

    def _may_give_up(self):
        return self._back_by is None or not self._to_give_up()

    def _has_given_up(self):
        return self._task is None and not _GIVES_UP[self.state](self)

    def _revoked(self, event):
        self.owned -= self._task.partitions
        self._task = None
        self._move("revoked")

    # Errors

    def _failed(self, event):
        error = event.error
        if self._task is not None and event.attempt == self._task.attempt:
            return self._react("retry" if verdict.word(error) == "retry" else "refused", error)
        request, self._request = self._request, None
        word = verdict.word(error)
        if word == "member id given":
            if isinstance(request, SendJoin) and event.member_id and not request.member_id:
                self.member_id = event.member_id
                self._move(word)
                return self._enter_joining("joining")
            word = "retry" if isinstance(request, SendJoin) else "refused"
        elif isinstance(request, FindCoordinator) and word != "retry":
            word = "refused"
        elif isinstance(request, SendHeartbeat) and word == "rebalance":
            self._request = request
            self._renew()
        if word == "retry" and verdict.reaction(error) == errors.FIND_COORDINATOR:
            self.coordinator = None
        self._react(word, error)

    def _commit_failed(self, event):
        if event.generation != self.generation or self.state not in COMMITTING:
            return
        word = verdict.word(event.error)
        if verdict.reaction(event.error) == errors.FIND_COORDINATOR:
            self.coordinator = None
            self._send_at = self.now
        elif word in ("rebalance", "lost", "fenced"):
            self._react(word, event.error)

    def _react(self, word, error):
        """Go where `word`, an error's, leads from here."""
        if word == "retry":
            self._try_again(error)
        elif self.state == "leaving":
            self._move("gone")
        elif word == "rebalance":
            self._move(word)
        elif word == "lost" or self.state in ("parting", "withdrawing"):
            self._lose(str(error))
            if verdict.reaction(error) == errors.REJOIN_AS_NEW:
                self.member_id = ""
            if self.state in TRYING:
                self._try_again(error)
            else:
                self._move("lost")
        else:
            self.error = error
            self._move(word)

    def _try_again(self, error):
        self._failures += 1
        if self._failures >= self.settings.max_retries and self.state in TRYING:
            self.error = RebalanceError(self.settings.group, self._failures, error)
            return self._move("exhausted")
        if self._failures >= self.settings.max_retries and self.state == "leaving":
            return self._move("gone")
        backoff = self.settings.rebalance_backoff if self.state in TRYING else self.settings.retry_backoff
        # Once, at first, at once: but not to a coordinator that asks for time.
        patient = self._failures > 1 or (self.coordinator is not None and verdict.word(error) == "retry")
        self._move("retry")
        self._send_at = self.now + (backoff(self._failures - 1) if patient else 0)

    def _lose(self, why):
        """Own nothing any more, without having given it up."""
        if self.generation >= 0:
            text = "group %s: no member of generation %d any more: %s" % (self.settings.group, self.generation, why)
            self._actions.append(Warn(text))
        self._drop()

    def _drop(self):
        if self.owned:
            self._act(Revoke, self.owned, True)
        self.owned = self.assigned = frozenset()
        self.generation, self.is_leader = -1, False
        self._task = None

    # Going

    def _is_back(self):
        return self._back_by is None

    def _is_unknown(self):
        """Nobody has to be told of its leaving: not a member, or a static one, whose place is kept for it (KIP-345)."""
        return not self.member_id or self.settings.static

    def _enter_leaving(self, before):
        self._drop()
        self._failures = 0
        self._send_at = self.now

    def _left(self, event):
        self._request = None
        self._move("gone")

    def _enter_left(self, before):
        self._drop()
        self.member_id = ""

    def _enter_away(self, before):
        self._drop()
        self._say_goodbye()

    def _enter_failed(self, before):
        self._drop()
        self._say_goodbye()
        self._actions.append(Tell(self.error))

    def _enter_fenced(self, before):
        self._drop()
        self.member_id = ""
        self._actions.append(Tell(self.error))

    def _say_goodbye(self):
        """Leave without waiting for an answer, so that the group needn't wait for the session's end."""
        if not self._is_unknown() and self.coordinator is not None:
            self._act(SendLeave, self.member_id)
        self.member_id = ""


# {state: (word, condition)}: where the condition holds, the word needs no event.
WHEN = {
    "unjoined": ("ready", Membership._may_join),
    "stable": ("rebalance", Membership._has_to_join_again),
    "rebalance announced": ("ready", Membership._may_give_up),
    "revoking": ("given up", Membership._has_given_up),
    "parting": ("given up", Membership._has_given_up),
    "withdrawing": ("given up", Membership._has_given_up),
    "leaving": ("gone", Membership._is_unknown),
    "away": ("application back", Membership._is_back),
}

# {state: what has to be given up in it}
_GIVES_UP = {
    "revoking": Membership._to_give_up,
    "parting": Membership._everything,
    "withdrawing": Membership._everything,
}

_ENTER = {
    "unjoined": Membership._enter_unjoined,
    "joining": Membership._enter_joining,
    "leaving": Membership._enter_leaving,
    "left": Membership._enter_left,
    "away": Membership._enter_away,
    "failed": Membership._enter_failed,
    "fenced": Membership._enter_fenced,
}

_HANDLERS = {
    events.Start: Membership._start,
    events.Leave: Membership._leave,
    events.SubscriptionChanged: Membership._subscription_changed,
    events.ApplicationBack: Membership._application_back,
    events.ApplicationTook: Membership._application_took,
    events.CoordinatorFound: Membership._coordinator_found,
    events.Joined: Membership._joined,
    events.Synced: Membership._synced,
    events.HeartbeatAnswered: Membership._heartbeat_answered,
    events.Left: Membership._left,
    events.Failed: Membership._failed,
    events.Assigned: Membership._assigned,
    events.Revoked: Membership._revoked,
    events.CommitFailed: Membership._commit_failed,
    events.Tick: Membership._tick,
}
