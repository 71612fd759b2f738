"""The leases of one manager, which many locks share: when they end, and what must end before them."""

from __future__ import annotations

from typing import Any

import pytest

from _async.etcd.scenes import revoke, soon
from _async.many import hold_many
from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast._runtime.aio import Turn
from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.entries import Claim
from holdfast.lifecycle import drift_margin
from holdfast.model import GONE, Renewed
from holdfast.stores._async.contract import Terms, Ticket
from holdfast.stores.etcd._async import leases as leases_module
from holdfast.stores.etcd._async.leases import Lease
from holdfast.stores.etcd.wire import messages
from holdfast.stores.etcd.wire.messages import LEASE_KEEP_ALIVE, RANGE, parse_term, range_of
from worlds.aio import Job, eventually


async def test_a_keep_alive_counts_from_when_it_was_sent(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holdfast.connect(cluster.url) as locks:
        lease = await locks.lock("x", ttl=60.0).acquire()
        session: Any = await locks._session()
        attempts, retrier = session.backend._attempts, session.backend._retrier
        kept = attempts.known("x", lease.owner).lease
        kept.sent -= 20.0  # not fresh any more
        call = retrier.call
        asked: list[float] = []

        async def called(method: str, *args: Any) -> Any:
            if method == LEASE_KEEP_ALIVE:
                asked.append(session.clock.now())
            return await call(method, *args)

        monkeypatch.setattr(retrier, "call", called)
        await lease.renew()
        assert asked[0] - 10.0 < kept.sent <= asked[0]
        kept.sent -= 8.0  # still fresh enough to hang more on it, which renews nothing
        another = await locks.lock("y", ttl=60.0).acquire()
        assert attempts.known("y", another.owner).lease is kept
        assert another.remaining() <= 60.0 - drift_margin(60.0) - 8.0


async def test_what_needs_proof_is_proved_by_a_transaction_of_the_same_term(
    cluster: EtcdCluster,
) -> None:
    async with holdfast.connect(cluster.url) as locks:
        session: Any = await locks._session()
        retrier = session.backend._retrier
        term = parse_term(await retrier.call(RANGE, range_of(b"x"), session.deadline()))
        proved: list[str] = []
        retrier.unproven[lambda: proved.append("kept alive in this term")] = term
        retrier.unproven[lambda: proved.append("kept alive by another leader")] = term - 1
        assert await locks.lock("x").try_acquire() is not None
        assert proved == ["kept alive in this term"]
        assert not retrier.unproven


async def test_a_keep_alive_that_has_still_to_be_proved_keeps_the_lease_for_others(
    cluster: EtcdCluster,
) -> None:
    """Two need the lease, both at the last moment. (Found by the simulator.)"""
    async with holdfast.connect(cluster.url) as locks:
        backend: Any = (await locks._session()).backend
        leases = backend._leases
        lease = await leases.shared(leases_module.QUEUE, 60.0, soon(backend))
        lease.sent -= 50.0
        assert await leases.shared(leases_module.QUEUE, 60.0, soon(backend)) is lease
        lease.sent -= 10.0
        assert await leases.shared(leases_module.QUEUE, 60.0, soon(backend)) is lease
        assert not lease.dead


async def test_a_lease_that_ended_while_waiting_is_made_anew(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await until_waiting(others)
        before = (await others.inspect("x")).waiters[0].owner
        revoke(cluster, "waiting")

        async def again() -> bool:
            people = (await others.inspect("x")).waiters
            return bool(people) and people[0].owner != before

        await eventually(again)
        assert not waiter.done()
        await lease.release()
        assert (await waiter.result()).token > lease.token


async def test_what_could_not_be_given_back_ends_though_its_lease_lives_on(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        await locks.lock("beside it", ttl=2.0).acquire(timeout=10.0)
        lease = await locks.lock("x", ttl=2.0).acquire(timeout=10.0)
        session: Any = await locks._session()

        async def cut(*args: object) -> object:
            raise holdfast.BackendUnavailable("the way is cut")

        with monkeypatch.context() as patch:
            patch.setattr(session.backend._releaser, "_leave_queue", cut)
            with pytest.raises(holdfast.BackendUnavailable):
                await lease.release()
        assert (await others.lock("x").acquire(timeout=15.0)).token > lease.token


async def test_what_was_given_up_is_not_renewed_and_what_was_renewed_is_not_given_up(
    cluster: EtcdCluster,
) -> None:
    """Both may be under way at once, for one that nobody had renewed. (Found by the simulator.)"""
    async with holdfast.connect(cluster.url) as locks:
        lease = await locks.lock("x", ttl=60.0).acquire()
        backend: Any = (await locks._session()).backend
        (attempt,) = backend._attempts._attempts.values()
        asked = backend._leases.keep_alive

        async def is_just_released(*args: Any) -> bool:
            """Somebody else finds that its time is over while it is being renewed."""
            attempt.until = 0.0
            assert attempt.lapse(backend.clock.now())
            kept: bool = await asked(*args)
            return kept

        backend._leases.keep_alive = is_just_released
        (renewed,) = await backend.renew([Claim("x", lease.owner, 60.0)], soon(backend))
        assert renewed is GONE  # and it is not `UNKNOWN`, which is equal to it
        backend._leases.keep_alive = asked
        attempt.released = False
        attempt.until = 0.0
        (renewed,) = await backend.renew([Claim("x", lease.owner, 60.0)], soon(backend))
        assert isinstance(renewed, Renewed)
        assert not attempt.lapse(backend.clock.now())


async def test_nobody_is_kept_by_another_who_asks_the_cluster_for_the_same(
    cluster: EtcdCluster,
) -> None:
    async with holdfast.connect(cluster.url) as locks:
        await (await locks.lock("x").acquire()).release()
        session: Any = await locks._session()
        backend, clock = session.backend, session.clock
        leases = backend._leases
        lease = await leases.shared("hold", 30.0, session.deadline())
        lease.sent -= lease.ttl / 2  # not fresh any more
        for turn in (lease.keeping, leases._granting):
            assert await Job(turn.take, 1.0).result()
            for owner in ("me", "you"):
                ticket = Ticket(Terms("x", 30.0, session.label), owner)
                with pytest.raises(holdfast.BackendUnavailable, match="in time"):
                    await backend.acquire(ticket, clock.now() + 0.1)
            turn._lock = Turn()._lock  # the other has left
            lease.dead = True
        assert await locks.lock("x").try_acquire() is not None


async def test_a_crowd_in_one_manager_loses_nothing(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keep-alives at every turn, and none of them ends what another is just about to end."""
    monkeypatch.setattr(leases_module, "STALE", 1e9)
    async with holdfast.connect(cluster.url) as locks:
        turns = 0

        async def work(name: str) -> None:
            nonlocal turns
            for _ in range(30):
                async with locks.lock(name):
                    turns += 1

        jobs = [Job(work, name) for name in ("a", "b") for _ in range(4)]
        for job in jobs:
            await job.result()
        assert turns == 240
        assert await locks.list() == []


async def test_many_locks_cost_no_thread_each(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks:
        first = await locks.lock("first").acquire()
        await first.renew()
        await hold_many(locks)


def test_a_lease_is_over_by_our_clock_before_it_is_by_etcds() -> None:
    """Then nobody holds what hangs on it, and to keep it alive would keep their keys in the way."""
    lease = Lease(7, leases_module.HOLD, 60, 60, sent=100.0)
    lease.unproven = 110.0  # a later one, which has still to be proved
    end = 170.0 - drift_margin(60.0)
    assert not lease.expire_if_due(end - 0.001)
    assert lease.expire_if_due(end)
    assert lease.dead
    assert lease.expire_if_due(100.0)  # whatever comes after that


async def test_a_lease_that_ended_is_not_used_again_by_a_lock_that_was_on_it(
    cluster: EtcdCluster,
) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend: Any = (await locks._session()).backend
        lock = locks.lock("x")
        await (await lock.acquire()).release()
        (old,) = backend._leases._all.values()
        await backend._retrier.call(messages.LEASE_REVOKE, messages.lease_id(old.id), soon(backend))
        lease = await lock.acquire(timeout=10.0)
        now = backend._attempts.known("x", lease.owner).lease
        assert now is not old
        now.sent -= 20.0  # neither is one that has to be kept alive first
        kept = now.sent
        other = await locks.lock("y").acquire(timeout=10.0)
        assert backend._attempts.known("y", other.owner).lease is now
        assert now.sent > kept
        assert await lease.release() is True
