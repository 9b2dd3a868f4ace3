"""RoundRobinProtocol: all partitions of all topics are dealt out in turn."""
import itertools

from kiel.groups.protocol import JavaProtocol, by_topic, existing, in_turn


class RoundRobinProtocol(JavaProtocol):
    """Java's RoundRobinAssignor: all partitions of all topics, dealt out in turn to those who are subscribed.

    With the same topics for all no member has two partitions more than another.
    """

    name = "roundrobin"

    def assign(self, members, partitions):
        given = dict((member, []) for member in members)
        subscribed = dict((member, set(members[member].topics)) for member in members)
        turns = itertools.cycle(in_turn(members))
        for topic, ids in sorted(existing(members, partitions).items()):
            for partition in ids:
                taker = next(member for member in turns if topic in subscribed[member])
                given[taker].append((topic, partition))
        return dict((member, by_topic(given[member])) for member in members)
