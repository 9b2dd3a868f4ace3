"""Sticky shares where members have different topics: weighed against each other, a partition at a time.

What members had is kept; the rest goes to whoever has least; then partitions move, from those who have
more to those who have less, until none can that would make it more even.
"""
import bisect
import collections

from kiel.groups.java_order import PartitionSet, utf16

# Every move but one kind makes the shares more even, so it ends; this many moves for each partition is
# far more than is ever needed, and bounds the work should that kind undo the others again and again.
MOVES_A_PARTITION = 10


class Balancer(object):
    """Works out one assignment: ``Balancer(...).share()``.

    `topics` is {topic: [partition ids]}, `subscribed` {member: set of its topics}, `kept` {member: ordered dict
    of what it has}, and `earlier` {partition: who had it in an older generation}.
    """

    def __init__(self, topics, subscribed, kept, earlier):
        self.topics, self.held, self.earlier = topics, kept, earlier
        existing = set(topics)
        self.subscribed = dict((member, subscribed[member] & existing) for member in kept)
        self.takers = dict((topic, 0) for topic in topics)
        for wanted in self.subscribed.values():
            for topic in wanted:
                self.takers[topic] += 1
        # how many partitions a member would have if it had all that it may have
        self.largest = dict(
            (member, sum(len(topics[topic]) for topic in wanted))
            for member, wanted in self.subscribed.items()
        )
        self.keys = dict((member, utf16(member)) for member in kept)
        self.owner = {}
        self.movements = Movements()
        self.holders = dict((topic, collections.defaultdict(int)) for topic in topics)
        self.ranking = []
        self.moves_left = MOVES_A_PARTITION * sum(len(ids) for ids in topics.values())
        self._even = None

    def share(self):
        """{member: [(topic, partition)]}."""
        revoked = self._drop_unsubscribed()
        ordered = sorted(self.topics, key=lambda topic: (self.takers[topic], topic))
        every = [(topic, partition) for topic in ordered for partition in self.topics[topic]]
        unowned = [partition for partition in every if partition not in self.owner]
        self.ranking = sorted(self._rank(member) for member in self.held)
        nobody_had_any = self.ranking[-1][0] == 0
        for partition in unowned:
            self._give(partition, next(self._ranked(partition[0])))
        settled = self._set_aside()
        before = dict((member, held.copy()) for member, held in self.held.items())
        if not revoked:
            self._even_out([partition for partition in unowned if self.takers[partition[0]] > 1])
        changed = self._even_out([partition for partition in every if self.takers[partition[0]] > 1])
        if changed and not nobody_had_any and _unevenness(self.held) >= _unevenness(before):
            self.held = before
        self.held.update(settled)
        return dict((member, list(held)) for member, held in self.held.items())

    def _drop_unsubscribed(self):
        """Takes from members what they aren't subscribed to any more; whether there was any."""
        revoked = False
        for member, held in self.held.items():
            for partition in list(held):
                if partition[0] in self.subscribed[member]:
                    self.owner[partition] = member
                    self.holders[partition[0]][member] += 1
                else:
                    del held[partition]
                    revoked = True
        return revoked

    def _set_aside(self):
        """Takes out of the weighing, and returns, the members that have all they may have, alone."""
        settled = {}
        for member in list(self.held):
            held = self.held[member]
            if len(held) == self.largest[member] and all(self.takers[topic] < 2 for topic, _ in held):
                self._unrank(member)
                settled[member] = self.held.pop(member)
        return settled

    # members by how many partitions they have, fewest first

    def _rank(self, member):
        return len(self.held[member]), self.keys[member], member

    def _unrank(self, member):
        del self.ranking[bisect.bisect_left(self.ranking, self._rank(member))]

    def _ranked(self, topic):
        """Those who may have a topic's partitions."""
        return (member for _, _, member in self.ranking if topic in self.subscribed[member])

    def _give(self, partition, member):
        self._unrank(member)
        self.held[member][partition] = True
        self.owner[partition] = member
        self.holders[partition[0]][member] += 1
        bisect.insort(self.ranking, self._rank(member))
        self._even = None

    def _take(self, partition):
        member = self.owner.pop(partition)
        self._unrank(member)
        del self.held[member][partition]
        holders = self.holders[partition[0]]
        holders[member] -= 1
        if not holders[member]:
            del holders[member]
        bisect.insort(self.ranking, self._rank(member))

    # moving what makes it more even

    def _even_out(self, partitions):
        """Moves such partitions until there is nothing to gain; whether any was moved."""
        moved = again = False
        while True:
            for partition in partitions:
                if self._is_even() or not self.moves_left:
                    break
                taker = self._better(partition)
                if taker is not None:
                    self._move(partition, taker)
                    again = True
            if not again:
                return moved
            moved, again = True, False

    def _is_even(self):
        """Whether no member can get a partition from one with two more. Kept until something moves."""
        if self._even is None:
            self._even = self._work_out_even()
        return self._even

    def _work_out_even(self):
        if self.ranking[0][0] >= self.ranking[-1][0] - 1:
            return True
        most = {}
        for size, _, member in self.ranking:
            if size == self.largest[member]:
                continue
            for topic in self.subscribed[member]:
                if topic not in most:
                    most[topic] = max(len(self.held[holder]) for holder in self.holders[topic])
                if size + 1 < most[topic]:
                    return False
        return True

    def _better(self, partition):
        """Who should have a partition rather than its owner: who had it earlier, or who has least; or None."""
        topic, size = partition[0], len(self.held[self.owner[partition]])
        before = self.earlier.get(partition)
        # one that isn't subscribed any more can't have it back (Java would give it, or fail)
        if before in self.held and topic in self.subscribed[before] and size > len(self.held[before]) + 1:
            return before
        least = next(self._ranked(topic))
        return least if size > len(self.held[least]) + 1 else None

    def _move(self, partition, taker):
        self.moves_left -= 1
        partition = self.movements.instead_of(partition, self.owner[partition], taker)
        self.movements.note(partition, self.owner[partition], taker)
        self._take(partition)
        self._give(partition, taker)


class Movements(object):
    """What has moved from whom to whom, so that no two partitions of a topic change places for nothing."""

    def __init__(self):
        # {partition: (from, to)}, and {(topic, from, to): partitions}
        self.pairs, self.partitions = {}, {}

    def instead_of(self, partition, owner, taker):
        """What to move rather than `partition`: one of its topic that has come the other way, if there is any."""
        if partition in self.pairs:
            owner = self.pairs[partition][0]
        came = self.partitions.get((partition[0], taker, owner))
        return came.first() if came else partition

    def note(self, partition, owner, taker):
        source = owner
        if partition in self.pairs:
            source, came_to = self.pairs.pop(partition)
            there = partition[0], source, came_to
            self.partitions[there].remove(partition)
            if not self.partitions[there]:
                del self.partitions[there]
            if source == taker:  # it is back where it was
                return
        self.pairs[partition] = source, taker
        self.partitions.setdefault((partition[0], source, taker), PartitionSet()).add(partition)


def _unevenness(held):
    """The sum of the differences between any two members' shares."""
    sizes = sorted(len(partitions) for partitions in held.values())
    return sum(size * (2 * index - len(sizes) + 1) for index, size in enumerate(sizes))
