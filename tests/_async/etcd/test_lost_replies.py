"""Trouble on the way between a client and etcd: replies lost, requests late, the way cut."""

from __future__ import annotations

from typing import Any

import pytest

from _async.etcd.scenes import through
from holdfast import aio as holdfast
from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.chaos.servers.proxy import Proxy
from holdfast.stores.etcd.wire import messages
from worlds.aio import Job, eventually


async def test_an_acquire_whose_reply_was_lost_is_the_same_acquire(
    cluster: EtcdCluster, proxy: Proxy
) -> None:
    async with holdfast.connect(cluster.url) as watcher, through(proxy) as locks:
        proxy.reset_once = True
        lease = await locks.lock("x").acquire()
        assert not proxy.reset_once
        state = await watcher.inspect("x")
        assert [holder.token for holder in state.holders] == [lease.token]
        assert state.waiters == ()
        assert await lease.release() is True
        assert not (await watcher.inspect("x")).held


@pytest.mark.usefixtures("unwatched")
async def test_an_acquire_that_was_carried_out_and_has_ended_since_is_made_anew(
    cluster: EtcdCluster,
) -> None:
    """Its reply was lost, and its entry gone before it could be asked for."""
    async with holdfast.connect(cluster.url) as watcher, holdfast.connect(cluster.url) as locks:
        backend: Any = (await locks._session()).backend
        ask = backend._acquirer.acquire
        owners: list[str] = []

        async def lost(attempt: Any, queue: bool, deadline: float) -> Any:
            owners.append(attempt.owner)
            answer = await ask(attempt, queue, deadline)
            if len(owners) > 1:
                return answer
            await backend._retrier.call(messages.DELETE, messages.delete_one(attempt.key), deadline)
            return None, deadline

        backend._acquirer.acquire = lost
        lease = await locks.lock("x").acquire(timeout=30.0)
        assert owners == [owners[0], lease.owner]
        assert owners[0] != lease.owner
        (holder,) = (await watcher.inspect("x")).holders
        assert holder.owner == lease.owner
        assert await lease.release() is True
        # Who does not wait, or has named the attempt, is told.
        owners.clear()
        with pytest.raises(holdfast.BackendUnavailable, match="has ended since"):
            await locks.lock("x").try_acquire()
        owners.clear()
        with pytest.raises(holdfast.BackendUnavailable, match="never used"):
            await locks.lock("x").acquire(timeout=30.0, owner="mine")
        assert not (await watcher.inspect("x")).held


async def test_a_release_whose_reply_was_lost_says_that_it_was_ours(
    cluster: EtcdCluster, proxy: Proxy
) -> None:
    async with holdfast.connect(cluster.url) as watcher, through(proxy) as locks:
        lease = await locks.lock("x").acquire()
        proxy.reset_once = True
        assert await lease.release() is True
        assert not proxy.reset_once
        assert not (await watcher.inspect("x")).held
        assert await lease.release() is False


async def test_both_replies_were_lost_and_the_release_was_ours(
    cluster: EtcdCluster, proxy: Proxy
) -> None:
    """It leaves a tombstone, since the acquire may still arrive; the second try finds that one."""
    async with holdfast.connect(cluster.url) as watcher, through(proxy) as locks:
        proxy.reset_once = True
        lease = await locks.lock("x").acquire()
        proxy.reset_once = True
        assert await lease.release() is True
        assert not proxy.reset_once
        assert not (await watcher.inspect("x")).held


async def test_an_acquire_that_arrives_after_its_release_leaves_no_ghost(
    cluster: EtcdCluster, proxy: Proxy
) -> None:
    async with holdfast.connect(cluster.url) as watcher, through(proxy) as locks:
        proxy.keep_once = True
        lease = await locks.lock("x").acquire()  # a second try; the first one is under way
        assert await lease.release() is True
        proxy.let_go()
        assert not (await watcher.inspect("x")).held
        rival = await watcher.lock("x").try_acquire()
        assert rival is not None
        assert rival.token > lease.token
        await rival.release()


@pytest.mark.usefixtures("unwatched")
async def test_a_release_that_arrives_late_does_not_free_the_next_holder(
    cluster: EtcdCluster, proxy: Proxy
) -> None:
    async with holdfast.connect(cluster.url) as watcher, through(proxy) as locks:
        lease = await locks.lock("x").acquire()
        proxy.keep_once = True
        assert await lease.release() is True
        second = await locks.lock("x").acquire(timeout=5.0)
        proxy.let_go()
        assert [one.token for one in (await watcher.inspect("x")).holders] == [second.token]
        await second.renew()
        assert await second.release() is True


async def test_a_holder_whose_way_is_cut_is_told_before_its_rival_is_granted(
    cluster: EtcdCluster, proxy: Proxy
) -> None:
    """Ten times out of ten: ten holders at once, each with a manager and a rival of its own."""
    names = [f"n{number}" for number in range(10)]
    holders = [holdfast.connect(f"etcd://127.0.0.1:{proxy.port}") for _ in names]
    async with holdfast.connect(cluster.url) as rivals:
        lost: list[str] = []
        leases: dict[str, holdfast.Lease] = {}
        for name, locks in zip(names, holders, strict=True):
            leases[name] = await locks.lock(name, ttl=2.0).acquire()
            leases[name].on_lost(lambda one: lost.append(one.name))
        granted: dict[str, bool] = {}
        """By name: whether the holder held it still."""

        async def take(name: str) -> None:
            rival = await rivals.lock(name).acquire()
            granted[name] = leases[name].held
            assert rival.held

        jobs = [Job(take, name) for name in names]

        async def all_wait() -> bool:
            return sum(len(state.waiters) for state in await rivals.list()) == len(names)

        await eventually(all_wait)
        for lease in leases.values():
            await lease.renew()
        proxy.stalled = True  # nothing gets through, either way
        for job in jobs:
            await job.result()
        assert granted == dict.fromkeys(names, False)
        await eventually(lambda: sorted(lost) == names)
        proxy.stalled = False
        proxy.hang_up()
        for locks in holders:
            await locks.close()
