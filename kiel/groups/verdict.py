"""What an error means to a member of a group: the word for it in the table of transitions."""
from kiel.exc import BrokerConnectionError, BrokerError, DeadlineError, NoBrokersError, ProtocolError
from kiel.protocol import errors

# Those whose reaction in the error table doesn't say enough
_NAMED = {
    "REBALANCE_IN_PROGRESS": "rebalance",
    "MEMBER_ID_REQUIRED": "member id given",
    "FENCED_INSTANCE_ID": "fenced",
}
_BY_REACTION = {errors.REJOIN: "lost", errors.REJOIN_AS_NEW: "lost", errors.FIND_COORDINATOR: "retry"}
# Nobody answered, or nobody who speaks Kafka
_PASSING = (BrokerConnectionError, DeadlineError, NoBrokersError, ProtocolError)


def word(error):
    """ "retry", "rebalance", "member id given", "lost", "fenced", or "refused" for all that no trying mends."""
    if not isinstance(error, BrokerError):
        return "retry" if isinstance(error, _PASSING) else "refused"
    row = errors.lookup(error.code)
    return _NAMED.get(row.name) or _BY_REACTION.get(row.reaction) or ("retry" if row.retriable else "refused")


def reaction(error):
    """The error table's reaction to a BrokerError; to any other error that of a coordinator who isn't there."""
    return errors.lookup(error.code).reaction if isinstance(error, BrokerError) else errors.FIND_COORDINATOR
