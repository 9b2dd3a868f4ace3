"""What tests call APIs and errors, as the numbers that Kafka knows them by."""
import numbers

import six

from kiel.exc import ConfigurationError
from kiel.protocol import errors

# An error of librdkafka's (__TRANSPORT), none of Kafka's: the mock cluster closes the connection instead.
DISCONNECT = -195

APIS = {
    0: "produce",
    1: "fetch",
    2: "offset",
    3: "metadata",
    8: "offset_commit",
    9: "offset_fetch",
    10: "group_coordinator",
    11: "join_group",
    12: "heartbeat",
    13: "leave_group",
    14: "sync_group",
    18: "api_versions",
    22: "init_producer_id",
    23: "offset_for_leader_epoch",
    24: "add_partitions_to_txn",
    25: "add_offsets_to_txn",
    26: "end_txn",
    28: "txn_offset_commit",
}

KEYS = dict((name, key) for key, name in APIS.items())
KEYS.update({"list_offsets": 2, "find_coordinator": 10})  # as Kafka calls them
NAMES = dict((row.name, row.code) for row in errors.ROWS)


def api_name(key):
    """kiel's name of the API with that key; "api_77" for one that no client of kiel's speaks."""
    return APIS.get(key, "api_%d" % key)


def api_key(api):
    """The key of `api`: a request class of kiel's, a name such as "produce", or the key itself."""
    api = getattr(api, "key", api)
    if isinstance(api, six.string_types) and api in KEYS:
        return KEYS[api]
    if isinstance(api, numbers.Integral) and not isinstance(api, bool) and 0 <= api < 2 ** 15:
        return api
    raise ConfigurationError(
        "%r is no API: give a request class, a key, or one of %s" % (api, ", ".join(sorted(KEYS)))
    )


def error_code(error):
    """The code of `error`: a row of kiel.protocol.errors, a name, or the code itself."""
    error = getattr(error, "code", error)
    if isinstance(error, six.string_types):
        if error in NAMES:
            return NAMES[error]
    elif isinstance(error, numbers.Integral) and not isinstance(error, bool):
        if error == DISCONNECT or -1 <= error < 2 ** 15:
            return error
    raise ConfigurationError("%r is no error of Kafka's: give its code, its name, or DISCONNECT" % (error,))
