"""How long the loop is held: the benchmark that says so, at its full size and against a real Kafka."""
import os
import subprocess
import sys

import pytest

from tests.support import flights
from tests.support.embedded import ROOT

BENCHMARK = os.path.join(ROOT, "benchmarks", "loop.py")


@pytest.fixture
def environment(tmpdir):
    return flights.environment(str(tmpdir))


def run(environment, *arguments):
    """(exit code, lines on stdout, stderr)"""
    process = subprocess.Popen(
        [sys.executable, BENCHMARK] + list(arguments), env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, universal_newlines=True, close_fds=True,
    )  # fmt: skip
    out, err = process.communicate()
    return process.returncode, out.splitlines(), err


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("partitions", [6, 32])
def test_a_ticker_never_waits_for_more_than_50_ms(kafka, environment, partitions):
    topic = "ticker-%d" % partitions
    kafka.create_topic(topic, partitions=partitions)
    code, lines, err = run(environment, "--brokers", kafka.bootstrap[0], "--topic", topic, "--limit-ms", "50")
    assert (code, err) == (0, ""), "\n".join(lines)


def test_a_limit_that_cannot_be_kept(kafka, environment):
    kafka.create_topic("ticker-limit", partitions=2)
    arguments = ["--brokers", kafka.bootstrap[0], "--topic", "ticker-limit", "--flights", "3000"]
    code, lines, err = run(environment, *(arguments + ["--limit-ms", "0.5"]))
    assert (code, err) == (1, "")
    assert [line.split()[0] for line in lines[3:6]] == ["idle", "producing", "consuming"]
    assert lines[-1] == "a gap is longer than 0.5 ms"
