"""kiel: the Kafka client for Tornado applications."""

__version__ = "0.9.0"

from kiel.clients.producer import Producer  # noqa: E402
from kiel.clients.record import Record, RecordMetadata  # noqa: E402
from kiel.clients.single import SingleConsumer  # noqa: E402
from kiel.exc import *  # noqa: E402, F401, F403
from kiel.exc import __all__ as _errors  # noqa: E402

__all__ = ["Producer", "Record", "RecordMetadata", "SingleConsumer"] + _errors
