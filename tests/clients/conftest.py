import pytest
import six

from tests.support.consuming import Writer
from tests.support.embedded import embedded_cluster

# Files of coroutines that Python 2 can't even parse.
collect_ignore_glob = ["*_py3.py"] if six.PY2 else []


@pytest.fixture
def cluster():
    with embedded_cluster() as cluster:
        cluster.create_topic("events")
        cluster.create_topic("parts", 2)
        yield cluster


@pytest.fixture
def writer(cluster):
    with Writer(cluster) as writer:
        yield writer
