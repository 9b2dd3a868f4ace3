"""The demo, as whoever tries kiel sees it first."""
import os
import signal
import subprocess
import sys

import pytest
import six

from tests.support import flights
from tests.support.embedded import embedded_cluster
from tests.support.process import OWN_GROUP

SCRIPT = os.path.join(flights.EXAMPLES, "flights.py")
# Whatever is left open then says so on stderr.
STRICT = ["-W", "always"] if six.PY3 else []

# Of all flights, as the package's own documentation and others count them.
BUSIEST = """\
UA        United Air Lines Inc.           58,665
B6        JetBlue Airways                 54,635
EV        ExpressJet Airlines Inc.        54,173
DL        Delta Air Lines Inc.            48,110
AA        American Airlines Inc.          32,729
MQ        Envoy Air                       26,397
US        US Airways Inc.                 20,536
9E        Endeavor Air Inc.               18,460
WN        Southwest Airlines Co.          12,275
VX        Virgin America                   5,162""".splitlines()


@pytest.fixture(scope="module")
def environment(tmpdir_factory):
    return flights.environment(str(tmpdir_factory.mktemp("flights")))


def start(environment, *arguments):
    return subprocess.Popen(
        [sys.executable] + STRICT + [SCRIPT] + list(arguments), env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, universal_newlines=True, close_fds=True, **OWN_GROUP
    )  # fmt: skip


def run(environment, *arguments):
    """(exit code, lines on stdout, stderr)"""
    process = start(environment, *arguments)
    out, err = process.communicate()
    return process.returncode, out.splitlines(), err


@pytest.mark.embedded
@pytest.mark.skipif(six.PY2, reason="on Python 2.7 there is no cluster inside the process")
def test_on_a_cluster_inside_the_process(environment):
    code, lines, err = run(environment, "--flights", "5000", "--partitions", "3")
    assert (code, err) == (0, "")
    assert lines[-1] == "All 5,000 flights came, and every one of them once."
    assert sum(line.endswith(" of 5,000 flights have gone there and back") for line in lines) > 1
    assert sum(" records in " in line for line in lines) == 2


@pytest.mark.embedded
def test_on_brokers_that_are_named_and_make_the_topic(environment):
    with embedded_cluster(brokers=2) as cluster:
        code, lines, err = run(environment, "--brokers", cluster.bootstrap, "--flights", "3000")
    assert (code, err) == (0, "")
    assert lines[-1] == "All 3,000 flights came, and every one of them once."


@pytest.mark.embedded
def test_what_was_in_the_topic_before_does_not_count(environment):
    with embedded_cluster() as cluster:
        arguments = ["--brokers", cluster.bootstrap, "--topic", "flights", "--flights", "100"]
        for _ in range(2):
            code, lines, _ = run(environment, *arguments)
            assert (code, lines[-1]) == (0, "All 100 flights came, and every one of them once.")


@pytest.mark.embedded
def test_ctrl_c_ends_it_cleanly(environment):
    with embedded_cluster() as cluster:
        process = start(environment, "--brokers", cluster.bootstrap)
        assert "flights have gone there and back" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert (process.returncode, err) == (130, "interrupted\n")


def test_a_cluster_that_is_not_there(environment):
    code, lines, err = run(environment, "--brokers", "127.0.0.1:1")
    assert (code, lines) == (1, [])
    assert "no broker could be reached" in err
    assert "Traceback" not in err


def test_flights_that_never_came_and_came_twice(monkeypatch, capsys, environment):
    for path in environment.get("PYTHONPATH", "").split(os.pathsep) + [flights.EXAMPLES]:
        monkeypatch.syspath_prepend(path)
    import flight_data
    import flights as demo

    made = demo.Flights("127.0.0.1:1", "flights", total=6)
    made.progress.start()
    for number in (1, 1, 2, 3, 1, 5):
        made.summary.add({"id": number, "carrier": "UA", "arr_delay": number})
    made.progress.add_produced(6)
    made.progress.add_consumed(6)
    assert demo.report(made) == 1
    out = capsys.readouterr().out.splitlines()
    assert "2 flights never came: 0, 4" in out
    assert "1 flights came more than once: 1" in out
    assert flight_data.airlines()["UA"] == "United Air Lines Inc."


def test_a_topic_that_the_brokers_refuse(environment, kafka):
    code, _, err = run(environment, "--brokers", kafka.bootstrap[0], "--topic", "not/possible")
    assert code == 1
    assert "INVALID_TOPIC" in err
    assert "Traceback" not in err


@pytest.mark.slow
@pytest.mark.embedded
def test_brokers_that_create_no_topics(environment):
    with embedded_cluster() as cluster:
        cluster.topic_error("flights", "UNKNOWN_TOPIC_OR_PARTITION")
        code, _, err = run(environment, "--brokers", cluster.bootstrap, "--topic", "flights")
    assert code == 1
    assert err.endswith("These brokers create no topics by themselves: make one, and name it with --topic.\n")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_all_flights_on_a_real_kafka(environment, kafka):
    kafka.create_topic("all-flights", partitions=6)
    code, lines, err = run(environment, "--brokers", kafka.bootstrap[0], "--topic", "all-flights")
    assert (code, err) == (0, "")
    assert lines[-1] == "All 336,776 flights came, and every one of them once."
    first = next(number for number, line in enumerate(lines) if line.startswith("carrier"))
    assert [line[:48] for line in lines[first + 1:first + 11]] == BUSIEST
