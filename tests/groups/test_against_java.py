"""kiel's assignment protocols and the Java client's assignors of the same names: same bytes, same shares."""
import binascii
import collections
import os

import pytest

from kiel.groups import CooperativeStickyProtocol, StickyProtocol
from tests.groups.scenarios import PROTOCOLS, Round, Scenario, unsound
from tests.support import maven, needs, process

pytestmark = pytest.mark.kafka

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "Assignors.java")
SEEDS = 150

# what a member calls metadata() with
Told = collections.namedtuple("Told", ("protocol", "topics", "owned", "generation", "previous"))


def to_hex(data):
    return binascii.hexlify(data).decode("ascii")


def ask(lines):
    """What Java answers to the lines, which one process reads."""
    needs.kafka()
    jars = os.path.join(maven.kafka_classpath(), "*")
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    text = "".join(line + "\n" for line in lines).encode("utf-8")
    answers = process.run([maven.java(), quiet, "-cp", jars, SOURCE], input=text, timeout=300)
    return answers.decode("utf-8").splitlines()


def assign_lines(each):
    yield "assign " + each.protocol.name
    for topic in sorted(each.partitions):
        yield "topic %s %d" % (topic, each.partitions[topic])
    for name, (instance, metadata) in each.joined.items():
        yield "member %s %s %s" % (name, instance or "-", to_hex(metadata))
    yield "end"


def listed(partitions):
    return ",".join("%s:%d" % each for each in partitions) + ","


def write_line(protocol, topics, owned, generation, previous):
    words = ["write", protocol.name, ",".join(topics), listed(owned), str(generation)]
    return " ".join(words + ["-" if previous is None else listed(previous)])


@pytest.fixture(scope="module")
def asked():
    """[(what was asked, what Java answered)], for all protocols: Rounds and Tolds."""
    scenarios = [Scenario(protocol(), seed) for protocol in PROTOCOLS for seed in range(SEEDS)]
    rounds = [each for scenario in scenarios for each in scenario.rounds]
    told = [
        Told(scenario.protocol, *member.arguments(scenario.protocol))
        for scenario in scenarios for member in scenario.members
    ]
    lines = [line for each in rounds for line in assign_lines(each)] + [write_line(*each) for each in told]
    answers = ask(lines)
    assert len(answers) == len(rounds) + len(told)
    return list(zip(rounds + told, answers))


def answers_of(asked, protocol, kind):
    return [(each, answer) for each, answer in asked if type(each[0]) is protocol and isinstance(each, kind)]


def java_shares(each, answer):
    """{member: {topic: [partition ids]}} out of Java's bytes."""
    given = dict(word.split("=") for word in answer.split())
    return dict((name, each.protocol.read_assignment(binascii.unhexlify(given[name]))) for name in given)


def is_faulty(each, answer):
    """Whether Java fails, or gives partitions to members that can't have them, or to two (see FAULTS)."""
    return answer.startswith("failed") or bool(
        unsound(java_shares(each, answer), each.members, each.partitions, not each.protocol.is_cooperative)
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_shares_are_the_same_to_the_byte(protocol, asked):
    rounds = answers_of(asked, protocol, Round)
    assert len(rounds) > 2 * SEEDS
    differing = 0
    for each, answer in rounds:
        written = dict((name, each.protocol.write_assignment(each.given[name])) for name in each.given)
        if " ".join("%s=%s" % (name, to_hex(written[name])) for name in sorted(written)) == answer:
            assert java_shares(each, answer) == each.given
        else:
            assert is_faulty(each, answer), answer
            differing += 1
    assert differing <= len(rounds) // 100


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_tell_the_same_to_the_byte(protocol, asked):
    told = answers_of(asked, protocol, Told)
    assert len(told) > 2 * SEEDS
    for (ours, topics, owned, generation, previous), answer in told:
        assert to_hex(ours.metadata(topics, owned, generation, previous)) == answer


def round_of(protocol, members, partitions):
    """A Round of [(member, topics, owned, generation)]."""
    joined = collections.OrderedDict(
        (name, (None, protocol.metadata(topics, owned if protocol.is_cooperative else (), generation, owned)))
        for name, topics, owned, generation in members
    )
    told = collections.OrderedDict((name, protocol.read_metadata(joined[name][1])) for name in joined)
    return Round(protocol, joined, partitions, told, protocol.assign(told, partitions))


# What Java's sticky assignors get wrong, and kiel's don't.
FAULTS = {
    "a partition that is gone": (
        [("A", ["t"], [("t", 0), ("t", 7)], 1), ("B", ["t"], [("t", 9), ("t", 1)], 1)], {"t": 4}
    ),
    "the first has no topics": ([("a", [], [], 1), ("b", ["t"], [], 1)], {"t": 4}),
    # C may not have what it had in generation 1, and has least
    "an earlier owner is not subscribed any more": (
        [
            ("A", ["s", "t", "u"], [("t", 0), ("t", 1), ("t", 2), ("t", 3)], 2),
            ("B", ["t", "v"], [("v", 0), ("v", 1)], 2),
            ("C", ["s", "v"], [("t", 0), ("t", 1), ("t", 2), ("t", 3)], 1),
        ],
        {"s": 1, "t": 4, "u": 1, "v": 3},
    ),
}


@pytest.fixture(scope="module")
def faults():
    """{(protocol, what): (the Round, what Java answered)}."""
    rounds = [
        (protocol, what, round_of(protocol(), *FAULTS[what]))
        for protocol in (StickyProtocol, CooperativeStickyProtocol) for what in sorted(FAULTS)
    ]
    answers = ask([line for _, _, each in rounds for line in assign_lines(each)])
    return dict(((protocol, what), (each, answer)) for (protocol, what, each), answer in zip(rounds, answers))


@pytest.mark.parametrize("what", sorted(FAULTS))
@pytest.mark.parametrize("protocol", [StickyProtocol, CooperativeStickyProtocol])
def test_faults_of_java_are_not_followed(protocol, what, faults):
    each, answer = faults[protocol, what]
    assert is_faulty(each, answer)
    assert unsound(each.given, each.members, each.partitions, not protocol.is_cooperative) is None
