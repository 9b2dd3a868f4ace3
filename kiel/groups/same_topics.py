"""Sticky shares where all members have the same topics: all shares are equal, or one larger.

So what each member keeps can be said at once, and the rest is dealt out; nothing needs to be weighed.
"""
import collections

from kiel.groups.java_order import utf16


def share_evenly(topics, kept, disputed):
    """{member: [(topic, partition)]} and {partition: its new member} of what another has to give up first.

    `topics` is {topic: [partition ids]}, `kept` {member: what it has}, in the order in which members are to be
    heard, and `disputed` the partitions that were claimed twice, which nobody keeps.
    """
    least, larger = divmod(sum(len(ids) for ids in topics.values()), len(kept))
    most = least + (larger > 0)
    given, surplus, short, at_least = {}, {}, [], []
    for member, partitions in kept.items():
        owned = sorted(set(partitions) - disputed, key=lambda each: (each[1], each[0]))
        if len(owned) < least:
            quota = len(owned)
            short.append(member)
        elif len(owned) >= most and larger > 0:
            quota = most
            larger -= 1
        else:
            quota = least
            at_least.append(member)
        given[member] = owned[:quota]
        surplus.update((partition, member) for partition in owned[quota:])
    taken = set(partition for partitions in given.values() for partition in partitions)
    every = [(topic, partition) for topic in sorted(topics) for partition in topics[topic]]
    moving = {}
    rest = [each for each in every if each not in taken]
    for partition, member in _dealt(rest, given, least, short, at_least):
        if partition in disputed or surplus.get(partition, member) != member:
            moving[partition] = member
    return given, moving


def _dealt(partitions, given, least, short, at_least):
    """Adds `partitions` to `given`, in turn up to `least`, then one each, and yields (partition, member).

    `short` are the members with fewer than `least`, `at_least` those that have just as many.
    """
    short, at_least = sorted(short, key=utf16), collections.deque(sorted(at_least, key=utf16))
    turn = 0
    for partition in partitions:
        if short:
            turn = turn if turn < len(short) else 0
            member = short[turn]
            turn += 1
        else:
            member = at_least.popleft()
        given[member].append(partition)
        if short and len(given[member]) == least:
            turn -= 1
            del short[turn]
            at_least.append(member)
        yield partition, member
