"""The fixture ``kiel_cluster``, which pytest finds by itself where kiel is installed."""
import pytest


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "kiel_cluster(brokers=1, **options): how to make the EmbeddedCluster of the fixture kiel_cluster",
    )


@pytest.fixture
def kiel_cluster(request):
    """An EmbeddedCluster of one broker, or as the marker says: ``@pytest.mark.kiel_cluster(brokers=3)``."""
    from kiel.testing import EmbeddedCluster

    marker = request.node.get_closest_marker("kiel_cluster")
    with EmbeddedCluster(*(marker.args if marker else ()), **(marker.kwargs if marker else {})) as cluster:
        yield cluster
