"""`signalled.py URL NAME WORLD TIMEOUT`: waits for a lock while a signal comes twenty times a second.

Prints "ready" once the store has been reached, reads a line, acquires, and prints what became of it.
A TIMEOUT of 0 is none.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import closing

import holdfast
import holdfast.aio

EVERY = 0.05
HEARTBEAT = 0.5


def start_signals() -> None:
    signal.signal(signal.SIGALRM, lambda number, frame: None)
    signal.setitimer(signal.ITIMER_REAL, EVERY, EVERY)


def reached() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def blocking(url: str, name: str, timeout: float | None) -> None:
    with closing(holdfast.connect(url, heartbeat=HEARTBEAT)) as locks:
        locks.lock("before").acquire().release()
        reached()
        start_signals()
        try:
            lease = locks.lock(name).acquire(timeout=timeout)
        except holdfast.LockError as error:
            print(type(error).__name__, flush=True)
        else:
            print(f"held {lease.token}", flush=True)
        sys.stdin.readline()


async def asynchronous(url: str, name: str, timeout: float | None) -> None:
    async with holdfast.aio.connect(url, heartbeat=HEARTBEAT) as locks:
        await (await locks.lock("before").acquire()).release()
        reached()
        start_signals()
        try:
            lease = await locks.lock(name).acquire(timeout=timeout)
        except holdfast.LockError as error:
            print(type(error).__name__, flush=True)
        else:
            print(f"held {lease.token}", flush=True)
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    url, name, world, wanted = sys.argv[1:]
    timeout = float(wanted) or None
    if world == "aio":
        asyncio.run(asynchronous(url, name, timeout))
    else:
        blocking(url, name, timeout)
