"""The assignment protocols by themselves: what each promises, on any group."""
import collections
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kiel.exc import ProtocolError
from kiel.groups import (
    CooperativeStickyProtocol,
    GroupMembershipProtocol,
    RangeProtocol,
    RoundRobinProtocol,
    StickyProtocol,
    Subscription,
)
from kiel.groups.java_order import PartitionSet, in_map_order, string_hash, utf16
from kiel.protocol.consumer_protocol import ConsumerProtocolSubscription
from tests.groups.scenarios import PROTOCOLS, Scenario, pairs, unsound

STICKY = [StickyProtocol, CooperativeStickyProtocol]
MEMBERS = ["m%d" % number for number in range(6)]
TOPICS = ["t%d" % number for number in range(4)]


def each_protocol(protocols=PROTOCOLS):
    return pytest.mark.parametrize("protocol", [cls() for cls in protocols], ids=lambda protocol: protocol.name)


def join(protocol, topics, had=None, generation=-1, instance=None):
    """A member's Subscription, by way of its bytes: a new one, or one that had something."""
    owned = had or [] if protocol.is_cooperative else []
    return protocol.read_metadata(protocol.join_metadata(topics, owned, generation, had), instance)


def settled(protocol, topics_of, partitions, had=None, generation=0):
    """What members have once they join no more: {member: [(topic, partition)]}."""
    had = had or {}
    for generation in range(generation + 1, generation + 4):
        members = dict(
            (name, join(protocol, topics_of[name], had.get(name), generation - 1 if name in had else -1))
            for name in topics_of
        )
        shares = protocol.assign(members, partitions)
        assert unsound(shares, members, partitions, whole=not protocol.is_cooperative) is None
        before, had = had, dict((name, pairs(shares[name])) for name in shares)
        if not protocol.is_cooperative or all(set(before.get(name, ())) <= set(had[name]) for name in had):
            assert unsound(shares, members, partitions) is None
            return had
        for name in had:  # what moves has no owner for one round, and then its new one
            for other in before:
                assert other == name or not set(had[name]) & set(before[other])
    raise AssertionError("the members never settle")


groups = st.dictionaries(st.sampled_from(MEMBERS), st.sets(st.sampled_from(TOPICS + ["nowhere"])), min_size=1)
clusters = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9))


# all of them


@each_protocol()
@given(topics_of=groups, partitions=clusters)
def test_every_partition_has_one_owner_that_is_subscribed(protocol, topics_of, partitions):
    settled(protocol, topics_of, partitions)


@each_protocol()
@given(topics_of=groups, partitions=clusters)
def test_the_order_of_partitions_and_topics_given_to_it_is_all_the_same(protocol, topics_of, partitions):
    members = dict((name, join(protocol, topics)) for name, topics in ((n, topics_of[n]) for n in topics_of))
    listed = dict((topic, list(reversed(range(count)))) for topic, count in reversed(sorted(partitions.items())))
    assert protocol.assign(members, listed) == protocol.assign(members, partitions)


@each_protocol()
def test_a_leader_that_is_not_subscribed_to_the_topics_of_others(protocol):
    had = settled(protocol, {"A": ["t1"], "B": ["t2"], "C": ["t1", "t2"]}, {"t1": 4, "t2": 4, "t3": 4})
    assert {topic for topic, _ in had["A"]} == {"t1"}
    assert {topic for topic, _ in had["B"]} == {"t2"}


@each_protocol()
def test_a_topic_that_does_not_exist_breaks_none_of_the_others(protocol):
    had = settled(protocol, {"A": ["t1", "nowhere"], "B": ["nowhere"], "C": ["t1", "empty"]}, {"t1": 4, "empty": 0})
    assert (len(had["A"]), had["B"], len(had["C"])) == (2, [], 2)


@each_protocol()
def test_nobody_and_nothing(protocol):
    assert protocol.assign({}, {"t1": 3}) == {}
    assert protocol.assign({"A": Subscription([])}, {"t1": 3}) == {"A": {}}
    assert protocol.assign({"A": Subscription(["t1"])}, {}) == {"A": {}}


