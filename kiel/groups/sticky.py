"""StickyProtocol: even shares, of which each member keeps as much as it can from one time to the next."""
import collections

from kiel.exc import ProtocolError
from kiel.groups.differing_topics import Balancer
from kiel.groups.java_order import in_map_order
from kiel.groups.protocol import NO_GENERATION, JavaProtocol, by_topic, existing
from kiel.groups.same_topics import share_evenly
from kiel.protocol.consumer_protocol import read_leniently
from kiel.protocol.primitives import Array, Int32, String
from kiel.protocol.schema import Field, Message, Struct


class StickyTopic(Struct):
    parts = (
        Field("topic", String),
        Field("partitions", Array(Int32)),
    )


class StickyUserData(Message):
    """What a member was given last. Java clients before 2.3 write version 0; nothing says which it is."""

    api, versions = "sticky user data", (0, 1)
    parts = (
        Field("previous_assignment", Array(StickyTopic)),
        Field("generation", Int32, since=1, default=NO_GENERATION),
    )


class StickySharing(JavaProtocol):
    """What both sticky protocols do; they differ in how members tell what they had."""

    def had(self, subscription):
        """What a member claims to have: a list of (topic, partition), and since which generation."""
        raise NotImplementedError("%s has no had" % type(self).__name__)

    def share(self, members, partitions):
        """{member id: [(topic, partition)]}, and {(topic, partition): new member} of what moves, if known.

        Partitions that a member claims and that don't exist (any more) are passed over; Java's assignors give
        others out twice then.
        """
        topics = existing(members, partitions)
        there = dict((topic, set(ids)) for topic, ids in topics.items())
        order = in_map_order(members)
        claims = collections.OrderedDict()
        for member in order:
            claimed, generation = self.had(members[member])
            claimed = [each for each in claimed if each[1] in there.get(each[0], ())]
            claims[member] = claimed, generation
        kept, disputed = settle(claims, members)
        subscribed = dict((member, set(members[member].topics)) for member in members)
        if all(subscribed[member] == subscribed[order[0]] for member in order):
            return share_evenly(topics, kept, disputed)
        return Balancer(topics, subscribed, kept, earlier(claims)).share(), None


def settle(claims, members):
    """Who keeps what of `claims` ({member: (partitions, generation)}): {member: {partition: True}}, in order.

    Of two that claim the same, the newer generation has it, and neither, if there is none; the second value
    is the set of such disputed partitions. The other's generation is that of its subscription, even where the
    claim in its user data has one of its own: so it is in Java, where older clients tell only the latter.
    """
    kept, owner, disputed = collections.OrderedDict(), {}, set()
    for member, (claimed, generation) in claims.items():
        mine = kept[member] = collections.OrderedDict()
        for partition in claimed:
            other = owner.get(partition)
            if other is not None:
                others = members[other].generation
                if generation < others:
                    continue
                kept[other].pop(partition, None)
                if generation == others:
                    disputed.add(partition)
            owner[partition] = member
            if other is None or generation > others:
                mine[partition] = True
    return kept, disputed


def earlier(claims):
    """{partition: member} of claims older than the newest generation: the newest, the first of equals."""
    newest = max([NO_GENERATION] + [generation for _, generation in claims.values()])
    found = {}
    for member, (claimed, generation) in claims.items():
        if generation < newest:
            for partition in claimed:
                if partition not in found or generation > found[partition][1]:
                    found[partition] = member, generation
    return dict((partition, member) for partition, (member, _) in found.items())


class StickyProtocol(StickySharing):
    """Java's StickyAssignor: shares as even as the subscriptions allow, and as little moved as that allows.

    Members give up all they have before they join, and tell what it was.
    """

    name = "sticky"

    def assign(self, members, partitions):
        if not members:
            return {}
        given, _ = self.share(members, partitions)
        return dict((member, by_topic(given[member])) for member in members)

    def user_data(self, generation, previous):
        if previous is None:
            return None
        listed = by_topic(previous)
        # the map that Java gathers them in puts newcomers to a bucket first, not last
        order = in_map_order(reversed(list(listed)))
        topics = [StickyTopic(topic=topic, partitions=listed[topic]) for topic in order]
        return StickyUserData(previous_assignment=topics, generation=generation).encode(1)

    def had(self, subscription):
        data = subscription.user_data
        told = _sticky_user_data(data) if data else StickyUserData()
        previous = told.previous_assignment
        return [(each.topic, partition) for each in previous for partition in each.partitions], told.generation


def _sticky_user_data(data):
    """The StickyUserData in some bytes; as if nothing was told, where they are something else, as in Java."""
    for version in (1, 0):
        try:
            return read_leniently(StickyUserData, data, version)
        except ProtocolError:
            continue
    return StickyUserData()
