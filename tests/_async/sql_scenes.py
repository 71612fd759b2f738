"""Scenes that the tests of all databases share."""

from __future__ import annotations

from holdfast import aio as holdfast
from worlds.aio import Job, eventually, pause


async def waits(locks: holdfast.Locks, number: int = 1) -> None:
    """Waits until so many wait for the lock `x`."""

    async def there() -> bool:
        return len((await locks.inspect("x")).waiters) == number

    await eventually(there)


async def crowd(urls: list[str], rounds: int) -> None:
    """Has several managers take one lock in turns; each finds itself alone in it."""
    inside: list[int] = []
    tokens: list[int] = []

    async def contend(url: str) -> None:
        async with holdfast.connect(url) as locks:
            for _ in range(rounds):
                async with locks.lock("x") as lease:
                    inside.append(1)
                    assert len(inside) == 1
                    assert not tokens or lease.token > tokens[-1]
                    tokens.append(lease.token)
                    await pause(0.0)
                    inside.pop()

    jobs = [Job(contend, url) for url in urls]
    for job in jobs:
        await job.result()
    assert len(tokens) == len(urls) * rounds