@each_protocol()
def test_a_member_without_topics_gets_nothing(protocol):
    """Java's sticky assignors take the others' topics for its own, if it comes first."""
    had = settled(protocol, {"A": [], "B": ["t1"]}, {"t1": 4})
    assert had["A"] == [] and len(had["B"]) == 4


@each_protocol()
def test_partitions_may_have_any_ids(protocol):
    given_out = protocol.assign({"A": Subscription(["t1"]), "B": Subscription(["t1"])}, {"t1": [7, 2, 5, 11]})
    assert sorted(pairs(given_out["A"]) + pairs(given_out["B"])) == [("t1", each) for each in (2, 5, 7, 11)]


@each_protocol()
def test_assignments_survive_their_bytes(protocol):
    assignment = collections.OrderedDict([("t2", [3, 1]), ("t1", [0])])
    assert protocol.read_assignment(protocol.write_assignment(assignment)) == assignment
    assert protocol.read_assignment(protocol.write_assignment({})) == {}
    assert protocol.read_assignment(b"") == {}


@each_protocol()
@given(data=st.binary(max_size=80), version=st.integers(0, 4))
def test_any_metadata_and_assignment_end_in_values_or_a_protocol_error(protocol, data, version):
    for prefix in (b"", b"\0" + bytes(bytearray([version])) + b"\0\0\0\1\0\2t1"):
        try:
            told = protocol.read_metadata(prefix + data)
        except ProtocolError:
            pass
        else:
            protocol.assign({"A": told, "B": join(protocol, ["t1"])}, {"t1": 3})
        try:
            protocol.read_assignment(prefix + data)
        except ProtocolError:
            pass


@each_protocol()
@given(data=st.none() | st.binary(max_size=60))
def test_any_user_data_leave_a_sound_assignment(protocol, data):
    told = ConsumerProtocolSubscription(topics=["t1"], user_data=data).to_bytes()
    members = {"A": protocol.read_metadata(told), "B": join(protocol, ["t1"])}
    assert unsound(protocol.assign(members, {"t1": 3}), members, {"t1": 3}) is None


# those without a memory


def test_ranges_are_cut_alike_for_topics_that_are_alike():
    members = dict((name, Subscription(["t1", "t2"])) for name in "ABC")
    shares = RangeProtocol().assign(members, {"t1": 7, "t2": 7})
    assert shares == {
        "A": {"t1": [0, 1, 2], "t2": [0, 1, 2]},
        "B": {"t1": [3, 4], "t2": [3, 4]},
        "C": {"t1": [5, 6], "t2": [5, 6]},
    }


@given(topics_of=groups, partitions=clusters)
def test_ranges_of_a_topic_are_runs_of_nearly_one_length(topics_of, partitions):
    shares = RangeProtocol().assign(dict((n, Subscription(sorted(topics_of[n]))) for n in topics_of), partitions)
    for topic in partitions:
        takers = [name for name in shares if topic in topics_of[name]]
        runs = [shares[name].get(topic, []) for name in takers]
        assert all(run == list(range(run[0], run[-1] + 1)) for run in runs if run)
        assert not runs or max(map(len, runs)) - min(map(len, runs)) <= 1


def test_partitions_are_dealt_out_in_turn():
    members = {"A": Subscription(["t1"]), "B": Subscription(["t2", "t1"]), "C": Subscription(["t2"])}
    shares = RoundRobinProtocol().assign(members, {"t1": 3, "t2": 3})
    assert shares == {"A": {"t1": [0, 2]}, "B": {"t1": [1], "t2": [0, 2]}, "C": {"t2": [1]}}


@each_protocol([RoundRobinProtocol, StickyProtocol, CooperativeStickyProtocol])
@given(names=st.sets(st.sampled_from(MEMBERS), min_size=1), partitions=clusters)
def test_with_the_same_topics_nobody_has_two_more_than_another(protocol, names, partitions):
    sizes = [len(had) for had in settled(protocol, dict((name, TOPICS) for name in names), partitions).values()]
    assert max(sizes) - min(sizes) <= 1


