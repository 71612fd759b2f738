"""A scene that many tests begin with: somebody waits for a lock."""

from __future__ import annotations

from holdfast import aio as holdfast
from worlds.aio import eventually


async def until_waiting(locks: holdfast.Locks, number: int = 1, name: str = "x") -> None:
    """Returns once so many wait for the lock."""

    async def right() -> bool:
        return len((await locks.inspect(name)).waiters) == number

    await eventually(right)


async def until_attentive(locks: holdfast.Locks) -> None:
    """Returns once a manager of Redis, which was granted a lock, hears of forced releases."""
    session = await locks._session()
    await eventually(lambda: session.backend._wire.attentive)  # type: ignore[attr-defined]
