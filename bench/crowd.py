"""A crowd that waits for one lock, on each store: what the client's processor does for each grant.

A hundred to two thousand tasks of one manager, or of four, ask for a lock that is held. Once all wait
it is given back, and each task takes it once. The cost of a grant is to stay what it is with a
hundred, and nobody may be lost.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import ExitStack
from typing import Any

from .measure import Child, Row, Setting, compare, say
from .primitives import STORES

WAITERS = (100, 300, 1_000, 2_000)
PROCESSES = (1, 4)
LIMIT = 300.0


def figure(setting: Setting) -> list[Row]:
    rows: list[Row] = []
    for store, serve in STORES.items():
        if store == "redlock":
            continue  # it keeps no queue
        folder = setting.folder / store
        folder.mkdir()
        with serve(folder) as url:
            for processes in PROCESSES[:1] if setting.quick else PROCESSES:
                first = 0.0
                for number in WAITERS[:3] if setting.quick else WAITERS:
                    found = _one(url, number, processes)
                    first = first or found["cpu"]
                    rows.append(
                        compare(
                            f"{store}: {number:,} waiters in {processes}, {found['lost']} lost",
                            f"{found['cpu'] * 1e3:.2f} ms of CPU a grant",
                            f"{first * 1e3:.2f} ms with {WAITERS[0]}; {found['joined']:.1f} s to join, "
                            f"{found['seconds']:.1f} s to drain",
                            found["cpu"] / first,
                            **found,
                        )
                    )
    return rows


def _one(url: str, number: int, processes: int) -> dict[str, Any]:
    with ExitStack() as stack:
        holder = stack.enter_context(Child("bench.crowd", url, 0))
        holder.receive()
        share = number // processes
        crowds = [stack.enter_context(Child("bench.crowd", url, share)) for _ in range(processes)]
        joined = [crowd.receive() for crowd in crowds]
        for crowd in crowds:
            crowd.send("count")
        holder.send("release")
        found = [crowd.receive() for crowd in crowds]
        grants = max(1, sum(one["grants"] for one in found))
        return {
            "cpu": sum(one["cpu"] for one in found) / grants,
            "lost": sum(one["lost"] for one in found),
            "joined": max(one["seconds"] for one in joined),
            "seconds": max(one["seconds"] for one in found),
        }


# In the child.


async def _hold(url: str) -> None:
    import holdfast.aio

    async with holdfast.aio.connect(url) as locks, locks.lock("x"):
        say({"held": True})
        await asyncio.to_thread(sys.stdin.readline)


async def _wait(url: str, number: int) -> None:
    import holdfast.aio

    grants = lost = 0

    async def take() -> None:
        nonlocal grants, lost
        try:
            async with locks.lock("x", timeout=LIMIT):
                grants += 1
        except holdfast.aio.LockError:
            lost += 1

    async with holdfast.aio.connect(url) as locks:
        session = await locks._session()
        began = time.monotonic()
        tasks = [asyncio.create_task(take()) for _ in range(number)]
        while len(session.waiters) + lost < number and time.monotonic() < began + LIMIT:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        say({"seconds": time.monotonic() - began})
        await asyncio.to_thread(sys.stdin.readline)
        began, cpu = time.monotonic(), time.process_time()
        await asyncio.wait(tasks, timeout=LIMIT)
        used, seconds = time.process_time() - cpu, time.monotonic() - began
        say({"grants": grants, "lost": number - grants, "cpu": used, "seconds": seconds})
        await asyncio.to_thread(sys.stdin.readline)  # until nobody measures any more


if __name__ == "__main__":
    words = sys.argv[1:]
    asyncio.run(_wait(words[0], int(words[1])) if int(words[1]) else _hold(words[0]))