@each_protocol([RangeProtocol, RoundRobinProtocol])
def test_static_members_come_first_by_their_names(protocol):
    members = {
        "A": Subscription(["t1"]),
        "B": Subscription(["t1"], group_instance_id="two"),
        "C": Subscription(["t1"], group_instance_id="one"),
    }
    assert protocol.assign(members, {"t1": 3}) == {"C": {"t1": [0]}, "B": {"t1": [1]}, "A": {"t1": [2]}}


# the sticky ones


@each_protocol(STICKY)
@given(topics_of=groups, partitions=clusters)
def test_nothing_moves_where_nothing_changes(protocol, topics_of, partitions):
    had = settled(protocol, topics_of, partitions)
    again = settled(protocol, topics_of, partitions, had, generation=5)
    assert dict((name, set(had[name])) for name in had) == dict((name, set(again[name])) for name in again)


@each_protocol(STICKY)
@given(names=st.sets(st.sampled_from(MEMBERS), min_size=2), partitions=clusters)
def test_those_who_stay_keep_what_they_have(protocol, names, partitions):
    topics_of = dict((name, TOPICS) for name in names)
    had = settled(protocol, topics_of, partitions)
    gone = sorted(names)[0]
    del topics_of[gone], had[gone]
    after = settled(protocol, topics_of, partitions, had, generation=5)
    assert all(set(had[name]) <= set(after[name]) for name in had)


@each_protocol(STICKY)
@given(topics_of=groups, partitions=clusters)
def test_nobody_could_take_one_from_a_member_with_two_more(protocol, topics_of, partitions):
    had = settled(protocol, topics_of, partitions)
    for name in had:
        for other in had:
            if len(had[name]) + 1 < len(had[other]):
                assert not {topic for topic, _ in had[other]} & topics_of[name]


@each_protocol(STICKY)
def test_partitions_that_are_gone_are_passed_over(protocol):
    """Java's sticky assignors keep them, and give others out twice."""
    had = {"A": [("t1", 0), ("t1", 7)], "B": [("t1", 1), ("t1", -1), ("gone", 0)]}
    after = settled(protocol, {"A": ["t1"], "B": ["t1"]}, {"t1": 4}, had, generation=5)
    assert ("t1", 0) in after["A"] and ("t1", 1) in after["B"]


@each_protocol(STICKY)
def test_the_newer_generation_has_what_two_claim(protocol):
    both = [("t1", 0), ("t1", 1)]
    members = {"A": join(protocol, ["t1"], both, 4), "B": join(protocol, ["t1"], both[:1], 5)}
    shares = protocol.assign(members, {"t1": 2})
    assert shares == {"A": {"t1": [1]}, "B": {"t1": [0]}}


def test_what_two_claim_in_one_generation_is_given_to_nobody_at_first():
    protocol = CooperativeStickyProtocol()
    members = dict((name, join(protocol, ["t1"], [("t1", 0)], 4)) for name in "AB")
    shares = protocol.assign(members, {"t1": 2})
    assert sorted(pairs(shares["A"]) + pairs(shares["B"])) == [("t1", 1)]


@each_protocol(STICKY)
@settings(max_examples=20)
@given(seed=st.integers(0, 2 ** 32))
def test_groups_in_which_anything_may_happen_are_given_sound_shares(protocol, seed):
    for each in Scenario(protocol, seed).rounds:
        whole = not protocol.is_cooperative
        assert unsound(each.given, each.members, each.partitions, whole) is None


def test_what_the_sticky_one_had_is_in_its_user_data():
    told = ConsumerProtocolSubscription.from_bytes(StickyProtocol().metadata(["t1"], (), 5, [("t1", 3)]))
    assert told.user_data == b"\0\0\0\1\0\2t1\0\0\0\1\0\0\0\3" b"\0\0\0\5"
    assert (told.owned_partitions, told.generation_id) == ([], 5)
    first = ConsumerProtocolSubscription.from_bytes(StickyProtocol().metadata(["t1"]))
    assert (first.user_data, first.generation_id) == (None, -1)


