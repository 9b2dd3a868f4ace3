"""Small helpers for Futures that several parties hold."""
from tornado import gen, ioloop
from tornado.concurrent import Future


def resolve(future, result):
    """Give `future` its result, unless it has ended already (its holder may have cancelled it)."""
    if not future.done():
        future.set_result(result)


def reject(future, error):
    """Give `future` its error, unless it has ended already."""
    if not future.done():
        future.set_exception(error)


def keep_quiet(future):
    """Look at the error of `future` when it ends, so that nothing is logged where nobody waits for it."""
    future.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return future


def within(seconds, future):
    """`future`, or gen.TimeoutError once `seconds` have passed; what it ends with later is nobody's business."""
    return gen.with_timeout(
        ioloop.IOLoop.current().time() + max(0, seconds), future, quiet_exceptions=(Exception,)
    )


@gen.coroutine
def ended(those):
    """Wait until all Futures of a list have ended, whatever with."""
    for each in those:
        end = Future()
        each.add_done_callback(lambda _, end=end: resolve(end, None))
        yield end


class Bell(object):
    """Something to wait for that happens again and again; each ring wakes whoever waits at that time."""

    def __init__(self):
        self._waiting = []

    def ring(self):
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            resolve(future, True)

    def wait(self, seconds):
        """A Future of True at the next ring, or of False after `seconds`."""
        loop = ioloop.IOLoop.current()
        future = Future()

        def give_up():
            if future in self._waiting:
                self._waiting.remove(future)
            resolve(future, False)

        timer = loop.call_later(max(0, seconds), give_up)
        future.add_done_callback(lambda _: loop.remove_timeout(timer))
        self._waiting.append(future)
        return future
