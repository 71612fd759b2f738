"""A lock that stays closed behind a lease which ended without a release."""

from __future__ import annotations

from typing import Any

from _async.etcd.scenes import backend_of, soon
from holdfast import aio as holdfast
from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.entries import Claim
from holdfast.model import Granted, Label, Queued, Renewed, Waiting, new_owner
from holdfast.stores._async.contract import Terms, Ticket

DELAY = 40.0


def delayed(ttl: float = 20.0, name: str = "x") -> Ticket:
    return Ticket(Terms(name, ttl + DELAY, Label("here", 1), delay=DELAY), new_owner())


async def ask(backend: Any, ticket: Ticket) -> Any:
    return await backend.acquire(ticket, soon(backend))


async def test_the_claim_window_of_a_waiter_is_longer_by_the_delay(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        holder, waiter, short = delayed(), delayed(), delayed(2.0)
        grant = await ask(backend, holder)
        assert isinstance(grant, Granted)
        assert grant.ttl == 20.0 + DELAY
        assert isinstance(await ask(backend, waiter), Queued)
        assert isinstance(await ask(backend, short), Queued)
        attempts = backend._attempts
        window = backend.claim_window
        assert attempts.known("x", waiter.owner).lease.ttl == window + DELAY
        assert attempts.known("x", short.owner).lease.ttl == 2.0 + DELAY
        assert await backend.release("x", holder.owner, soon(backend)) is True
        claim = Claim("x", waiter.owner, waiter.ttl)
        (outcome,) = await backend.renew([claim], soon(backend))
        assert isinstance(outcome, Renewed)
        assert outcome.ttl == 20.0 + DELAY
        state = await backend.inspect("x", soon(backend))
        assert state.holders[0].remaining > 20.0 + DELAY - 10.0


async def test_an_etcd_lease_with_a_delay_is_kept_alive_as_one_without(
    cluster: EtcdCluster,
) -> None:
    """Holders and waiters count on the rest alone, from the last keep-alive on."""
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        holder, waiter = delayed(), delayed()
        await ask(backend, holder)
        lease = backend._attempts.known("x", holder.owner).lease
        lease.sent = lease.unproven = backend.clock.now() - 20.0 / 3
        await ask(backend, waiter)
        for ticket, use in ((holder, 20.0), (waiter, backend.claim_window)):
            lease = backend._attempts.known("x", ticket.owner).lease
            lease.sent = lease.unproven = before = backend.clock.now() - use / 6
            (outcome,) = await backend.renew([Claim("x", ticket.owner, ticket.ttl)], soon(backend))
            assert isinstance(outcome, Renewed | Waiting)
            assert outcome.since > before
            if isinstance(outcome, Waiting):
                assert outcome.remaining <= use / 3
        lease = backend._attempts.known("x", holder.owner).lease
        lease.sent = lease.unproven = before = backend.clock.now() - 20.0 / 3
        assert (await ask(backend, delayed(name="y"))).since > before


async def test_a_manager_that_ends_does_not_open_what_has_to_stay_closed(
    cluster: EtcdCluster,
) -> None:
    async with holdfast.connect(cluster.url) as watcher:
        async with holdfast.connect(cluster.url) as locks:
            backend = await backend_of(locks)
            ticket, released = delayed(), delayed(name="y")
            await ask(backend, ticket)
            await ask(backend, released)
            await backend.release("y", released.owner, soon(backend))
            plain = await locks.lock("z", ttl=20.0).acquire()
            assert plain.held
        assert [one.name for one in await watcher.list()] == ["x"]
