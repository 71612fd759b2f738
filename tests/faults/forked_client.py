"""`python -m faults.forked_client HOW URL`: holds a lock and forks; what does each have then?

HOW is a world; or `untold`: a fork that Python is not told of; or `raises` or `returns`: what a
signal's handler does in the child that it forks while its thread waits in the queue; or `leaves`: the
child leaves the loop that it was forked in, as `sys.exit()` does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from contextlib import suppress

import holdfast
import holdfast.aio
from faults.actors import until
from faults.children import CHILD_LIMIT, connect, ended_well, fork, holds_nothing, play, untold_fork
from faults.program import settle


async def scene(world: str, url: str) -> None:
    locks = connect(world, url)
    lease = await settle(locks.lock("x", ttl=30.0).acquire())

    async def child() -> None:
        await holds_nothing(lease)
        assert await settle(locks.lock("x").try_acquire()) is None
        other = await settle(locks.lock("y").acquire())
        assert await settle(other.release()) is True

    ended_well(fork(world, child))
    assert lease.held
    await settle(lease.renew())
    assert await settle(lease.release()) is True
    await settle(locks.close())


def untold(url: str) -> None:
    locks = connect("blocking", url)
    lease = locks.lock("x", ttl=30.0).acquire()

    def child() -> None:
        assert not lease.held
        for call in (lease.ensure, lease.renew, lease.release):
            try:
                call()
            except holdfast.LockNotOwned:
                continue
            raise AssertionError(call)
        assert locks.lock("x").try_acquire() is None
        with locks.lock("y"):
            pass
        locks.close()

    ended_well(untold_fork(child))
    assert lease.held
    lease.renew()
    assert lease.release() is True
    locks.close()


class Interrupt(Exception):
    """What the handler raises in the child."""


def handler(how: str, url: str) -> None:
    """The place in the queue, and what is granted to it, stay the parent's."""
    limit = 30.0 if how == "raises" else 4.0
    locks, rival = holdfast.connect(url), holdfast.connect(url)
    busy = rival.lock("x", ttl=30.0).acquire()
    parent, main = os.getpid(), threading.get_ident()
    children: list[int] = []

    def fork_here(*arguments: object) -> None:
        child = os.fork()
        if child:
            children.append(child)
            return
        signal.alarm(CHILD_LIMIT)
        if how == "raises":
            raise Interrupt

    signal.signal(signal.SIGUSR1, fork_here)

    def waiters() -> list[str]:
        return [waiter.owner for waiter in rival.inspect("x").waiters]

    def disturb() -> None:
        until(waiters)
        before = waiters()
        signal.pthread_kill(main, signal.SIGUSR1)
        until(lambda: children)
        if how == "raises":
            ended_well(children[0])
            assert waiters() == before, "the child has left the queue for its parent"
        assert busy.release() is True

    failures: list[BaseException] = []

    def watch_over() -> None:
        try:
            disturb()
        except BaseException as error:
            failures.append(error)
            with suppress(holdfast.LockError):
                busy.release()

    thread = threading.Thread(target=watch_over)
    thread.start()
    outcome: object = None
    try:
        outcome = locks.lock("x", ttl=30.0).acquire(timeout=limit)
    except BaseException as error:
        outcome = error
    if os.getpid() != parent:
        expected = Interrupt if how == "raises" else holdfast.LockError
        if not isinstance(outcome, expected):
            os.write(2, f"the child: {outcome!r}\n".encode())
        os._exit(not isinstance(outcome, expected))
    thread.join()
    assert failures == []
    if how == "returns":
        ended_well(children[0])
    assert isinstance(outcome, holdfast.Lease), outcome
    outcome.renew()
    assert outcome.release() is True
    locks.close()
    rival.close()


async def leaves(url: str) -> None:
    """The child runs its copy of the loop to its end, in the middle of what its parent asked for."""
    locks = holdfast.aio.connect(url)
    lease = await locks.lock("x", ttl=30.0).acquire()
    for _ in range(5):
        asked = [asyncio.create_task(locks.lock(name, ttl=30.0).acquire()) for name in "abcde"]
        await asyncio.sleep(0)  # they have begun
        child = os.fork()
        if not child:
            signal.alarm(CHILD_LIMIT)
            sys.exit(0)
        await asyncio.to_thread(ended_well, child)  # a thread wakes the loop, too
        for one in await asyncio.gather(*asked):
            await one.renew()
            assert await one.release() is True
        await lease.renew()
    assert await lease.release() is True
    await locks.close()


if __name__ == "__main__":
    how, url = sys.argv[1:]
    if how == "untold":
        untold(url)
    elif how == "leaves":
        asyncio.run(leaves(url))
    elif how in ("raises", "returns"):
        handler(how, url)
    else:
        play(how, scene, how, url)
