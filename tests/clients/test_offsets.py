"""Looking offsets up, without a socket: what is asked of whom, and what the answers say."""
from kiel.clients.offsets import OffsetAndTimestamp, build_requests, merge, read_response
from kiel.exc import AuthorizationError, BrokerConnectionError, BrokerError
from kiel.protocol.list_offsets import (
    EARLIEST,
    LATEST,
    ListOffsetsPartitionResponse,
    ListOffsetsTopicResponse,
    OffsetResponse,
)

LEADERS = {("a", 0): 1, ("a", 1): 2, ("a", 2): 1, ("b", 0): 1, ("b", 1): None}
WANTED = {("b", 0): LATEST, ("a", 2): EARLIEST, ("a", 0): 1357017300000, ("a", 1): LATEST, ("b", 1): LATEST}


def leader(topic, partition):
    return LEADERS[topic, partition]


def asked(request):
    return [
        (topic.name, [(each.partition_index, each.timestamp) for each in topic.partitions]) for topic in request.topics
    ]


def response(*rows):
    """An OffsetResponse of (topic, partition, error code, timestamp, offset), a topic a row."""
    return OffsetResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=partition, error_code=code, timestamp=timestamp, offset=offset
                    )
                ],
            )
            for topic, partition, code, timestamp, offset in rows
        ]
    )


def test_each_leader_is_asked_for_its_partitions():
    requests = build_requests(WANTED, leader, read_committed=False)
    assert sorted(requests) == [1, 2]
    assert asked(requests[1]) == [("a", [(0, 1357017300000), (2, EARLIEST)]), ("b", [(0, LATEST)])]
    assert asked(requests[2]) == [("a", [(1, LATEST)])]
    assert {request.replica_id for request in requests.values()} == {-1}


def test_the_isolation_level():
    for read_committed in (False, True):
        (request,) = build_requests({("a", 0): LATEST}, leader, read_committed).values()
        assert request.isolation_level == read_committed


def test_nothing_is_asked_where_no_partition_has_a_leader():
    assert build_requests({("b", 1): LATEST}, leader, False) == {}
    assert build_requests({}, leader, False) == {}


def test_a_response():
    found = read_response(response(("a", 0, 0, 1357017300123, 42), ("a", 1, 29, -1, -1), ("b", 0, 6, -1, -1)))
    assert found["a", 0] == OffsetAndTimestamp(42, 1357017300123)
    assert (found["a", 0].offset, found["a", 0].timestamp) == (42, 1357017300123)
    assert isinstance(found["a", 1], AuthorizationError)
    assert found["a", 1].about == "a[1]"
    assert found["b", 0].name == "NOT_LEADER_OR_FOLLOWER" and found["b", 0].retriable


def test_what_is_known_after_all_brokers_have_answered_or_not():
    requests = build_requests(WANTED, leader, False)
    refused = BrokerConnectionError("127.0.0.1:9092", "connect", "it can't be reached")
    answered = {("a", 0): OffsetAndTimestamp(42, 5), ("b", 0): OffsetAndTimestamp(7, -1)}
    known = merge(WANTED, requests, {1: answered, 2: refused})
    assert set(known) == set(WANTED)
    assert known["a", 0] == (42, 5) and known["b", 0] == (7, -1)
    assert known["a", 1] is refused
    # The broker left one out of its answer, and one has no leader to ask: both are to be tried again.
    for place in (("a", 2), ("b", 1)):
        assert isinstance(known[place], BrokerError)
        assert known[place].name == "LEADER_NOT_AVAILABLE" and known[place].retriable
        assert known[place].about == "%s[%d]" % place
