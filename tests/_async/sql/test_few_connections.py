"""A database, or a process of ours, that lets nobody connect any more: the one connection does all."""

from __future__ import annotations

from _async.sql_scenes import each_database, proxied, waits
from holdfast import aio as holdfast
from worlds.aio import Job, eventually

pytestmark = each_database


async def test_locks_are_kept_and_waited_for_on_the_connection_that_there_is(url: str) -> None:
    proxy, through = proxied(url)
    try:
        async with holdfast.connect(through) as locks:
            renewed: list[str] = []

            def note(event: holdfast.Event) -> None:
                if event.kind == "renewed":
                    renewed.append(event.name)

            locks.on_event(note)
            await locks.inspect("x")
            proxy.refuse = True
            kept = await locks.lock("kept", ttl=1.5).acquire()
            held = await locks.lock("x").acquire()
            waiting = Job(locks.lock("x").acquire)
            await waits(locks)
            await eventually(lambda: renewed.count("kept") > 1)
            assert await held.release()
            await (await waiting.result()).release()
            assert await kept.release()
    finally:
        proxy.close()
