import os
import signal
import subprocess
import sys
import time

import pytest

from tests.support import process

SERVER = ["sh", "-c", "echo up; exec sleep 300"]


@pytest.fixture
def server():
    server = process.Server("kiel-test-")
    yield server
    server.close()
    assert not os.path.exists(server.directory)


def wait_until(holds):
    deadline = time.time() + 20
    while not holds():
        assert time.time() < deadline
        time.sleep(0.01)


def test_a_server_is_killed_and_started_again(server):
    server.start(SERVER)
    wait_until(lambda: server.log() == u"up\n")
    server.kill()
    assert not server.running
    server.start(SERVER)
    assert server.running
    wait_until(lambda: server.log() == u"up\nup\n")


def test_a_paused_server_can_be_killed(server):
    server.start(SERVER)
    server.pause()
    assert server.running and server.paused
    server.kill()
    assert not server.running and not server.paused


def test_a_server_and_its_directory_go_with_a_process_that_is_killed(tmpdir):
    """The server holds a named pipe open: reading it ends when the server does, reaped or not."""
    pipe = str(tmpdir.join("pipe"))
    os.mkfifo(pipe)
    script = "import sys, time; from tests.support import process; server = process.Server('kiel-test-')\n" \
        "server.start(['sh', '-c', 'exec sleep 300 > ' + sys.argv[1]])\n" \
        "sys.stdout.write(server.directory + '\\n'); sys.stdout.flush(); time.sleep(300)"
    command = [sys.executable, "-c", script, pipe]
    here = dict(os.environ, PYTHONPATH=os.getcwd())
    tests = subprocess.Popen(command, stdout=subprocess.PIPE, env=here)
    directory = tests.stdout.readline().strip()
    with open(pipe) as held:
        os.kill(tests.pid, signal.SIGKILL)
        tests.communicate()
        assert held.read() == ""
    wait_until(lambda: not os.path.exists(directory))


def test_a_tool_that_takes_too_long_is_ended_with_its_children():
    with pytest.raises(process.ProcessError) as failure:
        process.run(["sh", "-c", "echo begun; sleep 300 | cat"], timeout=0.5)
    assert "took more than 0.5 s" in str(failure.value) and "begun" in str(failure.value)


def test_a_tool_that_fails_shows_what_it_said():
    with pytest.raises(process.ProcessError) as failure:
        process.run(["sh", "-c", "cat >&2; exit 3"], input=b"why")
    assert "ended with 3" in str(failure.value) and "why" in str(failure.value)
