"""`holdfast ls` of ten thousand locks that are held, on each store: the whole process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from statistics import median

from .measure import Child, Row, Setting, duration, say
from .primitives import STORES

LOCKS, TARGET = 10_000, 2.0
AT_ONCE = 100
TTL = 60.0


def figure(setting: Setting) -> list[Row]:
    number = LOCKS // 10 if setting.quick else LOCKS
    rows = []
    for store, serve in STORES.items():
        folder = setting.folder / store
        folder.mkdir()
        with serve(folder) as url, Child("bench.listing", url, number) as holder:
            holder.receive()
            few = [_look(url, "nothing starts so", 0) for _ in range(3)]
            samples = [_look(url, "", number) for _ in range(3)]
        rows.append(
            Row(
                f"{store}: ls of {number:,} locks",
                duration(median(samples)),
                f"of none {duration(median(few))}",
                median(samples) / median(few),
                f"≤ {TARGET:g} s",
                median(samples) <= TARGET,
                {"seconds": samples, "of none": few},
            )
        )
    return rows


def _look(url: str, prefix: str, expected: int) -> float:
    """Returns the seconds that one `ls` took."""
    words = [sys.executable, "-m", "holdfast", "ls", prefix]
    environment = {**os.environ, "HOLDFAST_URL": url}
    began = time.perf_counter()
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - began
    shown = max(len(done.stdout.splitlines()) - 1, 0)  # less the heading
    if shown != expected:
        raise RuntimeError(f"ls showed {shown} locks, and {expected} are held")
    return seconds


# In the child.


async def _hold(url: str, number: int) -> None:
    import holdfast.aio

    async with holdfast.aio.connect(url) as locks:
        turns = asyncio.Semaphore(AT_ONCE)

        async def take(one: int) -> None:
            async with turns:
                await locks.lock(f"billing:invoice:{one:05}", ttl=TTL).acquire()

        await asyncio.gather(*(take(one) for one in range(number)))
        say({"held": number})
        await asyncio.to_thread(sys.stdin.readline)  # until nobody measures any more


if __name__ == "__main__":
    asyncio.run(_hold(sys.argv[1], int(sys.argv[2])))
