"""The states of a member of a group, and all the ways between them. membership.py says how they are gone."""
from kiel.groups.actions import SendHeartbeat, SendJoin, SendLeave, SendSync

# {(state, word for what happened): next state}
TRANSITIONS = {
    # Nothing has begun.
    ("idle", "start"): "unjoined",
    ("idle", "leave"): "left",
    # It wants to join, but has no coordinator yet, or waits before it tries again.
    ("unjoined", "coordinator found"): "unjoined",
    ("unjoined", "ready"): "joining",
    ("unjoined", "retry"): "unjoined",
    ("unjoined", "lost"): "unjoined",
    ("unjoined", "exhausted"): "failed",
    ("unjoined", "refused"): "failed",
    ("unjoined", "stayed away"): "withdrawing",
    ("unjoined", "leave"): "parting",
    # It waits for the coordinator, who waits for all members.
    ("joining", "member id given"): "joining",
    ("joining", "leads"): "assigning",
    ("joining", "follows"): "syncing",
    ("joining", "rebalance"): "unjoined",
    ("joining", "retry"): "unjoined",
    ("joining", "lost"): "unjoined",
    ("joining", "exhausted"): "failed",
    ("joining", "refused"): "failed",
    ("joining", "fenced"): "fenced",
    ("joining", "stayed away"): "withdrawing",
    ("joining", "leave"): "parting",
    # It is the leader, and shares the partitions out. Older brokers answer its heartbeats with "rebalance" meanwhile.
    ("assigning", "assigned"): "syncing",
    ("assigning", "heartbeat answered"): "assigning",
    ("assigning", "rebalance"): "assigning",
    ("assigning", "retry"): "unjoined",
    ("assigning", "lost"): "unjoined",
    ("assigning", "exhausted"): "failed",
    ("assigning", "refused"): "failed",
    ("assigning", "fenced"): "fenced",
    ("assigning", "stayed away"): "withdrawing",
    ("assigning", "leave"): "parting",
    # It waits for its share.
    ("syncing", "synced"): "stable",
    ("syncing", "rebalance"): "unjoined",
    ("syncing", "retry"): "unjoined",
    ("syncing", "lost"): "unjoined",
    ("syncing", "exhausted"): "failed",
    ("syncing", "refused"): "failed",
    ("syncing", "fenced"): "fenced",
    ("syncing", "stayed away"): "withdrawing",
    ("syncing", "leave"): "parting",
    # It consumes.
    ("stable", "heartbeat answered"): "stable",
    ("stable", "coordinator found"): "stable",
    ("stable", "retry"): "stable",
    ("stable", "rebalance"): "rebalance announced",
    ("stable", "lost"): "unjoined",
    ("stable", "refused"): "failed",
    ("stable", "fenced"): "fenced",
    ("stable", "stayed away"): "withdrawing",
    ("stable", "leave"): "parting",
    # It has to join again, but the application still has a batch of what is to be given up before.
    ("rebalance announced", "ready"): "revoking",
    ("rebalance announced", "heartbeat answered"): "rebalance announced",
    ("rebalance announced", "coordinator found"): "rebalance announced",
    ("rebalance announced", "retry"): "rebalance announced",
    ("rebalance announced", "rebalance"): "rebalance announced",
    ("rebalance announced", "lost"): "unjoined",
    ("rebalance announced", "refused"): "failed",
    ("rebalance announced", "fenced"): "fenced",
    ("rebalance announced", "stayed away"): "withdrawing",
    ("rebalance announced", "leave"): "parting",
    # It commits and gives up what it may not keep, and then joins.
    ("revoking", "revoked"): "revoking",
    ("revoking", "given up"): "unjoined",
    ("revoking", "heartbeat answered"): "revoking",
    ("revoking", "coordinator found"): "revoking",
    ("revoking", "retry"): "revoking",
    ("revoking", "rebalance"): "revoking",
    ("revoking", "lost"): "unjoined",
    ("revoking", "refused"): "failed",
    ("revoking", "fenced"): "fenced",
    ("revoking", "stayed away"): "withdrawing",
    ("revoking", "leave"): "parting",
    # It commits and gives up everything, and then leaves for good.
    ("parting", "revoked"): "parting",
    ("parting", "given up"): "leaving",
    ("parting", "heartbeat answered"): "parting",
    ("parting", "coordinator found"): "parting",
    ("parting", "retry"): "parting",
    ("parting", "rebalance"): "parting",
    ("parting", "lost"): "leaving",
    ("parting", "leave"): "parting",
    # It commits and gives up everything, and then leaves until the application comes back.
    ("withdrawing", "revoked"): "withdrawing",
    ("withdrawing", "given up"): "away",
    ("withdrawing", "heartbeat answered"): "withdrawing",
    ("withdrawing", "coordinator found"): "withdrawing",
    ("withdrawing", "retry"): "withdrawing",
    ("withdrawing", "rebalance"): "withdrawing",
    ("withdrawing", "lost"): "away",
    ("withdrawing", "leave"): "parting",
    # The application has stayed away for longer than max_poll_interval_ms.
    ("away", "application back"): "unjoined",
    ("away", "leave"): "left",
    # It tells the coordinator that it leaves.
    ("leaving", "coordinator found"): "leaving",
    ("leaving", "retry"): "leaving",
    ("leaving", "gone"): "left",
    ("leaving", "leave"): "leaving",
    # The application was told of an error. Its next call tries anew.
    ("failed", "application back"): "unjoined",
    ("failed", "leave"): "left",
    # Another member has taken its group_instance_id. Trying anew would only take it back in turn.
    ("fenced", "application back"): "fenced",
    ("fenced", "leave"): "left",
    ("left", "leave"): "left",
}

# {state: the kind of request that is on its way, or due next, in it}
SPEAKS = {
    "unjoined": SendJoin,
    "joining": SendJoin,
    "assigning": SendHeartbeat,
    "syncing": SendSync,
    "stable": SendHeartbeat,
    "rebalance announced": SendHeartbeat,
    "revoking": SendHeartbeat,
    "parting": SendHeartbeat,
    "withdrawing": SendHeartbeat,
    "leaving": SendLeave,
}
# On the way to a share: failures are counted here
TRYING = ("unjoined", "joining", "assigning", "syncing")
# It has its share: what becomes of a commit says something of the membership
COMMITTING = ("stable", "rebalance announced", "revoking", "parting", "withdrawing")
