"""``async for record in consumer.records(topic)``"""
from kiel.clients.handover import Handover
from kiel.exc import ClosedError, KielError


class RecordIterator(object):
    """An asynchronous iterator (Python 3) over a topic's Records; it ends when the consumer is closed.

    Nothing is held here: a record is taken from the consumer when it is asked for, and asking for the next
    one acknowledges it.
    """

    def __init__(self, consumer, topic, start):
        self._consumer, self._topic, self._start = consumer, topic, start

    def __aiter__(self):
        return self

    def __anext__(self):
        ready = self._consumer.ready_record(self._topic)
        if ready is not None:
            return ready
        asked, waiting = Handover(), []
        asked.add_done_callback(lambda ended: ended.cancelled() and waiting and waiting[0].cancel())
        self._ask(asked, waiting)
        return asked

    def _ask(self, asked, waiting):
        try:
            batch = self._consumer.consume_records(self._topic, self._start, 1)
        except KielError as error:
            _fail(asked, error)
            return
        asked.give_back = batch.give_back
        waiting[:] = [batch]
        batch.add_done_callback(lambda ended: ended.cancelled() or self._answer(asked, waiting, ended))

    def _answer(self, asked, waiting, batch):
        error = batch.exception()
        if asked.done():
            batch.give_back()
        elif error is not None:
            _fail(asked, error)
        elif batch.result():
            asked.set_result(batch.result()[0])
        else:
            self._ask(asked, waiting)


def _fail(asked, error):
    if isinstance(error, ClosedError):
        error = StopAsyncIteration()  # noqa: F821 (on Python 3 alone)
    asked.set_exception(error)
