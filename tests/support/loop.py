"""Runs a test's coroutine on an IOLoop of its own."""
import functools

import six
from tornado import gen, ioloop


def on_loop(timeout=30):
    """Make a generator test (``yield`` a Future to wait on it) run on a fresh IOLoop, at most `timeout` seconds.

    Fixtures and parameters work as in any other test function.
    """

    def decorate(test):
        coroutine = gen.coroutine(test)

        @functools.wraps(test)
        def run(*args, **kwargs):
            loop = ioloop.IOLoop(make_current=False)
            if six.PY2:
                # On Python 3 the loop that runs is the current one, and Tornado warns of this call.
                loop.make_current()
            try:
                loop.run_sync(lambda: coroutine(*args, **kwargs), timeout=timeout)
            finally:
                if six.PY2:
                    ioloop.IOLoop.clear_current()
                loop.close(all_fds=True)

        # On Python 2.7 functools.wraps leaves this out, and pytest finds a test's arguments by it.
        run.__wrapped__ = test
        return run

    return decorate
