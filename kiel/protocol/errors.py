"""The error codes of Kafka 4.4 and the reaction that each calls for: the one table that retry loops read."""
import collections

from kiel.exc import AuthorizationError, BrokerError, InvalidTopicError, UnknownTopicError

# What to do about an error
NONE = "none"  # nothing: what was asked for is so
RETRY = "retry"  # the same again, after a while
REFRESH_METADATA = "refresh metadata"  # find the leader (or the controller) first
FIND_COORDINATOR = "find the coordinator"  # look up the group's or transaction's coordinator first
REJOIN = "rejoin"  # join the group again, as the same member
REJOIN_AS_NEW = "rejoin as new"  # join the group again, without a member id
RESET_OFFSET = "reset the offset"  # start from where auto_offset_reset says
NEW_PRODUCER_ID = "new producer id"  # a new producer id or epoch, and sequence numbers from 0
GIVE_UP = "give up"  # tell the application


class Row(collections.namedtuple("Row", ("code", "name", "reaction", "retriable", "text"))):
    """An error: Kafka's number and name, the reaction, whether Kafka retries it, what it means."""

    __slots__ = ()


_TABLE = (
    (-1, "UNKNOWN_SERVER_ERROR", GIVE_UP, False, "the broker failed; its log says why"),
    (0, "NONE", NONE, False, "no error"),
    (1, "OFFSET_OUT_OF_RANGE", RESET_OFFSET, False, "the partition has no such offset (any more)"),
    (2, "CORRUPT_MESSAGE", RETRY, True, "a damaged record, or one without a key for a compacted topic"),
    (3, "UNKNOWN_TOPIC_OR_PARTITION", REFRESH_METADATA, True, "this broker has no such topic or partition"),
    (4, "INVALID_FETCH_SIZE", GIVE_UP, False, "the fetch size can't be right"),
    (5, "LEADER_NOT_AVAILABLE", REFRESH_METADATA, True, "the partition has no leader at the moment"),
    (6, "NOT_LEADER_OR_FOLLOWER", REFRESH_METADATA, True, "another broker leads the partition"),
    (7, "REQUEST_TIMED_OUT", RETRY, True, "the broker couldn't do it in the time given"),
    (8, "BROKER_NOT_AVAILABLE", GIVE_UP, False, "the broker is not available"),
    (9, "REPLICA_NOT_AVAILABLE", REFRESH_METADATA, True, "the replica is not available"),
    (10, "MESSAGE_TOO_LARGE", GIVE_UP, False, "larger than the topic's max.message.bytes"),
    (11, "STALE_CONTROLLER_EPOCH", GIVE_UP, False, "another broker is the controller now"),
    (12, "OFFSET_METADATA_TOO_LARGE", GIVE_UP, False, "the metadata of a committed offset is too large"),
    (13, "NETWORK_EXCEPTION", REFRESH_METADATA, True, "the broker hung up before it answered"),
    (14, "COORDINATOR_LOAD_IN_PROGRESS", RETRY, True, "the coordinator is loading its state"),
    (15, "COORDINATOR_NOT_AVAILABLE", FIND_COORDINATOR, True, "there is no coordinator at the moment"),
    (16, "NOT_COORDINATOR", FIND_COORDINATOR, True, "another broker is the coordinator"),
    (17, "INVALID_TOPIC_EXCEPTION", GIVE_UP, False, "no topic can have this name, or it is internal"),
    (18, "RECORD_LIST_TOO_LARGE", GIVE_UP, False, "the batch is larger than the broker's segments"),
    (19, "NOT_ENOUGH_REPLICAS", RETRY, True, "fewer replicas in sync than min.insync.replicas"),
    (20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", RETRY, True, "written, but to too few replicas in sync"),
    (21, "INVALID_REQUIRED_ACKS", GIVE_UP, False, "required acks must be 0, 1 or -1"),
    (22, "ILLEGAL_GENERATION", REJOIN, False, "the group is past that generation"),
    (23, "INCONSISTENT_GROUP_PROTOCOL", GIVE_UP, False, "no protocol in common with the group's members"),
    (24, "INVALID_GROUP_ID", GIVE_UP, False, "not a name that a group can have"),
    (25, "UNKNOWN_MEMBER_ID", REJOIN_AS_NEW, False, "the coordinator doesn't know this member"),
    (26, "INVALID_SESSION_TIMEOUT", GIVE_UP, False, "outside the broker's group.*.session.timeout.ms"),
    (27, "REBALANCE_IN_PROGRESS", REJOIN, False, "the group is rebalancing"),
    (28, "INVALID_COMMIT_OFFSET_SIZE", GIVE_UP, False, "the commit is too large"),
    (29, "TOPIC_AUTHORIZATION_FAILED", GIVE_UP, False, "not allowed on the topic"),
    (30, "GROUP_AUTHORIZATION_FAILED", GIVE_UP, False, "not allowed on the group"),
    (31, "CLUSTER_AUTHORIZATION_FAILED", GIVE_UP, False, "not allowed on the cluster"),
    (32, "INVALID_TIMESTAMP", GIVE_UP, False, "the record's timestamp is out of the accepted range"),
    (33, "UNSUPPORTED_SASL_MECHANISM", GIVE_UP, False, "the broker hasn't got this SASL mechanism"),
    (34, "ILLEGAL_SASL_STATE", GIVE_UP, False, "not a request for this state of authentication"),
    (35, "UNSUPPORTED_VERSION", GIVE_UP, False, "the broker doesn't speak this version of the API"),
    (36, "TOPIC_ALREADY_EXISTS", GIVE_UP, False, "there is such a topic already"),
    (37, "INVALID_PARTITIONS", GIVE_UP, False, "not a number of partitions that can be"),
    (38, "INVALID_REPLICATION_FACTOR", GIVE_UP, False, "below 1, or more replicas than brokers"),
    (39, "INVALID_REPLICA_ASSIGNMENT", GIVE_UP, False, "not an assignment of replicas that can be"),
    (40, "INVALID_CONFIG", GIVE_UP, False, "not a configuration that can be"),
    (41, "NOT_CONTROLLER", REFRESH_METADATA, True, "another broker is the controller"),
    (42, "INVALID_REQUEST", GIVE_UP, False, "the broker's log says what is wrong"),
    (43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", GIVE_UP, False, "the topic's message format is too old for it"),
    (44, "POLICY_VIOLATION", GIVE_UP, False, "against a policy of the cluster"),
    (45, "OUT_OF_ORDER_SEQUENCE_NUMBER", NEW_PRODUCER_ID, False, "batches before this one are missing"),
    (46, "DUPLICATE_SEQUENCE_NUMBER", NONE, False, "the batch is in the log already"),
    (47, "INVALID_PRODUCER_EPOCH", NEW_PRODUCER_ID, False, "the producer's epoch is over"),
    (48, "INVALID_TXN_STATE", GIVE_UP, False, "not possible in this state of the transaction"),
    (49, "INVALID_PRODUCER_ID_MAPPING", NEW_PRODUCER_ID, False, "not the transactional id's producer id"),
    (50, "INVALID_TRANSACTION_TIMEOUT", GIVE_UP, False, "over the broker's transaction.max.timeout.ms"),
    (51, "CONCURRENT_TRANSACTIONS", RETRY, True, "the transaction before is still being completed"),
    (52, "TRANSACTION_COORDINATOR_FENCED", GIVE_UP, False, "a newer transaction coordinator is at work"),
    (53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", GIVE_UP, False, "not allowed on the transactional id"),
    (54, "SECURITY_DISABLED", GIVE_UP, False, "the cluster has no authorizer"),
    (55, "OPERATION_NOT_ATTEMPTED", GIVE_UP, False, "not tried: another part failed"),
    (56, "KAFKA_STORAGE_ERROR", REFRESH_METADATA, True, "the broker's disk failed"),
    (57, "LOG_DIR_NOT_FOUND", GIVE_UP, False, "the broker has no such log directory"),
    (58, "SASL_AUTHENTICATION_FAILED", GIVE_UP, False, "the broker refused the credentials"),
    (59, "UNKNOWN_PRODUCER_ID", NEW_PRODUCER_ID, False, "the broker has forgotten this producer"),
    (60, "REASSIGNMENT_IN_PROGRESS", GIVE_UP, False, "the partition is being reassigned"),
    (61, "DELEGATION_TOKEN_AUTH_DISABLED", GIVE_UP, False, "the cluster has no delegation tokens"),
    (62, "DELEGATION_TOKEN_NOT_FOUND", GIVE_UP, False, "no such delegation token"),
    (63, "DELEGATION_TOKEN_OWNER_MISMATCH", GIVE_UP, False, "not the token's owner or renewer"),
    (64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED", GIVE_UP, False, "not over a connection of this kind"),
    (65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", GIVE_UP, False, "not allowed on the delegation token"),
    (66, "DELEGATION_TOKEN_EXPIRED", GIVE_UP, False, "the delegation token's time is over"),
    (67, "INVALID_PRINCIPAL_TYPE", GIVE_UP, False, "not a type of principal that the broker knows"),
    (68, "NON_EMPTY_GROUP", GIVE_UP, False, "the group still has members"),
    (69, "GROUP_ID_NOT_FOUND", GIVE_UP, False, "no such group"),
    (70, "FETCH_SESSION_ID_NOT_FOUND", RETRY, True, "the broker has forgotten the fetch session"),
    (71, "INVALID_FETCH_SESSION_EPOCH", RETRY, True, "not the fetch session's next epoch"),
    (72, "LISTENER_NOT_FOUND", REFRESH_METADATA, True, "the leader has no listener of the name used here"),
    (73, "TOPIC_DELETION_DISABLED", GIVE_UP, False, "the broker's delete.topic.enable is off"),
    (74, "FENCED_LEADER_EPOCH", REFRESH_METADATA, True, "the leader's epoch used here is over"),
    (75, "UNKNOWN_LEADER_EPOCH", RETRY, True, "the broker doesn't know of that leader's epoch yet"),
    (76, "UNSUPPORTED_COMPRESSION_TYPE", GIVE_UP, False, "this version can't carry the codec"),
    (77, "STALE_BROKER_EPOCH", GIVE_UP, False, "the broker has registered again since"),
    (78, "OFFSET_NOT_AVAILABLE", RETRY, True, "a new leader doesn't know the end of its log yet"),
    (79, "MEMBER_ID_REQUIRED", REJOIN, False, "to be joined again with the member id given"),
    (80, "PREFERRED_LEADER_NOT_AVAILABLE", REFRESH_METADATA, True, "the preferred leader is not available"),
    (81, "GROUP_MAX_SIZE_REACHED", GIVE_UP, False, "the group has as many members as the broker allows"),
    (82, "FENCED_INSTANCE_ID", GIVE_UP, False, "another member has this group_instance_id"),
    (83, "ELIGIBLE_LEADERS_NOT_AVAILABLE", REFRESH_METADATA, True, "no replica is fit to lead"),
    (84, "ELECTION_NOT_NEEDED", NONE, True, "the right replica leads already"),
    (85, "NO_REASSIGNMENT_IN_PROGRESS", GIVE_UP, False, "the partition isn't being reassigned"),
    (86, "GROUP_SUBSCRIBED_TO_TOPIC", GIVE_UP, False, "the group is consuming the topic"),
    (87, "INVALID_RECORD", GIVE_UP, False, "the broker's checks reject the record"),
    (88, "UNSTABLE_OFFSET_COMMIT", RETRY, True, "a transaction is about to commit offsets"),
    (89, "THROTTLING_QUOTA_EXCEEDED", RETRY, True, "over the quota for such changes"),
    (90, "PRODUCER_FENCED", GIVE_UP, False, "a newer producer has this transactional id"),
    (91, "RESOURCE_NOT_FOUND", GIVE_UP, False, "no such resource"),
    (92, "DUPLICATE_RESOURCE", GIVE_UP, False, "the same resource twice in one request"),
    (93, "UNACCEPTABLE_CREDENTIAL", GIVE_UP, False, "not a credential that the broker accepts"),
    (94, "INCONSISTENT_VOTER_SET", GIVE_UP, False, "sender or receiver is not one of the voters"),
    (95, "INVALID_UPDATE_VERSION", GIVE_UP, False, "not a version to update to"),
    (96, "FEATURE_UPDATE_FAILED", GIVE_UP, False, "the features couldn't be updated"),
    (97, "PRINCIPAL_DESERIALIZATION_FAILURE", GIVE_UP, False, "a broker couldn't read a forwarded principal"),
    (98, "SNAPSHOT_NOT_FOUND", GIVE_UP, False, "no such snapshot"),
    (99, "POSITION_OUT_OF_RANGE", GIVE_UP, False, "outside the snapshot"),
    (100, "UNKNOWN_TOPIC_ID", REFRESH_METADATA, True, "this broker has no topic with this id"),
    (101, "DUPLICATE_BROKER_REGISTRATION", GIVE_UP, False, "another broker has this id"),
    (102, "BROKER_ID_NOT_REGISTERED", GIVE_UP, False, "no broker has this id"),
    (103, "INCONSISTENT_TOPIC_ID", REFRESH_METADATA, True, "the topic was created again, with another id"),
    (104, "INCONSISTENT_CLUSTER_ID", GIVE_UP, False, "the broker belongs to another cluster"),
    (105, "TRANSACTIONAL_ID_NOT_FOUND", GIVE_UP, False, "no such transactional id"),
    (106, "FETCH_SESSION_TOPIC_ID_ERROR", RETRY, True, "topics' names and ids mixed in a fetch session"),
    (107, "INELIGIBLE_REPLICA", GIVE_UP, False, "a replica that can't be in sync"),
    (108, "NEW_LEADER_ELECTED", GIVE_UP, False, "done, and another replica leads now"),
    (109, "OFFSET_MOVED_TO_TIERED_STORAGE", GIVE_UP, False, "the offset is in tiered storage"),
    (110, "FENCED_MEMBER_EPOCH", REJOIN, False, "the member's epoch and partitions are lost"),
    (111, "UNRELEASED_INSTANCE_ID", GIVE_UP, False, "another member still has this group_instance_id"),
    (112, "UNSUPPORTED_ASSIGNOR", GIVE_UP, False, "the group hasn't got this assignor"),
    (113, "STALE_MEMBER_EPOCH", RETRY, False, "the heartbeat will tell the newer epoch"),
    (114, "MISMATCHED_ENDPOINT_TYPE", GIVE_UP, False, "not what such an endpoint does"),
    (115, "UNSUPPORTED_ENDPOINT_TYPE", GIVE_UP, False, "not a type of endpoint that is supported"),
    (116, "UNKNOWN_CONTROLLER_ID", GIVE_UP, False, "no such controller"),
    (117, "UNKNOWN_SUBSCRIPTION_ID", GIVE_UP, False, "the telemetry subscription is out of date"),
    (118, "TELEMETRY_TOO_LARGE", GIVE_UP, False, "more telemetry than the broker accepts"),
    (119, "INVALID_REGISTRATION", GIVE_UP, False, "the controller rejects the broker's registration"),
    (120, "TRANSACTION_ABORTABLE", GIVE_UP, False, "the transaction is to be aborted"),
    (121, "INVALID_RECORD_STATE", GIVE_UP, False, "the record can't be acknowledged in its state"),
    (122, "SHARE_SESSION_NOT_FOUND", RETRY, True, "the broker has forgotten the share session"),
    (123, "INVALID_SHARE_SESSION_EPOCH", RETRY, True, "not the share session's next epoch"),
    (124, "FENCED_STATE_EPOCH", GIVE_UP, False, "the state's epoch is over"),
    (125, "INVALID_VOTER_KEY", GIVE_UP, False, "not the replica's key"),
    (126, "DUPLICATE_VOTER", GIVE_UP, False, "one of the voters already"),
    (127, "VOTER_NOT_FOUND", GIVE_UP, False, "not one of the voters"),
    (128, "INVALID_REGULAR_EXPRESSION", GIVE_UP, False, "not one that the broker can read"),
    (129, "REBOOTSTRAP_REQUIRED", REFRESH_METADATA, False, "to be started again from the bootstrap brokers"),
    (130, "STREAMS_INVALID_TOPOLOGY", GIVE_UP, False, "not a topology that can be"),
    (131, "STREAMS_INVALID_TOPOLOGY_EPOCH", GIVE_UP, False, "not an epoch of the topology that can be"),
    (132, "STREAMS_TOPOLOGY_FENCED", GIVE_UP, False, "the topology's epoch is over"),
    (133, "SHARE_SESSION_LIMIT_REACHED", RETRY, True, "as many share sessions as the broker allows"),
    (134, "GROUP_DELETION_FAILED", GIVE_UP, False, "the group couldn't be deleted"),
    (135, "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED", GIVE_UP, False, "see the broker's message"),
    (136, "CONTROLLER_ID_NOT_REGISTERED", GIVE_UP, False, "no controller has this id"),
)

ROWS = tuple(Row(*row) for row in _TABLE)
_by_code = dict((row.code, row) for row in ROWS)
_by_name = dict((row.name, row) for row in ROWS)
_classes = {
    "INVALID_TOPIC_EXCEPTION": InvalidTopicError,
    "UNKNOWN_TOPIC_OR_PARTITION": UnknownTopicError,
    "UNKNOWN_TOPIC_ID": UnknownTopicError,
}


def lookup(code):
    """The Row of a code; one named UNKNOWN_CODE, with that number, for a code that isn't in the table."""
    row = _by_code.get(code)
    return row or Row(code, "UNKNOWN_CODE", GIVE_UP, False, "not an error that this version of kiel knows")


def named(name):
    """The Row with Kafka's name for it."""
    return _by_name[name]


def exception(code, about=None, text=None):
    """The BrokerError for a code, of the subclass that fits it.

    `about` is the topic, partition, group or API that it concerns; `text` is the broker's own message, if
    any.
    """
    row = lookup(code)
    if row.name.endswith("_AUTHORIZATION_FAILED"):
        cls = AuthorizationError
    else:
        cls = _classes.get(row.name, BrokerError)
    return cls(row.code, row.name, row.retriable, about, text or row.text)
