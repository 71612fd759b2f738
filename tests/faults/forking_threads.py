"""`python -m faults.forking_threads SCENE WORLD URL`: forks while threads use the manager, or fork too.

Each scene ends with status 0, or says on stderr what was wrong.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import holdfast
from faults.actors import Stage, reached
from faults.children import ended_well, fork, untold_fork
from faults.forking import main
from faults.program import drive, settle
from holdfast.stores.sqlite import store


async def busy(world: str, locks: Any, stage: Stage) -> None:
    """Many forks while threads are in the middle of using the manager."""
    assert world == "blocking"
    over = threading.Event()

    def work(number: int) -> None:
        while not over.is_set():
            with locks.lock(f"work {number}", timeout=5.0):
                pass

    async def child() -> None:
        lease = locks.lock("child").acquire(timeout=5.0)
        assert lease.release() is True

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(50):
            ended_well(fork(world, child))
    finally:
        over.set()
        for thread in threads:
            thread.join()


async def crowded(world: str, locks: Any, stage: Stage) -> None:
    """Several threads fork at once, while others use the manager."""
    assert world == "blocking"
    sys.setswitchinterval(1e-6)  # between any two steps of a fork
    others = [holdfast.connect(stage.url) for _ in range(3)]
    for other in others:
        other.lock("other").acquire().release()
    over = threading.Event()
    failures: list[str] = []

    def work(number: int) -> None:
        while not over.is_set():
            assert locks.lock(f"work {number}", timeout=10.0).acquire().release() is True

    async def child() -> None:
        assert locks.lock("child", timeout=10.0).acquire().release() is True

    def forks() -> None:
        try:
            for _ in range(20):
                ended_well(fork(world, child))
        except BaseException as error:
            failures.append(repr(error))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    forking = [threading.Thread(target=forks) for _ in range(4)]
    for thread in (*workers, *forking):
        thread.start()
    for thread in forking:
        thread.join()
    over.set()
    for thread in workers:
        thread.join()
    assert failures == []
    for manager in (locks, *others):
        with manager.lock("x", timeout=5.0):
            pass
        manager.close()


async def untold(world: str, locks: Any, stage: Stage) -> None:
    """Python is not told of the forks, while threads let go of its lock and take it again."""
    assert world == "blocking"
    sys.setswitchinterval(
        60.0
    )  # no thread asks another one to give the lock away: see `untold_fork`
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            os.stat("/")

    def child() -> None:
        assert locks.lock("child", timeout=10.0).acquire().release() is True

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            ended_well(untold_fork(child))
    finally:
        over.set()
        for thread in threads:
            thread.join()


async def midway(world: str, locks: Any, stage: Stage) -> None:
    """A fork while another thread is inside a transaction: neither suffers."""
    first = await settle(locks.lock("x").acquire())
    entered, forked = threading.Event(), threading.Event()

    def slow(real: Callable[..., int]) -> Callable[..., int]:
        """A clock that a grant asks in the middle of its transaction."""

        def clock(*arguments: int) -> int:
            if not entered.is_set():
                entered.set()
                # As long as it takes until the fork has come, or else so long that it would have.
                forked.wait(0.25)
            return real(*arguments)

        return clock

    time.time_ns, time.clock_gettime_ns = slow(time.time_ns), slow(time.clock_gettime_ns)
    vars(store)["grant_alone"] = lambda *args: None  # it would run no code of ours

    async def child() -> None:
        lease = await settle(locks.lock("y").acquire(timeout=3.0))
        assert await settle(lease.release()) is True

    async def acquire() -> Any:
        return await settle(locks.lock("slow").acquire(timeout=5.0))

    if world == "aio":
        task = asyncio.create_task(acquire())
        await reached(entered.is_set)
        pid = fork(world, child)
        forked.set()
        await task
    else:
        thread = threading.Thread(target=drive, args=(acquire(),))
        thread.start()
        entered.wait(20)
        pid = fork(world, child)
        forked.set()
        thread.join()
    ended_well(pid)
    assert await settle(locks.lock("slow").try_acquire()) is None
    await settle(first.renew())


if __name__ == "__main__":
    main(globals())
