"""``consume_records()`` without a topic: the next batch of whichever topic has one."""
from tornado import gen

from kiel.clients.handover import Handover
from kiel.exc import ClosedError, KielError, UsageError


class AnyTopic(object):
    """One call at a time; what it gave is acknowledged by the next one. ``is_waiting`` while it looks."""

    def __init__(self, consumer):
        self._looking = 0
        self._consumer = consumer
        self._last = None  # the topic of the batch that was given last
        self._turn = 0
        self._under_way = None

    @property
    def is_waiting(self):
        return self._looking > 0

    def ask(self, max_records):
        if self._under_way is not None and not self._under_way.done():
            raise UsageError("a consume_records() without a topic is under way: wait for it before asking for more")
        if self._last is not None:
            self._consumer.acknowledge(self._last)
            self._last = None
        asked = self._under_way = Handover()
        asked.add_done_callback(lambda _: self._consumer.stop_waiting())
        self._consumer.spawn(self._answer(asked, max_records))
        return asked

    @gen.coroutine
    def _answer(self, asked, max_records):
        consumer = self._consumer
        deadline = consumer.loop.time() + consumer.max_wait_time / 1000.0
        try:
            topic = yield self._find(asked, deadline)
        except KielError as error:
            if not asked.done():
                asked.set_exception(error)
            return
        if asked.done():
            return
        if topic is None:
            asked.set_result([])
            return
        try:
            batch = consumer.consume_records(topic, None, max_records)
        except KielError as error:
            asked.set_exception(error)
            return
        self._last = topic
        asked.give_back = batch.give_back
        asked.add_done_callback(lambda ended: ended.cancelled() and batch.cancel())
        batch.add_done_callback(lambda ended: ended.cancelled() or _pass_on(ended, asked, batch))

    @gen.coroutine
    def _find(self, asked, deadline):
        """A topic that has something to hand out or to tell, each time beginning with another one; or None."""
        consumer = self._consumer
        self._looking += 1
        try:
            while not asked.done():
                if consumer.closing:
                    raise ClosedError("this %s is closed" % type(consumer).__name__)
                consumer.raise_told()
                topic = self._next()
                if topic is not None:
                    raise gen.Return(topic)
                consumer.look_around()
                consumer.raise_told()
                remaining = deadline - consumer.loop.time()
                if remaining <= 0:
                    return
                yield consumer.wait_for_any(remaining)
        finally:
            self._looking -= 1
            consumer.looked_around()

    def _next(self):
        topics = sorted(self._consumer.allocation)
        self._turn += 1
        first = self._turn % len(topics) if topics else 0
        for topic in topics[first:] + topics[:first]:
            if self._consumer.has_news(topic):
                return topic
        return None


def _pass_on(batch, asked, given):
    error = batch.exception()
    if asked.done():
        given.give_back()
    elif error is not None:
        asked.set_exception(error)
    else:
        asked.set_result(batch.result())
