"""Numbers with a name."""

NO_TIMESTAMP = -1
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2

DEFAULT_PORT = 9092

# A frame's length prefix above this can't be right: Kafka's own limit for a request (socket.request.max.bytes).
MAX_FRAME_BYTES = 100 * 1024 * 1024
