"""Kafka for the tests of applications: a cluster inside the test's own process, and a pytest fixture."""
from kiel.testing.embedded import EmbeddedCluster, SeenRequest

__all__ = ["EmbeddedCluster", "SeenRequest"]
