"""`python -m redis_processes.forking WORLD URL`: holds a lock and forks; what does each have then?"""

from __future__ import annotations

import sys

from faults.forking import connect, ended_well, fork, holds_nothing, play
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


if __name__ == "__main__":
    play(sys.argv[1], scene, sys.argv[1], sys.argv[2])
