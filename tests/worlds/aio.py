"""Tests in asyncio. Its twin is `threads`: the same names, the same meanings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")

PATIENCE = 25.0
"""How long a condition may take to come true; never how long it normally takes. Less than the TTL that
leases have by themselves: what a test waits for must not come true by that."""


class Job(Generic[Result]):
    """Something under way beside the test."""

    def __init__(self, work: Callable[..., Coroutine[Any, Any, Result]], *args: object) -> None:
        self._task = asyncio.get_running_loop().create_task(work(*args))

    def done(self) -> bool:
        return self._task.done()

    async def result(self, patience: float = PATIENCE) -> Result:
        async with asyncio.timeout(patience):
            return await self._task

    async def error(self, patience: float = PATIENCE) -> BaseException | None:
        """What it raised, once it has ended."""
        async with asyncio.timeout(patience):
            await asyncio.wait({self._task})
        return self._task.exception()

    async def cancelled(self) -> Result | None:
        """Cancel it; its result, if it came to one all the same."""
        self._task.cancel()
        await asyncio.wait({self._task})
        return None if self._task.cancelled() else self._task.result()


async def eventually(condition: Callable[[], Awaitable[object] | object]) -> None:
    """Wait until the condition, which may be a coroutine function, answers something true."""
    async with asyncio.timeout(PATIENCE):
        while True:
            answer = condition()
            if isinstance(answer, Awaitable):
                answer = await answer
            if answer:
                return
            await asyncio.sleep(0.002)


async def pause(seconds: float) -> None:
    """Let time pass that a test needs to pass, such as the rest of a short TTL."""
    await asyncio.sleep(seconds)


def run(work: Callable[..., Coroutine[Any, Any, None]], *args: object) -> None:
    """From a program's first line."""
    asyncio.run(work(*args))


def redis_client(port: int) -> Any:
    """A client of redis-py for this world."""
    import redis.asyncio

    return redis.asyncio.Redis(port=port)
