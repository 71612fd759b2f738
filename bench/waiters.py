"""Grants of one lock while a hundred to ten thousand tasks wait for it: the growth of their cost.

Each task takes the lock, frees it at once and waits again. The tasks are in one process, or spread over
four. A waiter sends a heartbeat every second, so what ten thousand of them cost is part of the figure;
beside the rate stands the number of grants for each second of processor time.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import ExitStack
from typing import Any

from .measure import Child, Row, Setting, compare, say, url_of

WAITERS = (100, 1_000, 2_500, 10_000)
PROCESSES = (1, 4)
QUEUED_WITHIN = 120.0


def figure(setting: Setting) -> list[Row]:
    window = 2.0 if setting.quick else 8.0
    rows: list[Row] = []
    for processes in PROCESSES:
        first = 0.0
        for number in WAITERS[:2] if setting.quick else WAITERS:
            found = _one(setting, number, processes, window)
            first = first or found["rate"]
            rows.append(
                compare(
                    f"{number:,} waiters in {processes} process{'es' * (processes > 1)}",
                    f"{found['rate']:,.0f} grants/s",
                    f"{found['rate'] / found['cpu']:,.0f} per second of CPU",
                    found["rate"] / first,
                    **found,
                )
            )
    return rows


def _one(setting: Setting, number: int, processes: int, window: float) -> dict[str, Any]:
    folder = setting.folder / f"{number}-{processes}"
    folder.mkdir()
    with ExitStack() as stack:
        share = number // processes
        children = [
            stack.enter_context(Child("bench.waiters", url_of(folder / "locks.db"), share, window))
            for _ in range(processes)
        ]
        for child in children:
            child.receive()  # all of its tasks are in the queue
        for child in children:
            child.send("begin")
        found = [child.receive() for child in children]
    return {
        "rate": sum(one["grants"] / one["seconds"] for one in found),
        "cpu": sum(one["cpu"] / one["seconds"] for one in found),
    }


# In the child.


async def _wait_and_count(url: str, number: int, window: float) -> None:
    import holdfast.aio

    grants = 0
    locks = holdfast.aio.connect(url)

    async def work() -> None:
        nonlocal grants
        while True:
            async with locks.lock("x", timeout=None):
                grants += 1

    tasks = [asyncio.create_task(work()) for _ in range(number)]
    session = await locks._session()
    end = time.monotonic() + QUEUED_WITHIN
    most = number - max(2, number // 100)  # the others take the lock, and come back
    while len(session.waiters) < most and time.monotonic() < end:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    say({"queued": len(session.waiters)})
    await asyncio.to_thread(sys.stdin.readline)
    before, cpu, began = grants, time.process_time(), time.monotonic()
    await asyncio.sleep(window)
    say(
        {
            "grants": grants - before,
            "cpu": time.process_time() - cpu,
            "seconds": time.monotonic() - began,
        }
    )
    await asyncio.to_thread(sys.stdin.readline)  # until nobody measures any more
    for task in tasks:
        task.cancel()
    await locks.close()


if __name__ == "__main__":
    asyncio.run(_wait_and_count(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
