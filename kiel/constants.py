"""Numbers with a name."""

DEFAULT_PORT = 9092

# A frame's length prefix above this can't be right: Kafka's own limit for a request (socket.request.max.bytes).
MAX_FRAME_BYTES = 100 * 1024 * 1024

# How long work on many records may hold the loop at a time.
SLICE_SECONDS = 0.005
