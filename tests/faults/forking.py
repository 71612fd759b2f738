"""`python -m faults.forking SCENE WORLD URL`: processes that hold a lock and fork.

Each scene ends with status 0, or says on stderr what was wrong.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import warnings
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
from faults.program import inside, settle

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


async def several(world: str, locks: Any, stage: Stage) -> None:
    """A lease on several locks is the parent's as a whole and in each of its parts."""
    whole = await settle(locks.multi(["a", "b", "c"], ttl=15.0).acquire())
    lost: list[Any] = []
    whole.on_lost(lost.append)

    async def child() -> None:
        assert not whole.held
        for part in whole.leases.values():
            await holds_nothing(part)
        calls = (whole.ensure, whole.renew, whole.release, whole.wait_lost)
        for call in (*calls, lambda: whole.on_lost(print)):
            refused = False
            try:
                await settle(call())
            except holdfast.LockNotOwned:
                refused = True
            assert refused, f"{call} was allowed to the child"
        assert await settle(locks.multi(["c", "d"]).try_acquire()) is None
        mine = await settle(locks.multi(["d", "e"]).acquire(timeout=5.0))
        assert await settle(mine.release()) is True
        await settle(locks.close())

    async def entering() -> None:
        try:
            async with inside(whole):
                pass
        except holdfast.LockNotOwned:
            return
        raise AssertionError("the child could enter")

    ended_well(fork(world, child))
    ended_well(fork(world, entering))
    assert whole.held
    await settle(whole.renew())
    for part in whole.leases.values():
        await still_held(part, stage)
    assert lost == []
    assert await settle(whole.release()) is True
    again = await settle(locks.multi(["a", "b", "c"]).try_acquire())
    assert again is not None
    assert await settle(again.release()) is True


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


async def often(world: str, locks: Any, stage: Stage) -> None:
    """Many forks between two marks that strace can see; parent and child write in between."""
    lease = await settle(locks.lock("x").acquire())

    async def child() -> None:
        other = await settle(locks.lock("y").acquire(timeout=5.0))
        assert await settle(other.release()) is True

    marks = os.open(f"{os.path.dirname(stage.path)}/marks", os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(marks, b"begin")
    for _ in range(10):
        ended_well(fork(world, child))
        await settle(lease.renew())
    os.write(marks, b"over")
    os.close(marks)
    assert await settle(lease.release()) is True


async def closed(world: str, locks: Any, stage: Stage) -> None:
    """The parent forks, and closes without another step: the file alone is the whole store."""
    lease = await settle(locks.lock("x").acquire())
    assert await settle(lease.release()) is True

    async def child() -> None:
        await settle(locks.close())

    ended_well(fork(world, child))
    await settle(locks.close())
    assert os.path.exists(stage.path)
    assert not os.path.exists(f"{stage.path}-wal"), (
        "a copy of the file would miss what is in its log"
    )


def main(scenes: dict[str, Any]) -> None:
    """Plays the scene that the command names."""
    # Python 3.12 and later warn of forks in a process with threads, which is what this is about.
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
    scene, world, folder = sys.argv[1:]
    stage = Stage(folder)

    async def whole() -> None:
        locks = connect(world, stage.url)
        await scenes[scene](world, locks, stage)
        await settle(locks.close())

    try:
        play(world, whole)
        stage.end()
    finally:
        stage.clear()


if __name__ == "__main__":
    main(globals())
