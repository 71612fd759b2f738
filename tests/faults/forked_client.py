"""`python -m faults.forked_client HOW URL`: holds a lock and forks; what does each have then?

HOW is a world, or `untold`: a fork that Python is not told of.
"""

from __future__ import annotations

import sys

import holdfast
from faults.children import connect, ended_well, fork, holds_nothing, play, untold_fork
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


if __name__ == "__main__":
    how, url = sys.argv[1:]
    if how == "untold":
        untold(url)
    else:
        play(how, scene, how, url)
