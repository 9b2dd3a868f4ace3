import pytest

from kiel import exc
from kiel.protocol import errors

REACTIONS = {
    errors.NONE, errors.RETRY, errors.REFRESH_METADATA, errors.FIND_COORDINATOR, errors.REJOIN,
    errors.REJOIN_AS_NEW, errors.RESET_OFFSET, errors.NEW_PRODUCER_ID, errors.GIVE_UP,
}


def test_there_is_one_row_for_each_code():
    assert [row.code for row in errors.ROWS] == list(range(-1, 137))
    assert len({row.name for row in errors.ROWS}) == len(errors.ROWS)


@pytest.mark.parametrize("row", errors.ROWS, ids=lambda row: row.name)
def test_each_row_can_be_acted_on(row):
    assert errors.lookup(row.code) is row
    assert errors.named(row.name) is row
    assert row.reaction in REACTIONS
    assert row.text
    if row.retriable:
        assert row.reaction not in (errors.GIVE_UP, errors.RESET_OFFSET)
    error = errors.exception(row.code)
    assert isinstance(error, exc.BrokerError)
    assert (error.code, error.name, error.retriable) == (row.code, row.name, row.retriable)


@pytest.mark.parametrize(
    "name, reaction",
    [
        ("NONE", errors.NONE),
        ("OFFSET_OUT_OF_RANGE", errors.RESET_OFFSET),
        ("LEADER_NOT_AVAILABLE", errors.REFRESH_METADATA),
        ("NOT_LEADER_OR_FOLLOWER", errors.REFRESH_METADATA),
        ("REQUEST_TIMED_OUT", errors.RETRY),
        ("COORDINATOR_LOAD_IN_PROGRESS", errors.RETRY),
        ("COORDINATOR_NOT_AVAILABLE", errors.FIND_COORDINATOR),
        ("NOT_COORDINATOR", errors.FIND_COORDINATOR),
        ("ILLEGAL_GENERATION", errors.REJOIN),
        ("REBALANCE_IN_PROGRESS", errors.REJOIN),
        ("UNKNOWN_MEMBER_ID", errors.REJOIN_AS_NEW),
        ("MEMBER_ID_REQUIRED", errors.REJOIN),
        ("FENCED_INSTANCE_ID", errors.GIVE_UP),
        ("INCONSISTENT_GROUP_PROTOCOL", errors.GIVE_UP),
        ("OUT_OF_ORDER_SEQUENCE_NUMBER", errors.NEW_PRODUCER_ID),
        ("MESSAGE_TOO_LARGE", errors.GIVE_UP),
        ("UNKNOWN_SERVER_ERROR", errors.GIVE_UP),
    ],
)
def test_reactions(name, reaction):
    assert errors.named(name).reaction == reaction


@pytest.mark.parametrize("code", [137, 999, -2, 32767])
def test_a_code_that_is_not_in_the_table_is_an_error_with_its_number(code):
    row = errors.lookup(code)
    assert (row.code, row.name, row.reaction, row.retriable) == (code, "UNKNOWN_CODE", errors.GIVE_UP, False)
    assert "UNKNOWN_CODE (error %d)" % code in str(errors.exception(code))


@pytest.mark.parametrize(
    "name, cls",
    [
        ("TOPIC_AUTHORIZATION_FAILED", exc.AuthorizationError),
        ("GROUP_AUTHORIZATION_FAILED", exc.AuthorizationError),
        ("CLUSTER_AUTHORIZATION_FAILED", exc.AuthorizationError),
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", exc.AuthorizationError),
        ("INVALID_TOPIC_EXCEPTION", exc.InvalidTopicError),
        ("UNKNOWN_TOPIC_OR_PARTITION", exc.UnknownTopicError),
        ("UNKNOWN_TOPIC_ID", exc.UnknownTopicError),
        ("REQUEST_TIMED_OUT", exc.BrokerError),
    ],
)
def test_errors_have_their_classes(name, cls):
    assert type(errors.exception(errors.named(name).code)) is cls


def test_an_error_says_what_it_is_about_and_prefers_the_brokers_text():
    error = errors.exception(29, about="topic events", text="principal x may not read")
    assert str(error) == "topic events: TOPIC_AUTHORIZATION_FAILED (error 29): principal x may not read"
    assert str(errors.exception(29)) == "TOPIC_AUTHORIZATION_FAILED (error 29): not allowed on the topic"
