"""What happens to a member of a group: each is handed to ``Membership.handle(now, event)``.

An answer has the ``attempt`` of the action that it answers. One that isn't waited for any more is dropped.
"""
import collections


def _event(name, fields="", defaults=()):
    kind = collections.namedtuple(name, fields)
    kind.__new__.__defaults__ = defaults
    return kind


# What the application and the client want
Start = _event("Start")
Leave = _event("Leave")  # for good, from whatever state
SubscriptionChanged = _event("SubscriptionChanged", "topics")  # all topics now; also when only their partitions changed
ApplicationBack = _event("ApplicationBack")  # a call for the next batch has come, and no batch is in its hands
ApplicationTook = _event("ApplicationTook")  # a call has ended: with a batch, with an empty list or with an error

# Answers of the coordinator, and of those who know it
CoordinatorFound = _event("CoordinatorFound", "attempt broker_id")
Joined = _event("Joined", "attempt member_id generation leader protocol members skip_assignment", (False,))
Synced = _event("Synced", "attempt partitions")  # the set of (topic, partition) that is this member's
HeartbeatAnswered = _event("HeartbeatAnswered", "attempt")
Left = _event("Left", "attempt")
# Any request, or Assign, that went wrong: a KielError. `member_id` is what a join's answer has there.
Failed = _event("Failed", "attempt error member_id", ("",))

# Answers of this process
Assigned = _event("Assigned", "attempt assignments")  # handed on to SendSync as it is
Revoked = _event("Revoked", "attempt")  # committed, and the application's callback is through

CommitFailed = _event("CommitFailed", "generation error")  # a BrokerError; the generation that the commit was sent with
Tick = _event("Tick")  # the machine's deadline has come
