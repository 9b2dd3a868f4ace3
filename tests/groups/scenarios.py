"""Seeded random groups whose members come, go, miss rounds and change their minds, round after round."""
import collections
import random

from kiel.groups import CooperativeStickyProtocol, RangeProtocol, RoundRobinProtocol, StickyProtocol
from kiel.protocol.consumer_protocol import ConsumerProtocolSubscription

PROTOCOLS = [RangeProtocol, RoundRobinProtocol, StickyProtocol, CooperativeStickyProtocol]

# one assignment: what the leader got ({member: (group instance id, metadata)}, {topic: count}), and what it gave
Round = collections.namedtuple("Round", ("protocol", "joined", "partitions", "members", "given"))


class Member(object):
    """What a member knows of itself between two rounds."""

    def __init__(self, name, instance, topics, version):
        self.name, self.instance, self.topics, self.version = name, instance, topics, version
        self.had, self.generation = None, -1

    def arguments(self, protocol):
        """What it calls metadata with: an eager member has nothing any more, but knows what it had."""
        owned = self.had or [] if protocol.is_cooperative else []
        return self.topics, owned, self.generation, self.had

    def metadata(self, protocol):
        data = protocol.join_metadata(*self.arguments(protocol))
        if self.version == 3:
            return data
        return ConsumerProtocolSubscription.from_bytes(data).to_bytes(self.version)


def pairs(assignment):
    return [(topic, partition) for topic in assignment for partition in assignment[topic]]


class Scenario(object):
    """`rounds` is filled as it is made; everything follows from the seed."""

    def __init__(self, protocol, seed):
        self.protocol, self.random, self.rounds = protocol, random.Random(seed), []
        names = ["t%d" % number for number in range(self.random.randint(1, 6))]
        names = [self.random.choice(("", "orders.", "eu-west_")) + name for name in names]
        same = self.random.randint(1, 9) if self.random.random() < 0.4 else None
        self.partitions = dict((name, same or self.random.randint(1, self.random.choice((3, 25)))) for name in names)
        self.missing = ["nowhere"] if self.random.random() < 0.2 else []
        self.alike = self.random.random() < 0.4
        self.strict = self.random.random() < 0.6  # nobody misses a round, and all are of today
        self.everything = names + self.missing
        most = 30 if self.random.random() < 0.1 else 10
        self.members, self.made = [], 0
        for _ in range(self.random.randint(1, most)):
            self.join()
        if self.random.random() < 0.7:
            self.hand_out_unevenly()
        for generation in range(2, self.random.randint(3, 7)):
            self.round(generation)
            for _ in range(self.random.choice((1, 1, 3))):
                self.change()

    def some_topics(self):
        if self.alike and self.random.random() < 0.95:
            return self.everything
        return self.random.sample(self.everything, self.random.randint(1, len(self.everything)))

    def join(self):
        self.made += 1
        instance = "static-%d" % self.made if self.random.random() < 0.3 else None
        name = "%s-%016x" % (instance or "kiel", self.random.getrandbits(64))
        version = 3 if self.strict or self.random.random() < 0.8 else self.random.randint(0, 2)
        self.members.append(Member(name, instance, self.some_topics(), version))

    def hand_out_unevenly(self):
        """Members had something before the first round, some of them much more than others."""
        left = pairs(dict((topic, range(self.partitions[topic])) for topic in self.partitions))
        left.sort()
        self.random.shuffle(left)
        for member in self.members:
            wanted = [each for each in left if each[0] in member.topics][:self.random.choice((0, 3, 10, 30))]
            left = [each for each in left if each not in wanted]
            member.had, member.generation = wanted, 1 if self.strict else self.random.randint(0, 1)

    def round(self, generation):
        joined = collections.OrderedDict(
            (member.name, (member.instance, member.metadata(self.protocol))) for member in self.members
        )
        members = collections.OrderedDict(
            (name, self.protocol.read_metadata(data, instance)) for name, (instance, data) in joined.items()
        )
        given = self.protocol.assign(members, dict(self.partitions))
        self.rounds.append(Round(self.protocol, joined, dict(self.partitions), members, given))
        for member in self.members:
            # those who don't hear of it keep what they had
            if self.strict or self.random.random() < 0.6:
                member.had, member.generation = pairs(given[member.name]), generation

    def change(self):
        chance = self.random.random()
        if chance < 0.3 and len(self.members) > 1:
            del self.members[self.random.randrange(len(self.members))]
        elif chance < 0.6:
            self.join()
        elif chance < 0.75:
            self.random.choice(self.members).topics = self.some_topics()
        elif chance < 0.85:
            self.partitions[self.random.choice(sorted(self.partitions))] += self.random.randint(1, 4)
        elif chance < 0.9 and not self.strict:
            one, other = self.random.choice(self.members), self.random.choice(self.members)
            one.had, one.generation = list(other.had or []), other.generation
        self.random.shuffle(self.members)


def unsound(given, members, partitions, whole=True):
    """What is wrong with an assignment ({member: {topic: [ids]}}), in words, or None."""
    owner = {}
    for member in members:
        for topic, partition in pairs(given[member]):
            if topic not in members[member].topics:
                return "%s isn't subscribed to %s" % (member, topic)
            if (topic, partition) in owner:
                return "%s[%d] is given twice" % (topic, partition)
            if not 0 <= partition < partitions.get(topic, 0):
                return "%s[%d] doesn't exist" % (topic, partition)
            owner[topic, partition] = member
    for topic in set(topic for member in members.values() for topic in member.topics):
        for partition in range(partitions.get(topic, 0)):
            if whole and (topic, partition) not in owner:
                return "%s[%d] is given to nobody" % (topic, partition)
    return None
