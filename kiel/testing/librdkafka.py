"""The functions of librdkafka that a mock cluster needs, by ctypes out of the confluent-kafka package.

Signatures are those of rdkafka.h and rdkafka_mock.h. The mock cluster's part of that API is experimental, so
each function stands here with the librdkafka that it came with.
"""
import ctypes
import os
from ctypes import c_char_p, c_int, c_int16, c_int32, c_int64, c_size_t, c_void_p

from kiel.exc import ConfigurationError, MissingDependencyError

PRODUCER = 0  # rd_kafka_type_t; a mock cluster hangs on to a client of either kind
OLDEST = (2, 6, 0)

# name: (result, arguments, first version). c_int results of the mock's functions are rd_kafka_resp_err_t.
SIGNATURES = {
    "rd_kafka_version": (c_int, [], OLDEST),
    "rd_kafka_err2name": (c_char_p, [c_int], OLDEST),
    "rd_kafka_err2str": (c_char_p, [c_int], OLDEST),
    "rd_kafka_conf_new": (c_void_p, [], OLDEST),
    "rd_kafka_conf_destroy": (None, [c_void_p], OLDEST),
    "rd_kafka_conf_set_log_cb": (None, [c_void_p, c_void_p], OLDEST),
    "rd_kafka_new": (c_void_p, [c_int, c_void_p, c_char_p, c_size_t], OLDEST),
    "rd_kafka_destroy": (None, [c_void_p], OLDEST),
    "rd_kafka_mock_cluster_new": (c_void_p, [c_void_p, c_int], OLDEST),
    "rd_kafka_mock_cluster_destroy": (None, [c_void_p], OLDEST),
    "rd_kafka_mock_cluster_bootstraps": (c_char_p, [c_void_p], OLDEST),
    "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, [c_void_p, c_int32], OLDEST),
    "rd_kafka_mock_topic_create": (c_int, [c_void_p, c_char_p, c_int, c_int], OLDEST),
    "rd_kafka_mock_topic_delete": (c_int, [c_void_p, c_char_p], (2, 15, 0)),
    "rd_kafka_mock_topic_set_error": (None, [c_void_p, c_char_p, c_int], OLDEST),
    "rd_kafka_mock_partition_delete_records": (
        c_int,
        [c_void_p, c_char_p, c_int32, c_int64],
        (2, 15, 0),
    ),
    "rd_kafka_mock_partition_set_leader": (c_int, [c_void_p, c_char_p, c_int32, c_int32], OLDEST),
    "rd_kafka_mock_push_request_errors_array": (
        None,
        [c_void_p, c_int16, c_size_t, ctypes.POINTER(c_int)],
        OLDEST,
    ),
    # Variadic: an error and a delay in milliseconds follow, both int, for each of the `cnt` answers.
    "rd_kafka_mock_broker_push_request_error_rtts": (
        c_int,
        [c_void_p, c_int32, c_int16, c_size_t],
        OLDEST,
    ),
    "rd_kafka_mock_clear_request_errors": (None, [c_void_p, c_int16], OLDEST),
    "rd_kafka_mock_broker_set_down": (c_int, [c_void_p, c_int32], OLDEST),
    "rd_kafka_mock_broker_set_up": (c_int, [c_void_p, c_int32], OLDEST),
    "rd_kafka_mock_broker_set_rtt": (c_int, [c_void_p, c_int32, c_int], OLDEST),
    "rd_kafka_mock_coordinator_set": (c_int, [c_void_p, c_char_p, c_char_p, c_int32], OLDEST),
    "rd_kafka_mock_set_apiversion": (c_int, [c_void_p, c_int16, c_int16, c_int16], OLDEST),
    "rd_kafka_mock_start_request_tracking": (None, [c_void_p], OLDEST),
    "rd_kafka_mock_clear_requests": (None, [c_void_p], OLDEST),
    "rd_kafka_mock_get_requests": (ctypes.POINTER(c_void_p), [c_void_p, ctypes.POINTER(c_size_t)], OLDEST),
    "rd_kafka_mock_request_destroy_array": (None, [ctypes.POINTER(c_void_p), c_size_t], OLDEST),
    "rd_kafka_mock_request_id": (c_int32, [c_void_p], OLDEST),
    "rd_kafka_mock_request_api_key": (c_int16, [c_void_p], OLDEST),
    "rd_kafka_mock_request_timestamp": (c_int64, [c_void_p], OLDEST),
}

_functions = None


class Functions(object):
    """librdkafka's functions as attributes, without the "rd_kafka_" that all of their names begin with."""

    def __init__(self, library):
        library.rd_kafka_version.restype = c_int
        number = library.rd_kafka_version()  # 0xMMmmrrpp
        self.installed = (number >> 24 & 0xFF, number >> 16 & 0xFF, number >> 8 & 0xFF)
        if self.installed < OLDEST:
            raise MissingDependencyError(_too_old("EmbeddedCluster", OLDEST, self.installed))
        for name, (result, arguments, since) in SIGNATURES.items():
            function = getattr(library, name, None)
            if function is None:
                function = _missing(name, since, self.installed)
            else:
                function.restype, function.argtypes = result, arguments
            setattr(self, name[len("rd_kafka_"):], function)

    def check(self, doing, code):
        """Raise ConfigurationError if `code`, what a call of `doing` answered, is an error."""
        if code:
            text, name = self.err2str(code).decode("utf-8"), self.err2name(code).decode("utf-8")
            raise ConfigurationError("%s: %s (%s)" % (doing, text, name))


def load():
    """The Functions of the librdkafka that confluent-kafka brought; MissingDependencyError without one."""
    global _functions
    if _functions is None:
        _functions = Functions(_find())
    return _functions


def _find():
    try:
        # Imported, and not just looked for, so that the dynamic linker finds what the library itself needs.
        from confluent_kafka import cimpl
    except ImportError as error:
        raise MissingDependencyError(
            "EmbeddedCluster runs on librdkafka, which the confluent-kafka package brings along; "
            "install it with: pip install 'kiel[testing]' (%s)" % error
        )
    for path in _candidates(os.path.abspath(cimpl.__file__)):
        library = ctypes.CDLL(path)
        if hasattr(library, "rd_kafka_mock_cluster_new"):
            return library
    raise MissingDependencyError(
        "the librdkafka of %s has no mock cluster; confluent-kafka's wheels do: pip install 'kiel[testing]'"
        % cimpl.__file__
    )


def _candidates(extension):
    """Where the library may be: bundled by a wheel (for Linux and Windows, or macOS), or with the extension.

    An extension that was built against a librdkafka of the system's passes on that library's symbols.
    """
    package = os.path.dirname(extension)
    for folder in (package + ".libs", os.path.join(package, ".dylibs")):
        if os.path.isdir(folder):
            for name in sorted(os.listdir(folder)):
                if name.startswith("librdkafka"):
                    yield os.path.join(folder, name)
    yield extension


def _missing(name, since, installed):
    def function(*arguments):
        raise MissingDependencyError(_too_old(name, since, installed))

    return function


def _too_old(what, since, installed):
    return (
        "%s needs librdkafka %d.%d.%d or later, and the one of confluent-kafka here is %d.%d.%d: "
        "pip install --upgrade confluent-kafka" % ((what,) + since + installed)
    )
