"""Leases that vanish under a running manager, and what a manager leaves at the store for a while."""

from __future__ import annotations

from typing import Any

import pytest

from _async.etcd.scenes import backend_of, soon
from holdfast import aio as holdfast
from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.stores._async.contract import Terms, Ticket
from holdfast.stores.etcd._async import leases as leases_module
from holdfast.stores.etcd._async import release as release_module
from holdfast.stores.etcd._async.leases import TOMBSTONES
from worlds.aio import eventually


async def bury(backend: Any, owner: str, name: str = "x") -> bytes:
    """Gives up an attempt of which a request may still arrive; returns its key."""
    label = holdfast.Label("here", 1, "")
    await backend.acquire(Ticket(Terms(name, 30.0, label), owner), soon(backend))
    attempt = backend._attempts.known(name, owner)
    attempt.doubt()
    await backend.release(name, owner, soon(backend))
    key: bytes = attempt.key
    return key


def vanish(cluster: EtcdCluster, *leases: Any) -> None:
    for lease in leases:
        cluster.ctl("lease", "revoke", f"{lease.id:x}")


async def test_the_lease_under_tombstones_is_granted_anew(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        unrelated = await locks.lock("unrelated", ttl=30.0).acquire()
        await bury(backend, "first")
        (old,) = [one for one in backend._leases._all.values() if one.kind == TOMBSTONES]
        vanish(cluster, old)
        await bury(backend, "second")
        assert cluster.ctl(
            "get", "--prefix", "/holdfast/holdfast/left/", "--keys-only"
        ).split() == ["/holdfast/holdfast/left/second"]
        await unrelated.renew()
        assert unrelated.held
        assert await (await locks.lock("x").acquire()).release() is True


async def test_a_release_that_failed_for_a_vanished_lease_harms_nobody_else(
    cluster: EtcdCluster,
) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        unrelated = await locks.lock("unrelated", ttl=30.0).acquire()
        await bury(backend, "first")
        (old,) = [one for one in backend._leases._all.values() if one.kind == TOMBSTONES]
        label = holdfast.Label("here", 1, "")
        await backend.acquire(Ticket(Terms("y", 30.0, label), "pending"), soon(backend))
        attempt = backend._attempts.known("y", "pending")
        attempt.doubt()
        attempt.give_up()
        backend._attempts.postpone(attempt)
        attempt.lease.sent -= attempt.lease.ttl / 2  # not fresh any more
        vanish(cluster, old)
        # It is released before the lease that both are on is kept alive.
        await unrelated.renew()
        assert unrelated.held
        assert not (await locks.inspect("y")).held


async def test_when_all_leases_vanish_holders_are_told_and_the_manager_works(
    cluster: EtcdCluster,
) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        lost = await locks.lock("lost", ttl=30.0).acquire()
        await bury(backend, "first")
        own = await locks.lock("own", ttl=30.0, renew=False).acquire()
        vanish(cluster, *list(backend._leases._all.values()))
        with pytest.raises(holdfast.LeaseLost):
            await lost.renew()
        with pytest.raises(holdfast.LeaseLost):
            await own.renew()
        await bury(backend, "second")
        for name in ("lost", "own", "new"):
            assert await (await locks.lock(name, ttl=30.0).acquire()).release() is True


async def test_tombstones_go_while_others_are_still_made(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_module, "TOMBSTONE_TTL", 4.0)
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        await bury(backend, "first")
        made = 0

        async def gone() -> bool:
            nonlocal made
            made += 1
            await bury(backend, f"another {made}")
            return not cluster.ctl("get", "/holdfast/holdfast/left/first")

        await eventually(gone)


async def test_a_key_is_used_again_after_its_attempt_was_given_up(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        assert len({await bury(backend, f"owner {number}") for number in range(20)}) == 1


async def test_leases_of_single_locks_are_forgotten(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases_module, "IDLE_OWN", 3)
    async with holdfast.connect(cluster.url) as locks:
        leases: Any = (await backend_of(locks))._leases
        held = [
            await locks.lock(f"x{number}", ttl=30.0, renew=False).acquire() for number in range(20)
        ]
        assert len(leases._all) >= 20
        for lease in held:
            await lease.release()
        assert len(leases._all) == 3
        for number in range(leases_module.SWEEP + 40):  # some that nobody releases
            lease = await locks.lock(f"y{number}", ttl=1.0, renew=False).acquire()
            backend: Any = await backend_of(locks)
            attempt = backend._attempts.known(f"y{number}", lease.owner)
            attempt.lease.sent -= 60.0
            attempt.lease.unproven -= 60.0
        assert len(leases._all) <= leases_module.SWEEP + 3
