"""Many coroutines that wait at once."""

from __future__ import annotations

import asyncio

from holdfast import aio as holdfast
from stores import postgres_server
from worlds.aio import eventually


async def test_a_thousand_waiters_use_a_handful_of_connections() -> None:
    server = postgres_server()
    url = server.new_database()
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        held = await locks.lock("x", ttl=120.0).acquire()
        waiters = [asyncio.create_task(others.lock("x").acquire()) for _ in range(1000)]

        waiting = 0
        while waiting < 1000:  # however long that takes, it goes on

            async def more_wait(before: int = waiting) -> bool:
                nonlocal waiting
                waiting = len((await locks.inspect("x")).waiters)
                return waiting > before

            await eventually(more_wait)
        with server.connect(autocommit=True) as connection:
            ((number,),) = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = %s", [url.rpartition("/")[2]]
            ).fetchall()
        assert number <= 12  # of two managers
        for waiter in waiters:
            waiter.cancel()
        await asyncio.wait(waiters)
        await held.release()

        async def nothing_is_left() -> bool:
            return await locks.list() == []

        # Whoever could not leave at once, among so many, leaves a little later.
        await eventually(nothing_is_left)
