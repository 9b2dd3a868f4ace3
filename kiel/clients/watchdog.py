"""Notices that the IOLoop was held, for how long and, on Python 3, where."""
import logging
import sys
import threading
import time
import traceback

import six

log = logging.getLogger(__name__)

# A sign of life of the loop so many times in the time that is too long.
BEATS = 5
# At least so far apart, in seconds.
LEAST_BEAT = 0.05


class Watchdog(object):
    """Warns when the loop is held for longer than `seconds`, once for each time.

    The loop gives a sign of life again and again. On Python 3 a thread, which does nothing but read
    ``sys._current_frames()``, notes where the loop's thread is when one is overdue; the loop tells it later.
    """

    def __init__(self, loop, seconds, what):
        self._loop, self._seconds, self._what = loop, seconds, what
        self._beat = max(LEAST_BEAT, seconds / float(BEATS))
        self._seen = time.time()
        self._timer = None
        self._thread_id = None
        self._stack = None
        self._over = threading.Event()

    def start(self):
        self._seen = time.time()
        self._timer = self._loop.call_later(self._beat, self._look)
        if six.PY3:
            self._thread_id = threading.current_thread().ident
            sampler = threading.Thread(target=self._sample, name="kiel-watchdog")
            sampler.daemon = True
            sampler.start()

    def stop(self):
        self._over.set()
        if self._timer is not None:
            self._loop.remove_timeout(self._timer)
            self._timer = None

    def _look(self):
        now = time.time()
        held, self._seen = now - self._seen - self._beat, now
        stack, self._stack = self._stack, None
        if held > self._seconds:
            where = "; it was here:\n%s" % stack if stack else ""
            log.warning("the IOLoop was held for %.1f s, and %s%s", held, self._what, where)
        self._timer = self._loop.call_later(self._beat, self._look)

    def _sample(self):
        """On the thread: note the stack once for each time that the loop is held."""
        noted_for = None
        while not self._over.wait(self._beat):
            seen = self._seen
            if noted_for != seen and time.time() - seen > self._seconds:
                frame = sys._current_frames().get(self._thread_id)
                if frame is not None:
                    noted_for, self._stack = seen, "".join(traceback.format_stack(frame)[-8:])
