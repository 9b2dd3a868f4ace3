import pytest

from tests.support.embedded import ROOT

pytest_plugins = "pytester"

pytest.importorskip("confluent_kafka")

pytestmark = pytest.mark.embedded

SUITE = """
    import socket

    import pytest

    def test_one_broker(kiel_cluster):
        host, port = kiel_cluster.bootstrap.split(":")
        socket.create_connection((host, int(port))).close()
        kiel_cluster.create_topic("events")

    def test_each_test_has_a_cluster_of_its_own(kiel_cluster):
        kiel_cluster.create_topic("events")

    @pytest.mark.kiel_cluster(brokers=3)
    def test_three_brokers(kiel_cluster):
        assert len(kiel_cluster.brokers) == 3

    @pytest.mark.kiel_cluster(brokers=0)
    def test_no_brokers(kiel_cluster):
        pass
"""


@pytest.fixture(autouse=True)
def plugin(testdir, pytestconfig, monkeypatch):
    """pytest finds the plugin by itself; where kiel isn't installed but runs from its sources, it is told."""
    options = "" if pytestconfig.pluginmanager.hasplugin("kiel") else "-p kiel.testing.pytest_plugin"
    monkeypatch.setenv("PYTEST_ADDOPTS", options)
    monkeypatch.setenv("PYTHONPATH", ROOT)
    testdir.makeini("[pytest]\naddopts = --strict-markers\n")


def test_the_fixture(testdir):
    testdir.makepyfile(SUITE)
    result = testdir.runpytest_subprocess("-v")
    result.assert_outcomes(passed=3, **{"errors" if pytest.__version__ >= "6" else "error": 1})
    result.stdout.fnmatch_lines(["*ConfigurationError: brokers has to be from 1 to 1000, not 0"])


def test_the_fixture_and_its_marker_are_listed(testdir):
    testdir.runpytest_subprocess("--fixtures", "-v").stdout.fnmatch_lines(["kiel_cluster*"])
    testdir.runpytest_subprocess("--markers").stdout.fnmatch_lines(["@pytest.mark.kiel_cluster(brokers=1*"])


def test_the_plugin_loads_no_confluent_kafka_at_start_up(testdir):
    testdir.makepyfile(
        """
        import sys

        def test_modules():
            assert "kiel.testing.pytest_plugin" in sys.modules
            assert "confluent_kafka" not in sys.modules
        """
    )
    testdir.runpytest_subprocess().assert_outcomes(passed=1)


def test_without_the_wheel_tests_that_ask_for_it_fail_and_others_run(testdir):
    testdir.makeconftest("import sys; sys.modules['confluent_kafka'] = None")
    testdir.makepyfile("def test_cluster(kiel_cluster): pass\ndef test_other(): pass")
    result = testdir.runpytest_subprocess()
    result.assert_outcomes(passed=1, **{"errors" if pytest.__version__ >= "6" else "error": 1})
    result.stdout.fnmatch_lines(["*MissingDependencyError*pip install 'kiel?testing?'*"])
