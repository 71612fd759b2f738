"""Changing a lease that is held on etcd: by one write to its own key, if that is as it was."""

from __future__ import annotations

from typing import Any

import pytest

from _async.etcd.scenes import backend_of, soon, through
from holdfast import aio as holdfast
from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.chaos.servers.proxy import Proxy
from holdfast.entries import Claim
from holdfast.model import Gone, Granted, Label, Renewed, new_owner
from holdfast.stores._async.contract import Terms, Ticket
from worlds.aio import Job, eventually


def asks(kind: str = "lock", weight: int = 1, capacity: int = 1, ttl: float = 30.0) -> Ticket:
    return Ticket(Terms("x", ttl, Label("here", 1, "a"), weight, capacity, kind), new_owner())


async def hold(backend: Any, ticket: Ticket) -> Granted:
    answer = await backend.acquire(ticket, soon(backend))
    assert isinstance(answer, Granted)
    return answer


async def holder(backend: Any) -> Any:
    (one,) = (await backend.inspect("x", soon(backend))).holders
    return one


def leases(cluster: EtcdCluster) -> set[str]:
    """Returns the ids of all etcd leases."""
    return set(cluster.ctl("lease", "list").split("\n")[1:])


@pytest.mark.usefixtures("unwatched")
async def test_a_reply_that_was_lost_is_no_second_change(
    cluster: EtcdCluster, proxy: Proxy
) -> None:
    async with holdfast.connect(cluster.url) as others, through(proxy) as locks:
        backend, theirs = await backend_of(locks), await backend_of(others)
        leader = asks("election")
        grant = await hold(backend, leader)
        proxy.about = b"/change/x/"
        proxy.reset_once = True
        assert await backend.amend("x", leader.owner, soon(backend), text="b") is True
        assert not proxy.reset_once
        seen = await theirs.observe(asks("election"), grant.token, soon(theirs))
        assert [change.label.text for change in seen.changes] == ["b"]
        assert (await holder(theirs)).token == grant.token


