import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.support.embedded import ROOT, ClusterProcess
from tests.testing.wire import Wire

pytestmark = pytest.mark.embedded

if sys.version_info < (3,):
    PYTHON = os.environ.get("KIEL_SERVER_PYTHON", "python3")
else:
    pytest.importorskip("confluent_kafka")
    PYTHON = sys.executable


@pytest.fixture
def start():
    """start(*options): a `python -m kiel.testing` of which tests have the pipes."""
    started = []

    def start(*options):
        process = subprocess.Popen(
            [PYTHON, "-m", "kiel.testing"] + list(options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            universal_newlines=True,
            close_fds=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()
        process.wait()


def tell(process, line):
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def test_it_says_where_it_is_takes_commands_and_ends_with_its_stdin(start):
    process = start("--brokers", "2", "--topic", "events:3", "--topic", "other")
    hello = json.loads(process.stdout.readline())
    assert hello["bootstrap"] == ",".join(hello["brokers"]) and len(hello["brokers"]) == 2
    done = {"result": None}
    assert tell(process, '{"call": "create_topic", "kwargs": {"name": "more", "partitions": 2}}') == done
    assert tell(process, '{"call": "push_errors", "args": ["produce", ["REQUEST_TIMED_OUT"]]}') == done
    with Wire(str(hello["brokers"][0])) as wire:
        topics = wire.metadata("events", "other", "more").topics
    assert [len(topic.partitions) for topic in topics] == [3, 1, 2]
    process.stdin.close()
    assert process.wait() == 0
    assert process.stderr.read() == ""


@pytest.mark.parametrize(
    "line, error",
    [
        ("create_topic", "ValueError"),
        ("[]", "ConfigurationError"),
        ('{"call": "close"}', "ConfigurationError"),
        ('{"call": "create_topic"}', "TypeError"),
        ('{"call": "create_topic", "args": 3}', "TypeError"),
        ('{"call": "broker_down", "args": [7]}', "ConfigurationError"),
        ('{"call": "requests"}', "UsageError"),
    ],
)
def test_a_bad_command_is_answered_and_the_next_one_too(start, line, error):
    process = start()
    process.stdout.readline()
    answer = tell(process, line)
    assert error in (answer["error"], {"JSONDecodeError": "ValueError"}.get(answer["error"]))
    assert answer["message"]
    assert tell(process, '{"call": "create_topic", "args": ["events"]}') == {"result": None}


@pytest.mark.parametrize("option", [("--brokers", "0"), ("--topic", "events:many"), ("--topic", "events:0")])
def test_options_that_cannot_be_right(start, option):
    process = start(*option)
    assert process.wait() == 1
    assert process.stdout.read() == ""
    assert "kiel.testing" in process.stderr.read()


def test_ctrl_c_ends_it_quietly(start):
    process = start()
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert process.stderr.read() == ""


def test_no_orphan_is_left_when_its_parent_is_killed(start):
    code = "import time; from tests.support.embedded import ClusterProcess as C; c = C(); %s; time.sleep(60)"
    parent = subprocess.Popen(
        [sys.executable, "-c", code % "print(c._process.pid, flush=True)"]
        if sys.version_info > (3,)
        else [sys.executable, "-u", "-c", code % "print(c._process.pid)"],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=dict(os.environ, KIEL_SERVER_PYTHON=PYTHON),
        close_fds=True,
    )
    pid = int(parent.stdout.readline())
    parent.stdout.close()
    parent.kill()
    parent.wait()
    deadline = time.time() + 10
    while time.time() < deadline:
        try:
            os.kill(pid, 0)
        except OSError:
            return
        time.sleep(0.05)
    pytest.fail("the cluster's process %d is still there" % pid)


def test_the_proxy_gives_what_a_cluster_gives(monkeypatch):
    monkeypatch.setenv("KIEL_SERVER_PYTHON", PYTHON)
    with ClusterProcess(brokers=2) as cluster:
        cluster.create_topic("events", partitions=2)
        cluster.track_requests()
        with Wire(cluster.brokers[0]) as wire:
            wire.metadata("events")
        (seen,) = cluster.requests("metadata")
        assert (seen.broker_id, seen.api_key, seen.api) == (1, 3, "metadata")
        assert cluster.api_versions()[18][0] == 0
