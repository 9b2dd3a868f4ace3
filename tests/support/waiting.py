"""What tests on an IOLoop wait for."""
import time

from tornado import gen


@gen.coroutine
def failure(future):
    """The error that `future` ends with."""
    try:
        result = yield future
    except Exception as error:
        raise gen.Return(error)
    raise AssertionError("no error, but %r" % (result,))


@gen.coroutine
def until(condition, seconds=2.0):
    """Wait until `condition()` is true."""
    end = time.time() + seconds
    while not condition():
        assert time.time() < end, "it did not come to that in %s s" % seconds
        yield gen.sleep(0.005)


class Ticker(object):
    """Ticks every 50 ms until stopped; ``gap`` is the longest time, in seconds, between two ticks."""

    def __init__(self):
        self.gap, self._running = 0.0, True
        self._ended = self._run()

    @gen.coroutine
    def _run(self):
        last = time.time()
        while self._running:
            yield gen.sleep(0.05)
            now = time.time()
            self.gap, last = max(self.gap, now - last), now

    def stop(self):
        """A Future of the end of its last tick."""
        self._running = False
        return self._ended
