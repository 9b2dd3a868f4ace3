"""Processes that tests start: tools that run to their end, and servers that never outlive the tests."""
import os
import shutil
import signal
import subprocess
import tempfile
import threading

import six

# A process group of its own: Ctrl-C in the terminal ends pytest, and what pytest started is ended by it.
# (preexec_fn is the only way on 2.7; on 3 it isn't safe beside threads.)
OWN_GROUP = {"start_new_session": True} if six.PY3 else {"preexec_fn": os.setsid}

# Holds the reading end of a pipe whose only writer is the process that runs the tests. That process writes a line
# when the server is gone and reaped; the end of the pipe without a line means that the process itself is gone
# (even by kill -9, when no atexit or fixture has run), so the server goes too, and its directory.
WATCHDOG = 'read -r released || { kill -9 "$1"; sleep 1; rm -rf -- "$2"; }'


class ProcessError(Exception):
    """A tool failed or took too long; the message has its output."""


def run(args, input=None, timeout=60, cwd=None):
    """Run a tool to its end: its stdout as bytes. ProcessError on a bad exit or after `timeout` seconds."""
    process = subprocess.Popen(
        args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd, close_fds=True,
        **OWN_GROUP
    )
    late = threading.Event()

    def end():
        late.set()
        os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(timeout, end)
    timer.start()
    try:
        out, err = process.communicate(input or b"")
    finally:
        timer.cancel()
    if late.is_set() or process.returncode:
        why = "took more than %s s" % timeout if late.is_set() else "ended with %s" % process.returncode
        text = (out + err).decode("utf-8", "replace")
        raise ProcessError("%s %s:\n%s" % (" ".join(args), why, text))
    return out


class Server(object):
    """A server with a directory of its own (removed by `close`), writing its output to `log` there.

    start() may be called again after kill(). Paused means stopped with SIGSTOP.
    """

    def __init__(self, prefix):
        self.directory = tempfile.mkdtemp(prefix=prefix)
        self.log_path = os.path.join(self.directory, "log")
        self.paused = False
        self._process = self._watchdog = None

    @property
    def running(self):
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self):
        return self._process.pid

    def start(self, args):
        self.kill()
        with open(self.log_path, "ab") as log, open(os.devnull, "rb") as nothing:
            self._process = subprocess.Popen(
                args, stdin=nothing, stdout=log, stderr=subprocess.STDOUT, close_fds=True, cwd=self.directory,
                **OWN_GROUP
            )
            self._watchdog = subprocess.Popen(
                ["sh", "-c", WATCHDOG, "watchdog", str(self._process.pid), self.directory],
                stdin=subprocess.PIPE, close_fds=True, **OWN_GROUP
            )

    def pause(self):
        self._process.send_signal(signal.SIGSTOP)
        self.paused = True

    def resume(self):
        self._process.send_signal(signal.SIGCONT)
        self.paused = False

    def kill(self):
        """End it as kill -9 does; nothing if it isn't there."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._watchdog.communicate(b"released\n")
        self._process = self._watchdog = None
        self.paused = False

    def log(self):
        """What it has written since it was first started."""
        if not os.path.exists(self.log_path):
            return u""
        with open(self.log_path, "rb") as log:
            return log.read().decode("utf-8", "replace")

    def close(self):
        self.kill()
        shutil.rmtree(self.directory)
