"""Many coroutines that wait at once."""

from __future__ import annotations

import asyncio

from holdfast import aio as holdfast
from stores import mariadb_server
from worlds.aio import eventually

MANY, AT_ONCE = 1000, 50


async def test_a_thousand_waiters_use_a_handful_of_connections() -> None:
    server = mariadb_server()
    url = server.new_database()
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        held = await locks.lock("x", ttl=120.0).acquire()
        waiters: list[asyncio.Task[holdfast.Lease]] = []
        while len(waiters) < MANY:  # a slow machine cannot take all of them within a call's 5 s
            waiters += [asyncio.create_task(others.lock("x").acquire()) for _ in range(AT_ONCE)]

            async def all_wait(number: int = len(waiters)) -> bool:
                return len((await locks.inspect("x")).waiters) == number

            await eventually(all_wait)
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
