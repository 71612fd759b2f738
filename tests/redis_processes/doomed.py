"""Gets a lock and gives it back, in blocking code twice: to be killed at any system call on the way."""

from __future__ import annotations

import sys


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


if __name__ == "__main__":
    if sys.argv[2] == "aio":
        import asyncio

        asyncio.run(asynchronous(sys.argv[1]))
    else:
        blocking(sys.argv[1])
    print("done", flush=True)
