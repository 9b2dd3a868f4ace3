"""RangeProtocol: of each topic, each member gets a run of neighbouring partitions."""
from kiel.groups.protocol import JavaProtocol, by_topic, existing, in_turn


class RangeProtocol(JavaProtocol):
    """Java's RangeAssignor: topic by topic, runs of neighbouring partitions, of one length or one more.

    Topics with the same partitions and subscribers are cut alike (co-partitioned): who gets partition 3 of one
    gets it of the other.
    """

    name = "range"

    def assign(self, members, partitions):
        given = dict((member, []) for member in members)
        order = in_turn(members)
        subscribed = dict((member, set(members[member].topics)) for member in members)
        for topic, ids in existing(members, partitions).items():
            takers = [member for member in order if topic in subscribed[member]]
            least, longer = divmod(len(ids), len(takers))
            start = 0
            for index, member in enumerate(takers):
                after = start + least + (index < longer)
                given[member].extend((topic, partition) for partition in ids[start:after])
                start = after
        return dict((member, by_topic(given[member])) for member in members)
