"""A Future whose result isn't lost when whoever awaits it is cancelled at the last moment."""
from tornado.concurrent import Future


class Handover(Future):
    """A Future of something that is taken back when it doesn't reach the one who awaits it.

    asyncio may cancel a task whose ``await`` has a result already but hasn't gone on yet: the result is lost
    then, though the Future was never cancelled. ``give_back`` is called without arguments when that happens.
    """

    give_back = None

    def __await__(self):
        return _Awaiting(self, super(Handover, self).__await__())


class _Awaiting(object):
    """What ``await`` iterates over: the Future's own iterator, with an eye on what is thrown in."""

    def __init__(self, future, steps):
        self._future, self._steps = future, steps

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._steps)

    def send(self, value):
        return self._steps.send(value)

    def throw(self, *error):
        # What the Future ended with is thrown in as well.
        ended = self._future.done() and not self._future.cancelled()
        if ended and self._future.exception() not in error and self._future.give_back is not None:
            self._future.give_back()
        return self._steps.throw(*error)

    def close(self):
        self._steps.close()
