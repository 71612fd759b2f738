"""A waiter is granted the lock only while its key is in the queue; a forced release means the holders
of that moment."""

from __future__ import annotations

from typing import Any

import pytest

from _async.etcd.scenes import backend_of, revoke
from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.entries import Claim
from holdfast.model import GONE, Label, Queued, Renewed, new_owner
from holdfast.stores._async.contract import Terms, Ticket
from holdfast.stores.etcd.wire.messages import range_of
from worlds.aio import Job, eventually


async def test_a_waiter_whose_entry_is_gone_is_not_granted(cluster: EtcdCluster) -> None:
    """The lock is given back at the moment when the waiter's lease has ended."""
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await until_waiting(others)
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
        await until_waiting(others)
        session: Any = await locks._session()
        granter = session.backend._granter
        take = granter.take
        outcomes: list[object] = []

        async def too_late(attempt: Any, deadline: float, *queue: Any) -> object:
            if not outcomes:
                cluster.ctl("del", attempt.key.decode())
            outcomes.append(await take(attempt, deadline, *queue))
            return outcomes[-1]

        monkeypatch.setattr(granter, "take", too_late)
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
        await until_waiting(locks)
        session: Any = await locks._session()
        retrier = session.backend._retrier
        look = retrier.range
        looks: list[int] = []

        async def slowly(*args: Any) -> Any:
            looks.append(1)
            if len(looks) == 2:
                await waiter.result()  # by its own look, when the holder has gone
            return await look(*args)

        monkeypatch.setattr(retrier, "range", slowly)
        assert await locks.force_release("x") is True
        monkeypatch.undo()
        second = await waiter.result()
        assert len(looks) > 1
        await second.renew()
        assert [one.token for one in (await locks.inspect("x")).holders] == [second.token]
        assert await lease.wait_lost(timeout=10.0) is True


async def test_a_lock_that_is_handed_over_is_not_taken_a_second_time(cluster: EtcdCluster) -> None:
    """Its heartbeat has just seen that it is its turn. A second grant would end the first one."""
    async with holdfast.connect(cluster.url) as locks, holdfast.connect(cluster.url) as others:
        before = await locks.lock("x").acquire()
        giving: Any = (await locks._session()).backend
        taking: Any = (await others._session()).backend
        deadline = taking.clock.now() + 20.0
        ticket = Ticket(Terms("x", 30.0, Label("here", 1)), new_owner())
        assert isinstance(await taking.acquire(ticket, deadline), Queued)
        attempt = taking._attempts.known("x", ticket.owner)
        lease_to_hold = taking._granter.lease_to_hold

        async def meanwhile(*args: Any) -> Any:
            taking._granter.lease_to_hold = lease_to_hold
            found = await giving._retrier.range(
                range_of(attempt.queue.start, attempt.queue.end), deadline
            )
            await giving._releaser.hand_on(giving._naming.stored_entries(found.keys), deadline)
            await eventually(lambda: attempt.token)  # woken
            return await lease_to_hold(*args)

        await giving._releaser._delete_blindly(giving._attempts.known("x", before.owner), deadline)
        taking._granter.lease_to_hold = meanwhile
        (outcome,) = await taking.renew([Claim("x", ticket.owner, 30.0)], deadline)
        told = None
        while told is None:  # it may have been told to look, before
            assert taking.clock.now() < deadline
            told = await taking.wait(ticket, deadline)
        assert isinstance(outcome, Renewed)
        assert outcome.token == told.token
        (holder,) = (await locks.inspect("x")).holders
        assert holder.token == told.token
        assert await taking.release("x", ticket.owner, deadline) is True


async def test_what_is_forgotten_twice_leaves_the_next_alone(cluster: EtcdCluster) -> None:
    """A try that finds no room leaves the line, and is over: by then its key may be another's."""
    async with holdfast.connect(cluster.url) as locks:
        attempts: Any = (await locks._session()).backend._attempts  # type: ignore[attr-defined]

        def enrolled() -> Any:
            return attempts.enrol(Ticket(Terms("x", 30.0, Label("here", 1)), new_owner()))

        first = enrolled()
        attempts.forget(first)
        second = enrolled()
        assert second.key == first.key
        attempts.forget(first)
        third = enrolled()
        assert third.key != second.key
        for attempt in (second, third):
            attempts.forget(attempt)


@pytest.mark.parametrize("died", [False, True])
async def test_readers_behind_a_writer_come_in_together(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch, died: bool
) -> None:
    """Whoever lets the first one in lets in all, without asking the store in between."""
    async with (
        holdfast.connect(cluster.url) as others,
        holdfast.connect(cluster.url, heartbeat=60.0, claim_window=600.0) as first,
        holdfast.connect(cluster.url, heartbeat=60.0, claim_window=600.0) as locks,
    ):
        writer = await others.rwlock("x").write().acquire()
        readers = [Job(first.rwlock("x").read().acquire)]
        await until_waiting(others)
        readers += [Job(locks.rwlock("x").read().acquire) for _ in range(39)]
        await until_waiting(others, 40)
        let_in: list[int] = []
        granter = (await backend_of(first if died else others))._retrier
        try_all = granter.try_all

        async def noted(requests: Any, deadline: float) -> None:
            await try_all(requests, deadline)
            let_in.append(len(requests))

        monkeypatch.setattr(granter, "try_all", noted)
        # The others are slow to look at the queue by themselves: they are let in before.
        for slow in [locks] if died else [first, locks]:
            retrier = (await backend_of(slow))._retrier

            async def later(request: Any, deadline: float, read: Any = retrier.range) -> Any:
                await eventually(lambda: bool(let_in))
                return await read(request, deadline)

            monkeypatch.setattr(retrier, "range", later)
        if died:
            revoke(cluster, "granted")
        else:
            await writer.release()
        leases = [await reader.result() for reader in readers]
        tokens = [lease.token for lease in leases]
        assert len(set(tokens)) == 40
        assert min(tokens) > writer.token
        assert let_in[0] == (39 if died else 40)
        for lease in leases:
            await lease.release()
