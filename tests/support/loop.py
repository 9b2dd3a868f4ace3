"""Runs a test's coroutine on an IOLoop of its own."""
import functools
import inspect

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
            loop.make_current()
            try:
                loop.run_sync(lambda: coroutine(*args, **kwargs), timeout=timeout)
            finally:
                ioloop.IOLoop.clear_current()
                loop.close(all_fds=True)

        if hasattr(inspect, "signature"):
            run.__signature__ = inspect.signature(test)
        return run

    return decorate
