"""What every assignment protocol has: the plug-in point, and the bytes that members exchange."""
import collections

import six

from kiel.groups.java_order import in_map_order, utf16
from kiel.protocol.consumer_protocol import (
    AssignedTopicPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedTopicPartitions,
)

NO_GENERATION = -1

_SUBSCRIPTION = ("topics", "owned", "generation", "user_data", "group_instance_id", "rack")


class Subscription(collections.namedtuple("Subscription", _SUBSCRIPTION)):
    """What a member has told the leader.

    `topics` is a list of names, `owned` a list of (topic, partition) that it had in `generation` (-1: it says
    none), `user_data` its protocol's own bytes or None, `group_instance_id` a static member's name (KIP-345) or
    None, `rack` where it is (KIP-881) or None.
    """

    __slots__ = ()

    def __new__(
        cls, topics, owned=(), generation=NO_GENERATION, user_data=None, group_instance_id=None, rack=None
    ):
        return super(Subscription, cls).__new__(
            cls, topics, owned, generation, user_data, group_instance_id, rack
        )


class GroupMembershipProtocol(object):
    """How a group shares out the partitions: the leader calls :meth:`assign`, and all members use one `name`.

    To plug in another, subclass it with `name` and :meth:`assign`, and with :meth:`metadata` where members
    have more to tell than their topics. It is called on the IOLoop, so it mustn't wait or take long, and it
    keeps nothing between calls: an instance may serve several consumers.
    """

    #: what the members of a group agree on; Java members know their assignor by it
    name = None
    #: whether members keep what they have while they join (KIP-429): a partition that moves to another member
    #: must then be left out of an assignment for as long as a member has it
    is_cooperative = False

    def metadata(self, topics):
        """What a member tells the leader, in bytes: here Java's form of a subscription to `topics` (names)."""
        return subscription_bytes(topics)

    def assign(self, members, partitions):
        """Who gets what: {member id: {topic: [partition ids]}}, with an entry for each member.

        `members` is {member id: :class:`Subscription`}, `partitions` {topic: number of partitions, or a list of
        their ids} for the topics that exist. Every partition of a topic goes to one member that is subscribed
        to it.
        """
        raise NotImplementedError("%s has no assign" % type(self).__name__)

    def join_metadata(self, topics, owned, generation, previous):
        """What kiel asks for as it joins: :meth:`metadata`, with the member's state where that is wanted."""
        return self.metadata(topics)

    def read_metadata(self, data, group_instance_id=None):
        """The :class:`Subscription` in a member's metadata (bytes). ProtocolError if they are none."""
        told = ConsumerProtocolSubscription.from_bytes(data)
        owned = [(each.topic, partition) for each in told.owned_partitions for partition in each.partitions]
        generation = max(told.generation_id, NO_GENERATION)
        return Subscription(
            told.topics, owned, generation, told.user_data, group_instance_id, told.rack_id or None
        )

    def write_assignment(self, assignment):
        """The bytes for a member that is given `assignment` ({topic: [partition ids]})."""
        given = [
            AssignedTopicPartitions(topic=topic, partitions=list(assignment[topic])) for topic in assignment
        ]
        return ConsumerProtocolAssignment(assigned_partitions=given).to_bytes()

    def read_assignment(self, data):
        """{topic: [partition ids]} from what the leader has sent (bytes; empty where it gives nothing).

        ProtocolError if they are no assignment.
        """
        if not data:
            return {}
        given = ConsumerProtocolAssignment.from_bytes(data).assigned_partitions
        return by_topic((each.topic, partition) for each in given for partition in each.partitions)


class JavaProtocol(GroupMembershipProtocol):
    """An assignor of the Java client's: same name, same bytes, same answers (those of kafka-clients 4.4.0).

    Racks (KIP-881) are read but not regarded: where members give theirs, a Java leader may choose other shares,
    just as even, that are nearer to the members.
    """

    def metadata(self, topics, owned=(), generation=NO_GENERATION, previous=None):
        """What a member tells the leader, in bytes: Java's form of a subscription to `topics` (names).

        `owned` is what it has as it joins (of (topic, partition); nothing, where it gave up all before),
        `previous` what it was given last (None: it never was), and `generation` the generation in which it was.
        """
        return subscription_bytes(topics, owned, generation, self.user_data(generation, previous))

    def join_metadata(self, topics, owned, generation, previous):
        return self.metadata(topics, owned, generation, previous)

    def user_data(self, generation, previous):
        """The protocol's own part of the metadata, in bytes, or None."""
        return None


def subscription_bytes(topics, owned=(), generation=NO_GENERATION, user_data=None):
    """A subscription as Java writes it: all of it sorted, in the newest version."""
    listed = by_topic(sorted(owned))
    return ConsumerProtocolSubscription(
        topics=sorted(topics),
        owned_partitions=[OwnedTopicPartitions(topic=topic, partitions=listed[topic]) for topic in listed],
        generation_id=generation,
        user_data=user_data,
    ).to_bytes()


def by_topic(partitions):
    """{topic: [partition ids]} of (topic, partition) pairs, all in the order in which they come."""
    listed = collections.OrderedDict()
    for topic, partition in partitions:
        listed.setdefault(topic, []).append(partition)
    return listed


def existing(members, partitions):
    """{topic: [partition ids, ascending]} of those topics that exist and that a member is subscribed to.

    They come in the order in which a Java leader, which is given `members` in this order, goes through them.
    """
    wanted = collections.OrderedDict()
    for member in in_map_order(members):
        wanted.update((topic, True) for topic in members[member].topics)
    found = collections.OrderedDict()
    for topic in in_map_order(wanted):
        ids = partitions.get(topic) or ()
        ids = list(range(ids)) if isinstance(ids, six.integer_types) else sorted(ids)
        if ids:
            found[topic] = ids
    return collections.OrderedDict((topic, found[topic]) for topic in in_map_order(found))


def in_turn(members):
    """Member ids in their order for shares in turn: static members first, by name, then the others by id."""

    def place(member):
        name = members[member].group_instance_id
        return (1, utf16(member)) if name is None else (0, utf16(name))

    return sorted(in_map_order(members), key=place)