def test_user_data_of_old_java_clients_have_no_generation():
    protocol = StickyProtocol()
    told = Subscription(["t1"], user_data=b"\0\0\0\1\0\2t1\0\0\0\1\0\0\0\3")
    assert protocol.had(told) == ([("t1", 3)], -1)


def test_what_the_cooperative_one_owns_is_in_its_subscription():
    data = CooperativeStickyProtocol().metadata({"t2", "t1"}, {("t2", 1), ("t1", 3), ("t1", 0)}, 5)
    told = ConsumerProtocolSubscription.from_bytes(data)
    assert (told.topics, told.generation_id, told.user_data) == (["t1", "t2"], 5, struct.pack(">i", 5))
    assert [(each.topic, each.partitions) for each in told.owned_partitions] == [("t1", [0, 3]), ("t2", [1])]


def test_members_of_before_version_2_tell_their_generation_in_user_data():
    data = CooperativeStickyProtocol().metadata(["t1"], [("t1", 3)], 5)
    old = ConsumerProtocolSubscription.from_bytes(data).to_bytes(1)
    told = CooperativeStickyProtocol().read_metadata(old)
    assert told.generation == -1
    assert CooperativeStickyProtocol().had(told) == ([("t1", 3)], 5)


# the plug-in point


class FirstTakesAll(GroupMembershipProtocol):
    name = "first-takes-all"

    def metadata(self, topics):
        return b"first " + ",".join(sorted(topics)).encode("ascii")

    def read_metadata(self, data, group_instance_id=None):
        return Subscription(data.decode("ascii").split(" ")[1].split(","))

    def assign(self, members, partitions):
        first = min(members)
        everything = dict((topic, list(range(partitions[topic]))) for topic in members[first].topics)
        return dict((member, everything if member == first else {}) for member in members)


def test_a_protocol_of_an_applications_own():
    protocol = FirstTakesAll()
    members = dict((name, protocol.read_metadata(protocol.join_metadata(["t1"], (), -1, None))) for name in "AB")
    assert protocol.assign(members, {"t1": 2}) == {"A": {"t1": [0, 1]}, "B": {}}
    assert not protocol.is_cooperative


def test_a_protocol_without_metadata_of_its_own_tells_its_topics():
    protocol = GroupMembershipProtocol()
    assert protocol.read_metadata(protocol.metadata(["t2", "t1"]), "me") == Subscription(
        ["t1", "t2"], [], -1, None, "me", None
    )
    with pytest.raises(NotImplementedError):
        protocol.assign({}, {})


# Java's orders


def test_strings_have_the_hashes_that_java_gives_them():
    # String.hashCode: of "polygenelubricants" it is the lowest int there is
    assert string_hash("polygenelubricants") == 0x80000000
    assert string_hash("") == 0
    assert string_hash("Aa") == string_hash("BB") == 2112
    assert string_hash(u"\U0001f600") == 31 * 0xD83D + 0xDE00


def test_strings_are_sorted_by_utf_16():
    assert utf16(u"\U0001f600") < utf16(u"\ufb01")


def test_names_come_by_bucket_and_then_in_their_order():
    # "Aa" and "BB" share a bucket, after that of "a" ("b" has the next one) in a table of 16, as 97 % 16 is 1
    assert in_map_order(["b", "BB", "a", "Aa"]) == ["BB", "Aa", "a", "b"]


def test_a_set_grows_and_does_not_shrink():
    # a topic without letters has the hash 0: partitions have the hashes 961, 962 ... (1 modulo 16, and modulo 32)
    partitions = PartitionSet()
    for partition in (15, 3, 31):
        partitions.add((u"", partition))
    assert (len(partitions), partitions.first()) == (3, (u"", 15))
    for partition in range(100, 110):
        partitions.add((u"", partition))
    for partition in range(100, 110):
        partitions.remove((u"", partition))
    assert partitions.first() == (u"", 31)
