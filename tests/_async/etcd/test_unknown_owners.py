"""Owners that a manager does not know: how many reads it takes to look for many of them."""

from __future__ import annotations

from typing import Any

from _async.etcd.scenes import soon
from _async.etcd.test_crowd_costs import CROWD, claim_of, count_reads
from _async.etcd.test_crowds import managers, noted, ticket_of
from holdfast import aio as holdfast
from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.entries import Claim
from holdfast.model import GONE, Renewed
from worlds.aio import eventually


async def test_many_unknown_owners_of_one_lock_are_looked_for_by_one_read(
    cluster: EtcdCluster,
) -> None:
    async with managers(cluster) as (others, _, backend):
        held = await others.lock("x").acquire()
        reads = count_reads(backend)
        claims = [claim_of(f"w{number}") for number in range(CROWD)]
        *gone, renewed = await backend.renew([*claims, claim_of(held.owner)], soon(backend))
        assert set(gone) == {GONE}
        assert isinstance(renewed, Renewed)
        assert renewed.token == held.token
        assert len(reads) == 1
        await held.release()


async def test_unknown_owners_of_many_locks_are_looked_for_by_few_reads(
    cluster: EtcdCluster,
) -> None:
    async with managers(cluster) as (others, locks, backend):
        names = [f"lock {number}" for number in range(CROWD)]
        held = {name: await others.lock(name, ttl=60.0).acquire() for name in names[::2]}
        claims = [
            Claim(name, held[name].owner if name in held else "nobody", 60.0) for name in names
        ]
        reads, requests = count_reads(backend), await noted(locks)
        find_all, cost = backend._renewer._lookups.find_all, []

        async def counted(*args: Any) -> Any:
            found = await find_all(*args)
            cost.append(len(reads) + len(requests))
            return found

        backend._renewer._lookups.find_all = counted
        outcomes = await backend.renew(claims, soon(backend))
        assert cost == [1]
        for name, outcome in zip(names, outcomes, strict=True):
            if name in held:
                assert isinstance(outcome, Renewed)
                assert outcome.token == held[name].token
            else:
                assert outcome is GONE
        for lease in held.values():
            assert await lease.release() is True


# unasync: aio-only
async def test_what_is_released_in_the_background_shares_its_reads(cluster: EtcdCluster) -> None:
    """In blocking code one thread releases them, one after another."""
    async with managers(cluster) as (others, locks, backend):
        held = await others.lock("x").acquire()
        session = await locks._session()
        reads = count_reads(backend)
        for number in range(CROWD):
            session.pending_releases.add(ticket_of(f"w{number}"))
        await eventually(lambda: not session.pending_releases)
        assert len(reads) == 2  # the first one's, and another for all who came after it
        assert [one.owner for one in (await others.inspect("x")).holders] == [held.owner]
        await held.release()


# unasync: end


async def test_what_is_released_in_the_background_is_tried_until_it_is_answered(
    cluster: EtcdCluster,
) -> None:
    async with managers(cluster) as (others, locks, backend):
        session = await locks._session()
        for owner in ("a", "b", "c"):
            ticket = ticket_of(owner)
            ticket.queue = True
            await backend.acquire(ticket, soon(backend))
        release, tried = backend.release, []

        async def cut(name: str, owner: str, deadline: float) -> bool:
            tried.append(owner)
            if tried.count(owner) < 2:
                raise holdfast.BackendUnavailable("the way is cut")
            freed: bool = await release(name, owner, deadline)
            return freed

        backend.release = cut
        for owner in ("a", "b", "c"):
            session.pending_releases.add(ticket_of(owner))
        await eventually(lambda: not session.pending_releases)
        assert sorted(tried) == ["a", "a", "b", "b", "c", "c"]
        state = await others.inspect("x")
        assert not state.held
        assert state.waiters == ()
