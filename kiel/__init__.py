"""kiel: the Kafka client for Tornado applications."""

__version__ = "0.9.0"