async def test_a_late_move_to_another_etcd_lease_undoes_nothing(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        writer = asks("rwlock", 10, 10)
        grant = await hold(backend, writer)
        txn = backend._retrier.txn
        sent: list[bytes] = []

        async def noted(request: bytes, *args: Any) -> Any:
            sent.append(request)
            return await txn(request, *args)

        backend._retrier.txn = noted
        claim = Claim("x", writer.owner, 60.0)
        (outcome,) = await backend.renew([claim], soon(backend))
        backend._retrier.txn = txn
        assert isinstance(outcome, Renewed)
        assert await backend.amend("x", writer.owner, soon(backend), weight=1, text="b") is True
        for request in sent:
            await txn(request, soon(backend))
        for ttl in (60.0, 90.0):  # it stays so, wherever it goes
            await backend.renew([Claim("x", writer.owner, ttl)], soon(backend))
            shown = await holder(backend)
            assert (shown.weight, shown.label.text, shown.token) == (1, "b", grant.token)


async def test_another_manager_amends_and_the_first_one_knows(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        backend, theirs = await backend_of(locks), await backend_of(others)
        ticket = asks("rwlock", 10, 10)
        await hold(backend, ticket)
        assert await theirs.amend("x", ticket.owner, soon(theirs), weight=2) is True
        await backend.renew([Claim("x", ticket.owner, 60.0)], soon(backend))  # which moves its key
        assert (await holder(backend)).weight == 2
        assert await backend.amend("x", ticket.owner, soon(backend), weight=5) is True
        assert (await holder(backend)).weight == 2
        assert await backend.release("x", ticket.owner, soon(backend)) is True


async def test_a_waiter_is_neither_amended_nor_detached(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        await hold(backend, asks())
        waiter = asks()
        await backend.acquire(waiter, soon(backend))
        before = leases(cluster)
        assert await backend.amend("x", waiter.owner, soon(backend), text="b") is False
        assert await backend.detach("x", waiter.owner, 60.0, soon(backend)) is False
        assert leases(cluster) == before


@pytest.mark.usefixtures("unwatched")
async def test_a_detached_lease_whose_reply_was_lost_is_detached(
    cluster: EtcdCluster, proxy: Proxy
) -> None:
    async with holdfast.connect(cluster.url) as others:
        theirs = await backend_of(others)
        ticket = asks()
        async with through(proxy) as locks:
            backend = await backend_of(locks)
            await hold(backend, ticket)
            proxy.reset_once = True
            assert await backend.detach("x", ticket.owner, 60.0, soon(backend)) is True
            assert not proxy.reset_once
            assert backend._attempts.known("x", ticket.owner) is None
        assert (await holder(theirs)).owner == ticket.owner
        # Nobody keeps it alive, and whoever asks is told what is left of it.
        (outcome,) = await theirs.renew([Claim("x", ticket.owner, 300.0)], soon(theirs))
        assert isinstance(outcome, Renewed)
        assert 50.0 < outcome.ttl <= 60.0
        assert await theirs.detach("x", ticket.owner, 30.0, soon(theirs)) is True
        assert (await holder(theirs)).remaining <= 30.0


async def test_the_etcd_lease_of_what_was_detached_ends_with_it(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        await hold(backend, asks(ttl=600.0))  # the lease that all of these are on first
        before = leases(cluster)
        for ending in ("release", "adopt", "again"):
            ticket = Ticket(Terms("y", 600.0, Label("here", 1)), new_owner())
            await hold(backend, ticket)
            assert await backend.detach("y", ticket.owner, 86400.0, soon(backend)) is True
            assert len(leases(cluster) - before) == 1
            if ending == "again":
                assert await backend.detach("y", ticket.owner, 3600.0, soon(backend)) is True
                assert len(leases(cluster) - before) == 1
            elif ending == "adopt":
                adopter = Ticket(ticket.terms, new_owner())
                grant = await backend.adopt(adopter, ticket.owner, soon(backend))
                assert isinstance(grant, Granted)
                ticket = adopter
            assert await backend.release("y", ticket.owner, soon(backend)) is True
            assert not leases(cluster) - before  # of which some may end by themselves


async def test_a_key_that_was_detached_is_not_used_again(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        keys = set()
        for _ in range(3):
            ticket = asks()
            await hold(backend, ticket)
            keys.add(backend._attempts.known("x", ticket.owner).key)
            assert await backend.detach("x", ticket.owner, 60.0, soon(backend)) is True
            assert await backend.release("x", ticket.owner, soon(backend)) is True
        assert len(keys) == 3


async def test_a_detachment_races_a_renewal(cluster: EtcdCluster) -> None:
    """The renewal wants to move the key to another etcd lease."""
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        for ttl in range(40, 60):
            ticket = asks()
            await hold(backend, ticket)
            claims = [Claim("x", ticket.owner, float(ttl))]
            renewal = Job(backend.renew, claims, soon(backend))
            assert await backend.detach("x", ticket.owner, 20.0, soon(backend)) is True
            await renewal.result()
            assert (await holder(backend)).remaining <= 20.0
            assert await backend.release("x", ticket.owner, soon(backend)) is True


async def test_what_ends_while_it_is_amended(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks, holdfast.connect(cluster.url) as others:
        backend, theirs = await backend_of(locks), await backend_of(others)
        for detached in (False, True):
            ticket = asks()
            await hold(backend, ticket)
            assert await theirs.force_release("x", "test", soon(theirs)) is True
            if detached:
                assert await backend.detach("x", ticket.owner, 60.0, soon(backend)) is False
            else:
                assert await backend.amend("x", ticket.owner, soon(backend), text="b") is False
            assert (await theirs.inspect("x", soon(theirs))).holders == ()
            (outcome,) = await backend.renew([Claim("x", ticket.owner, 30.0)], soon(backend))
            assert isinstance(outcome, Gone)


async def test_a_downgrade_admits_a_crowd(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks, holdfast.connect(cluster.url) as others:
        backend = await backend_of(locks)
        writer = asks("rwlock", 2000, 2000)
        await hold(backend, writer)
        theirs = await backend_of(others)
        readers = [asks("rwlock", 1, 2000) for _ in range(40)]
        for reader in readers:
            await theirs.acquire(reader, soon(theirs))
        assert await backend.amend("x", writer.owner, soon(backend), weight=1) is True
        await eventually(lambda: all(reader.grant is not None for reader in readers))
