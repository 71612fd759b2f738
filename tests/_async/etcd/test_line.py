"""Who is granted a lock still has its key in the line; a forced release means who held it then."""

from __future__ import annotations

from typing import Any

import pytest

from _async.etcd.scenes import revoke, waits
from holdfast import aio as holdfast
from holdfast.model import GONE
from servers.etcd import EtcdCluster
from worlds.aio import Job


async def test_a_waiter_whose_entry_is_gone_is_not_granted(cluster: EtcdCluster) -> None:
    """The lock is given back at the moment when the waiter's lease has ended."""
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await waits(others)
        old = (await others.inspect("x")).waiters[0].owner
        revoke(cluster, "waiting")
        await lease.release()
        granted = await waiter.result()
        assert granted.owner != old
        assert [one.owner for one in (await others.inspect("x")).holders] == [granted.owner]


async def test_a_waiter_whose_entry_goes_as_it_takes_the_lock_is_not_granted(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await waits(others)
        session: Any = await locks._session()
        asking = session.backend._asking
        take = asking.take
        outcomes: list[object] = []

        async def too_late(attempt: Any, by: float) -> object:
            if not outcomes:
                cluster.ctl("del", attempt.key.decode())
            outcomes.append(await take(attempt, by))
            return outcomes[-1]

        monkeypatch.setattr(asking, "take", too_late)
        revoke(cluster, "granted")  # nobody grants it the lock: it has to take that by itself
        lease = await waiter.result()
        assert outcomes[0] is GONE
        state = await others.inspect("x")
        assert [one.token for one in state.holders] == [lease.token]
        assert state.waiters == ()


async def test_a_forced_release_is_not_for_those_who_come_after(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holdfast.connect(cluster.url) as locks, holdfast.connect(cluster.url) as others:
        lease = await locks.lock("x").acquire()
        waiter = Job(others.lock("x").acquire)
        await waits(locks)
        session: Any = await locks._session()
        calls = session.backend._calls
        look = calls.range
        looks: list[int] = []

        async def slowly(*args: Any) -> Any:
            looks.append(1)
            if len(looks) == 2:
                await waiter.result()  # by its own look, when the holder has gone
            return await look(*args)

        monkeypatch.setattr(calls, "range", slowly)
        assert await locks.force_release("x") is True
        monkeypatch.undo()
        second = await waiter.result()
        assert len(looks) > 1
        await second.renew()
        assert [one.token for one in (await locks.inspect("x")).holders] == [second.token]
        assert await lease.wait_lost(timeout=10.0) is True
