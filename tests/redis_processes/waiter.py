"""A process that waits for a lock and says when it has it: `waiter.py URL NAME WORLD CLAIM`."""

from __future__ import annotations

import asyncio
import sys

import holdfast
import holdfast.aio


def blocking(url: str, name: str, claim: float) -> None:
    with holdfast.connect(url, claim_window=claim) as locks:
        print("ready", flush=True)
        lease = locks.lock(name).acquire()
        print(f"held {lease.token}", flush=True)
        sys.stdin.readline()


async def asynchronous(url: str, name: str, claim: float) -> None:
    async with holdfast.aio.connect(url, claim_window=claim) as locks:
        print("ready", flush=True)
        lease = await locks.lock(name).acquire()
        print(f"held {lease.token}", flush=True)
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    url, name, world, claim = sys.argv[1:]
    if world == "aio":
        asyncio.run(asynchronous(url, name, float(claim)))
    else:
        blocking(url, name, float(claim))
