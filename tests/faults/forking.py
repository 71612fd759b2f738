"""`python -m faults.forking SCENE WORLD URL`: processes that hold a lock and fork.

Each scene ends with status 0, or says on stderr what was wrong.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import holdfast
import holdfast.aio
from faults.actors import Stage, reached, until
from faults.children import (
    CHILD_LIMIT,
    connect,
    ended_well,
    fork,
    holds_nothing,
    play,
    still_held,
    untold_fork,
)
from faults.program import drive, inside, settle
from holdfast.stores.sqlite import store

# The scenes.


async def inherited(world: str, locks: Any, stage: Stage) -> None:
    """The lease is not the child's, whatever it does with it, and its end ends nothing."""
    lease = await settle(locks.lock("x", ttl=3.0).acquire())
    lost: list[Any] = []
    lease.on_lost(lost.append)

    async def child() -> None:
        await holds_nothing(lease)

    async def entering() -> None:
        try:
            async with inside(lease):
                pass
        except holdfast.LockNotOwned:
            return
        raise AssertionError("the child could enter")

    ended_well(fork(world, child))
    ended_well(fork(world, entering))
    await still_held(lease, stage)
    seen: list[float] = [lease.ttl]

    def rose() -> bool:
        seen.append(lease.remaining())
        return seen[-1] > seen[-2]

    # It is renewed by itself, too.
    if world == "aio":
        await reached(rose)
    else:
        until(rose)
    assert lost == []
    assert await settle(lease.release()) is True


async def anew(world: str, locks: Any, stage: Stage) -> None:
    """The manager works in the child, as another process's, and waits for the parent like all."""
    lease = await settle(locks.lock("x").acquire())

    async def child() -> None:
        other = await settle(locks.lock("y").acquire(timeout=5.0))
        assert other.token > lease.token
        assert await settle(locks.lock("x").try_acquire()) is None
        mine = await settle(locks.lock("x").acquire(timeout=8.0))
        assert mine.token > other.token
        assert mine.held
        await holds_nothing(lease)
        await settle(locks.close())

    pid = fork(world, child)
    while [waiter.label.pid for waiter in (await settle(locks.inspect("x"))).waiters] != [pid]:
        await settle(locks.lock("z").acquire())  # the parent goes on working meanwhile
        await settle(locks.force_release("z"))
    assert await settle(locks.lock("y").try_acquire()) is None  # the child's
    assert await settle(lease.release()) is True
    again = await settle(locks.lock("x").acquire(timeout=8.0))  # it closed, which released
    assert again.token > lease.token
    ended_well(pid)
    assert await settle(locks.lock("y").try_acquire()) is not None


async def ends(world: str, locks: Any, stage: Stage) -> None:
    """A child that ends as Python programs do, with all their finalisers, releases nothing."""
    lease = await settle(locks.lock("x").acquire())

    async def child() -> None:
        await holds_nothing(lease)
        other = await settle(locks.lock("y").acquire(timeout=5.0))
        assert other.held

    context = multiprocessing.get_context("fork")
    process = context.Process(target=play, args=(world, child))
    process.start()
    process.join(CHILD_LIMIT)
    assert process.exitcode == 0
    await still_held(lease, stage)
    # What the child held ended with it.
    assert await settle(locks.lock("y").try_acquire()) is not None


async def killed(world: str, locks: Any, stage: Stage) -> None:
    """Nor does one that is killed, or is a child's child."""
    lease = await settle(locks.lock("x").acquire())

    async def child() -> None:
        async def grandchild() -> None:
            await holds_nothing(lease)
            assert await settle(locks.lock("x").try_acquire()) is None

        assert await settle(locks.lock("x").try_acquire()) is None
        ended_well(fork(world, grandchild))
        os.kill(os.getpid(), signal.SIGKILL)

    pid = fork(world, child)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    await still_held(lease, stage)


async def orphaned(world: str, locks: Any, stage: Stage) -> None:
    """A child that waits for its own parent is told of the parent's death, like anybody."""
    from_child, to_us = os.pipe()

    async def parent() -> None:
        lease = await settle(locks.lock("x").acquire(timeout=5.0))

        async def child() -> None:
            mine = await settle(locks.lock("x").acquire(timeout=5.0))
            os.write(to_us, b"late" if mine.token <= lease.token else b"mine")

        ended_well(fork(world, child))

    pid = fork(world, parent)
    os.close(to_us)
    while not (await settle(locks.inspect("x"))).waiters:
        os.sched_yield()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert os.read(from_child, 4) == b"mine"


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
            with locks.lock(f"work {number}", timeout=10.0):
                pass

    async def child() -> None:
        lease = locks.lock("child").acquire(timeout=10.0)
        assert lease.release() is True

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
    """Python was not told of the fork: the child can neither use nor end what the parent holds."""
    assert world == "blocking"
    lease = locks.lock("x", ttl=600.0).acquire()

    def child() -> None:
        for call in (lease.renew, lease.release, locks.lock("x").acquire, locks.close):
            with suppress(holdfast.LockError):
                call()
        refusal = ""
        try:
            holdfast.connect(stage.url).lock("y").acquire()
        except holdfast.BackendUnavailable as error:
            refusal = str(error)
        assert "forked" in refusal, "a file that was open at the fork is of no use to the child"

    ended_well(untold_fork(child))
    await still_held(lease, stage)
    assert lease.release() is True


async def untold_before_use(world: str, locks: Any, stage: Stage) -> None:
    """A manager that nobody has used before such a fork works in parent and child."""
    assert world == "blocking"
    from_child, to_us = os.pipe()
    from_us, to_child = os.pipe()

    def child() -> None:
        lease = locks.lock("x").acquire()
        os.write(to_us, b"1")
        os.read(from_us, 1)
        assert locks.lock("y").try_acquire() is None
        assert lease.release() is True

    pid = untold_fork(child)
    assert os.read(from_child, 1) == b"1"
    assert locks.lock("x").try_acquire() is None
    lease = locks.lock("y").acquire()
    os.write(to_child, b"1")
    ended_well(pid)
    await still_held(lease, stage)


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


async def apart(world: str, locks: Any, stage: Stage) -> None:
    """Parent and child part; each must see what others do, and be seen."""
    await settle(locks.lock("x").acquire())
    from_child, to_parent = os.pipe()
    from_parent, to_child = os.pipe()

    async def child() -> None:
        mine = await settle(locks.lock("mine").acquire(timeout=5.0))
        os.write(to_parent, b"1")
        os.read(from_parent, 1)
        both = await settle(locks.lock("both").try_acquire())
        assert both is not None
        assert await settle(mine.release()) is True
        os.write(to_parent, b"2")
        os.read(from_parent, 1)
        assert both.held
        await settle(both.renew())

    pid = fork(world, child)
    os.read(from_child, 1)
    await settle(locks.close())
    stranger = stage.actor()
    assert stranger.attempt("x") is not None, "the parent has closed"
    os.write(to_child, b"1")
    os.read(from_child, 1)
    both = stranger.attempt("both")
    mine = stranger.attempt("mine")
    os.write(to_child, b"2")
    ended_well(pid)
    assert both is None, "two processes hold one lock"
    assert mine is not None, "the child's release was not seen"


def main() -> None:
    # Python 3.12 and later warn of forks in a process with threads, which is what this is about.
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
    scene, world, folder = sys.argv[1:]
    stage = Stage(folder)

    async def whole() -> None:
        locks = connect(world, stage.url)
        await globals()[scene](world, locks, stage)
        await settle(locks.close())

    try:
        play(world, whole)
        stage.end()
    finally:
        stage.clear()


if __name__ == "__main__":
    main()
