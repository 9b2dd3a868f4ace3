"""kiel: the Kafka client for Tornado applications."""

__version__ = "0.9.0"

from kiel.clients.managed import ManagedConsumer  # noqa: E402
from kiel.clients.producer import Producer  # noqa: E402
from kiel.clients.record import Record, RecordMetadata  # noqa: E402
from kiel.clients.single import SingleConsumer  # noqa: E402
from kiel.exc import *  # noqa: E402, F401, F403
from kiel.exc import __all__ as _errors  # noqa: E402
from kiel.groups import *  # noqa: E402, F401, F403
from kiel.groups import __all__ as _protocols  # noqa: E402

__all__ = ["ManagedConsumer", "Producer", "Record", "RecordMetadata", "SingleConsumer"] + _protocols + _errors
