"""Gets a lock and gives it back, in blocking code twice: to be killed at any system call on the way.

`doomed.py URL WORLD` finds it free. `doomed.py URL WORLD NAME` has to wait, says when it is handed the
lock, and hands it on when it is told to.
"""

from __future__ import annotations

import sys

CLAIM, TTL = 0.5, 1.5


def blocking(url: str) -> None:
    import holdfast

    locks = holdfast.connect(url)
    lock = locks.lock("x", ttl=0.4)
    for _ in range(2):
        lock.acquire(timeout=5.0).release()
    locks.close()


async def asynchronous(url: str) -> None:
    import holdfast.aio

    async with holdfast.aio.connect(url) as locks:
        lock = locks.lock("x", ttl=0.4)
        await (await lock.acquire(timeout=5.0)).release()


def blocking_in_line(url: str, name: str) -> None:
    import holdfast

    locks = holdfast.connect(url, claim_window=CLAIM)
    lease = locks.lock(name, ttl=TTL).acquire(timeout=20.0)
    print("held", flush=True)
    sys.stdin.readline()
    lease.release()
    locks.close()


async def asynchronous_in_line(url: str, name: str) -> None:
    import asyncio

    import holdfast.aio

    async with holdfast.aio.connect(url, claim_window=CLAIM) as locks:
        lease = await locks.lock(name, ttl=TTL).acquire(timeout=20.0)
        print("held", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await lease.release()


if __name__ == "__main__":
    url, world, *name = sys.argv[1:]
    if world == "aio":
        import asyncio

        asyncio.run(asynchronous_in_line(url, name[0]) if name else asynchronous(url))
    elif name:
        blocking_in_line(url, name[0])
    else:
        blocking(url)
    print("done", flush=True)
