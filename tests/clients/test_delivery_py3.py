"""What only asyncio's Futures and tasks can do to a Delivery and to a Handover."""
import asyncio

import pytest

from kiel.clients.handover import Handover
from kiel.exc import UsageError
from tests.clients.test_delivery import delivery, filled, gather


def run(main):
    return asyncio.run(asyncio.wait_for(main(), 10))


def test_a_cancelled_answer_of_on_error_is_a_failure(logbook):
    async def main():
        answer = asyncio.get_running_loop().create_future()
        answer.cancel()
        reader, one = filled(b"x"), delivery(on_error=lambda record, error: answer)
        await gather(one, reader)
        assert isinstance(one.error, UsageError)
        assert reader.position == 0

    run(main)
    logbook.expect("on_error failed, so the record comes again")


def test_on_error_may_be_a_native_coroutine():
    async def main():
        calls = []

        async def on_error(record, error):
            await asyncio.sleep(0)
            calls.append(record.value)

        one = delivery(on_error=on_error)
        await gather(one, filled(b"x", b"1"))
        assert (calls, one.values) == ([b"x"], [1])

    run(main)


class Box(object):
    """Hands out one thing by a Handover, and takes it back."""

    def __init__(self):
        self.content, self.asked = ["thing"], Handover()
        self.asked.give_back = lambda: self.content.append("thing")

    def hand_over(self):
        self.asked.set_result(self.content.pop())


def test_a_result_that_arrives_stays():
    async def main():
        box = Box()
        asyncio.get_running_loop().call_soon(box.hand_over)
        assert await box.asked == "thing"
        assert box.content == []
        box = Box()
        box.hand_over()
        assert await box.asked == "thing"
        assert box.content == []

    run(main)


def test_an_error_that_arrives_is_no_cancelling():
    async def main():
        for waits_before in (False, True):
            box = Box()
            fail = lambda asked=box.asked: asked.set_exception(KeyError("thing"))  # noqa: E731
            if waits_before:
                asyncio.get_running_loop().call_soon(fail)
            else:
                fail()
            with pytest.raises(KeyError):
                await box.asked
            assert box.content == ["thing"]

    run(main)


@pytest.mark.parametrize("wrapped", [False, True], ids=["alone", "in wait_for"])
def test_a_task_that_is_cancelled_while_its_result_is_on_the_way(wrapped):
    async def main():
        box = Box()

        async def wait():
            return await (asyncio.wait_for(box.asked, 5) if wrapped else box.asked)

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0.01)
        box.hand_over()
        task.cancel()
        try:
            got = [await task]
        except asyncio.CancelledError:
            got = []
        # Before 3.12 wait_for gives the result and forgets the cancelling. Either way there is one thing.
        assert got + box.content == ["thing"]

    run(main)


def test_a_task_that_is_cancelled_before():
    async def main():
        box = Box()
        task = asyncio.ensure_future(asyncio.wait_for(box.asked, 5))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert box.asked.cancelled()
        assert box.content == ["thing"]

    run(main)
