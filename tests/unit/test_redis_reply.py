"""The way back into a task without a turn of the event loop."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from holdfast.stores.redis.wire.reply import Reply

where: ContextVar[str] = ContextVar("where", default="outside")


def run_now(loop: asyncio.AbstractEventLoop, reply: Reply, value: object) -> None:
    """Settles `reply` as a connection does: in a callback of the loop."""
    loop.call_soon(reply.settle, value)


async def test_a_task_goes_on_within_the_callback_that_settles_its_reply() -> None:
    loop = asyncio.get_running_loop()
    reply = Reply(loop)
    seen: list[object] = []

    async def wait() -> None:
        where.set("in the task")
        seen.append(await reply)
        seen.append(where.get())

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)

    def settle() -> None:
        reply.settle(b"answer")
        seen.append("settled")

    loop.call_soon(settle)
    await task
    assert seen == [b"answer", "in the task", "settled"]
    assert where.get() == "outside"


async def test_a_reply_that_came_before_it_was_awaited() -> None:
    reply = Reply(asyncio.get_running_loop())
    reply.settle(7)
    reply.settle(8)
    assert await reply == 7


async def test_an_error_is_raised_where_it_is_awaited() -> None:
    loop = asyncio.get_running_loop()
    reply = Reply(loop)
    loop.call_soon(reply.settle_soon, None, ConnectionError("gone"))
    with pytest.raises(ConnectionError, match="gone"):
        await reply


async def test_a_cancelled_task_is_told_and_a_late_answer_is_dropped() -> None:
    loop = asyncio.get_running_loop()
    reply = Reply(loop)

    async def wait() -> object:
        return await reply

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel("enough")
    run_now(loop, reply, b"late")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_a_time_out_around_it_ends_the_wait() -> None:
    reply = Reply(asyncio.get_running_loop())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await reply


async def test_a_task_that_is_resumed_may_settle_and_await_others() -> None:
    loop = asyncio.get_running_loop()
    first, second = Reply(loop), Reply(loop)

    async def wait() -> tuple[object, object]:
        one = await first
        run_now(loop, second, "two")
        return one, await second

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    run_now(loop, first, "one")
    assert await task == ("one", "two")
