"""A process that waits for a lock and says when it has it: `waiter.py URL NAME WORLD`."""

from __future__ import annotations

import asyncio
import sys

import holdfast
import holdfast.aio


def blocking(url: str, name: str) -> None:
    with holdfast.connect(url) as locks:
        print("ready", flush=True)
        lease = locks.lock(name).acquire()
        print(f"held {lease.token}", flush=True)
        sys.stdin.readline()


async def asynchronous(url: str, name: str) -> None:
    async with holdfast.aio.connect(url) as locks:
        print("ready", flush=True)
        lease = await locks.lock(name).acquire()
        print(f"held {lease.token}", flush=True)
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    url, name, world = sys.argv[1:]
    if world == "aio":
        asyncio.run(asynchronous(url, name))
    else:
        blocking(url, name)
