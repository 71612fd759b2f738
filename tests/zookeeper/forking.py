"""`python -m zookeeper.forking URL WORLD`: holds a lock, and forks; ends with 0 if all was right."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import warnings
from typing import Any

import holdfast
import holdfast.aio


async def settle(result: Any) -> Any:
    """Returns `result`, after it was awaited if the world is asyncio."""
    return await result if asyncio.iscoroutine(result) else result


async def child(locks: Any, lease: Any) -> None:
    assert not lease.held
    try:
        await settle(lease.release())
    except holdfast.LockNotOwned:
        pass
    else:
        raise AssertionError("the child released what its parent holds")
    assert await settle(locks.lock("x").try_acquire()) is None
    mine = await settle(locks.lock("y").acquire(timeout=10.0))
    assert mine.held
    assert await settle(mine.release()) is True
    await settle(locks.close())


async def parent(locks: Any) -> None:
    lease = await settle(locks.lock("x").acquire())
    pid = os.fork()
    if pid == 0:
        try:
            # A loop of its own, in a thread that has none yet: this one is the parent's.
            failed: list[BaseException] = []

            def run() -> None:
                try:
                    asyncio.run(child(locks, lease))
                except BaseException as error:
                    failed.append(error)

            thread = threading.Thread(target=run)
            thread.start()
            thread.join(20.0)
            if failed or thread.is_alive():
                os.write(2, f"the child: {failed or 'hung'!r}\n".encode())
                os._exit(1)
            os._exit(0)
        finally:
            os._exit(2)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    await settle(lease.renew())
    assert lease.held
    assert await settle(lease.release()) is True
    await settle(locks.close())


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # newer Pythons warn of forking beside threads
    _, url, world = sys.argv
    made = holdfast.aio.connect(url) if world == "aio" else holdfast.connect(url)
    asyncio.run(parent(made))
