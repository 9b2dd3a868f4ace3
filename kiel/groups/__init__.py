"""Broker-coordinated groups, free of sockets and clocks: who is a member, and who gets which partitions.

:mod:`~kiel.groups.protocol` has the plug-in point for assignment protocols. kiel's own give the same shares as
the Java client's assignors of the same names, so that both can be members, and leaders, of one group.
"""
from kiel.groups.cooperative import CooperativeStickyProtocol
from kiel.groups.protocol import GroupMembershipProtocol, Subscription
from kiel.groups.range import RangeProtocol
from kiel.groups.round_robin import RoundRobinProtocol
from kiel.groups.sticky import StickyProtocol

__all__ = [
    "CooperativeStickyProtocol",
    "GroupMembershipProtocol",
    "RangeProtocol",
    "RoundRobinProtocol",
    "StickyProtocol",
    "Subscription",
]
