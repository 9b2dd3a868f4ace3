"""The leader's part: has the protocol share partitions out, and checks that each gets one owner."""
from kiel.exc import AllocationError, KielError

# An error names no more partitions than this.
MOST_NAMED = 20


def topics_of(members):
    """All topics that the members, {id: Subscription}, are subscribed to, in order."""
    return sorted({topic for subscription in members.values() for topic in subscription.topics})


def share(protocol, members, partitions):
    """{member id: bytes of its assignment}, for members {id: Subscription} and {topic: [partitions]}.

    AllocationError if the protocol fails, leaves a partition out, gives one out twice, or gives it to a member
    that isn't subscribed to its topic.
    """
    try:
        given = protocol.assign(members, {topic: ids for topic, ids in partitions.items() if ids})
        pairs = [
            (member, (topic, partition))
            for member in given
            for topic in given[member]
            for partition in given[member][topic]
        ]
    except KielError:
        raise
    except Exception as error:
        raise AllocationError("protocol %s failed to share partitions out: %r" % (protocol.name, error))
    check(protocol, members, partitions, pairs)
    return {member: protocol.write_assignment(given.get(member, {})) for member in members}


def check(protocol, members, partitions, pairs):
    """AllocationError unless `pairs`, [(member id, (topic, partition))], are whole and disjoint."""
    wanted = {
        (topic, partition)
        for subscription in members.values()
        for topic in subscription.topics
        for partition in partitions.get(topic, ())
    }
    seen, faults = set(), []
    for member, place in pairs:
        if member not in members or place not in wanted or place[0] not in members[member].topics:
            faults.append(("to the wrong member, or not there at all", place))
        elif place in seen:
            faults.append(("given out twice", place))
        seen.add(place)
    left_out = wanted - seen
    if protocol.is_cooperative:
        # What moves is given to nobody until its owner has given it up.
        left_out -= {tuple(place) for subscription in members.values() for place in subscription.owned}
    faults.extend(("left out", place) for place in left_out)
    if faults:
        named = ", ".join("%s[%d] (%s)" % (place + (what,)) for what, place in sorted(faults)[:MOST_NAMED])
        raise AllocationError("protocol %s can't share partitions out so: %s" % (protocol.name, named))
