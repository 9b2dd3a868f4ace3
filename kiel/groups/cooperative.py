"""CooperativeStickyProtocol: sticky shares, reached without giving up what is kept (KIP-429)."""
import struct

from kiel.groups.protocol import NO_GENERATION, by_topic
from kiel.groups.sticky import StickySharing

_generation = struct.Struct(">i")


class CooperativeStickyProtocol(StickySharing):
    """Java's CooperativeStickyAssignor: the shares of the sticky one, in two steps.

    What has to move from one member to another is given to nobody at first; once its owner has given it up
    and the members join again, the other gets it.
    """

    name = "cooperative-sticky"
    is_cooperative = True

    def assign(self, members, partitions):
        if not members:
            return {}
        given, moving = self.share(members, partitions)
        if moving is None:
            moving = _moving(members, given)
        return dict(
            (member, by_topic(each for each in given[member] if moving.get(each) != member))
            for member in members
        )

    def user_data(self, generation, previous):
        return _generation.pack(generation)

    def had(self, subscription):
        generation, data = subscription.generation, subscription.user_data
        # members whose subscription has no generation (before version 2) tell it in their user data
        if generation == NO_GENERATION and data is not None and len(data) >= _generation.size:
            generation = _generation.unpack_from(data)[0]
        return subscription.owned, generation


def _moving(members, given):
    """{partition: its new member} of what is given to one and owned by another that doesn't keep it."""
    added, revoked = {}, set()
    for member, partitions in given.items():
        before, after = set(members[member].owned), set(partitions)
        added.update((partition, member) for partition in after - before)
        revoked |= before - after
    return dict((partition, added[partition]) for partition in revoked if partition in added)
