"""Many coroutines that wait at once."""

from __future__ import annotations

import asyncio

from holdfast import aio as holdfast
from stores import mariadb_server
from worlds.aio import eventually

MANY = 1000


async def test_a_thousand_waiters_use_a_handful_of_connections() -> None:
    server = mariadb_server()
    url = server.new_database()
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        held = await locks.lock("x", ttl=120.0).acquire()
        waiters = [asyncio.create_task(others.lock("x").acquire()) for _ in range(MANY)]

        waiting = 0
        while waiting < MANY:  # however long that takes, it goes on

            async def more_wait(before: int = waiting) -> bool:
                nonlocal waiting
                waiting = len((await locks.inspect("x")).waiters)
                return waiting > before

            await eventually(more_wait)
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT COUNT(*) FROM information_schema.processlist WHERE db = %s",
                [url.rpartition("/")[2]],
            )
            ((number,),) = cursor.fetchall()
        assert number <= 12  # of two managers
        for waiter in waiters:
            waiter.cancel()
        await asyncio.wait(waiters)
        await held.release()

        async def nobody() -> bool:
            return await locks.list() == []

        await eventually(nobody)
