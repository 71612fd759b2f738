"""Adopting a lease on etcd: the adopter's key is younger than the waiters', and stands first."""

from __future__ import annotations

from typing import Any

import pytest

from _async.etcd.scenes import backend_of, soon, through
from holdfast import aio as holdfast
from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.chaos.servers.proxy import Proxy
from holdfast.entries import Claim
from holdfast.model import Busy, Gone, Granted, Label, Queued, Renewed, Waiting, new_owner
from holdfast.stores._async.contract import Terms, Ticket
from worlds.aio import Job, eventually

LABEL = Label("here", 1, "test")


def asks(kind: str = "lock", capacity: int = 1, weight: int = 1, queue: bool = True) -> Ticket:
    return Ticket(Terms("x", 30.0, LABEL, weight, capacity, kind), new_owner(), queue)


async def ask(backend: Any, ticket: Ticket) -> Any:
    return await backend.acquire(ticket, soon(backend))


async def adopt(backend: Any, ticket: Ticket, giver: Ticket) -> Any:
    return await backend.adopt(ticket, giver.owner, soon(backend))


async def release(backend: Any, ticket: Ticket) -> bool:
    freed: bool = await backend.release("x", ticket.owner, soon(backend))
    return freed


async def renew(backend: Any, ticket: Ticket) -> Any:
    (outcome,) = await backend.renew([Claim("x", ticket.owner, 30.0)], soon(backend))
    return outcome


async def holders(backend: Any) -> list[str]:
    return [one.owner for one in (await backend.inspect("x", soon(backend))).holders]


async def waiters(backend: Any) -> list[str]:
    return [one.owner for one in (await backend.inspect("x", soon(backend))).waiters]


@pytest.mark.parametrize("kind", ["lock", "election"])
async def test_nobody_in_a_crowd_takes_an_adopted_lock(cluster: EtcdCluster, kind: str) -> None:
    """More wait than a read of the queue has, and the adopter's key is younger than all of theirs."""
    async with holdfast.connect(cluster.url) as locks, holdfast.connect(cluster.url) as others:
        backend, theirs = await backend_of(locks), await backend_of(others)
        giver, crowd = asks(kind), [asks(kind) for _ in range(30)]
        assert isinstance(await ask(backend, giver), Granted)
        for ticket in crowd:
            assert isinstance(await ask(theirs, ticket), Queued)
        adopter = asks(kind)
        grant = await adopt(theirs, adopter, giver)
        assert isinstance(grant, Granted)
        # Whoever leaves, asks, looks or observes now does not let the next one in.
        assert await release(theirs, crowd[0]) is False
        assert isinstance(await renew(theirs, crowd[1]), Waiting)
        assert isinstance(await ask(backend, asks(kind, queue=False)), Busy)
        late = asks(kind)
        assert isinstance(await ask(backend, late), Queued)
        assert await release(backend, late) is False
        if kind == "election":
            eye = asks(kind)
            (change,) = (await backend.observe(eye, 0, soon(backend))).changes
            assert (change.owner, change.token) == (adopter.owner, grant.token)
        assert await holders(backend) == [adopter.owner]
        assert isinstance(await renew(theirs, adopter), Renewed)
        assert await release(theirs, adopter) is True
        await eventually(lambda: crowd[1].grant is not None)
        assert await holders(backend) == [crowd[1].owner]
        assert await waiters(backend) == [ticket.owner for ticket in crowd[2:]]


async def test_an_adopter_among_those_who_share_a_lock(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks, holdfast.connect(cluster.url) as others:
        backend, theirs = await backend_of(locks), await backend_of(others)
        readers = [asks("rwlock", 10) for _ in range(3)]
        for ticket in readers:
            assert isinstance(await ask(backend, ticket), Granted)
        writer, behind = asks("rwlock", 10, 10), asks("rwlock", 10)
        assert isinstance(await ask(theirs, writer), Queued)
        assert isinstance(await ask(theirs, behind), Queued)
        adopter = asks("rwlock", 10)
        assert isinstance(await adopt(theirs, adopter, readers[1]), Granted)
        assert await release(backend, readers[0]) is True
        assert await release(backend, readers[2]) is True
        assert isinstance(await renew(theirs, writer), Waiting)
        assert await holders(backend) == [adopter.owner]
        assert await release(theirs, adopter) is True
        await eventually(lambda: writer.grant is not None)
        assert await holders(backend) == [writer.owner]
        assert await release(theirs, writer) is True
        await eventually(lambda: behind.grant is not None)


async def test_an_adopted_lease_is_adopted_again(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks, holdfast.connect(cluster.url) as others:
        backend, theirs = await backend_of(locks), await backend_of(others)
        giver = asks()
        token = (await ask(backend, giver)).token
        for place in (theirs, backend, backend, theirs):
            adopter = asks()
            grant = await adopt(place, adopter, giver)
            assert grant.token > token
            assert await holders(backend) == [adopter.owner]
            giver, token = adopter, grant.token
        assert await release(theirs, giver) is True
        assert await holders(backend) == []


async def test_the_giver_is_told_at_once(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks, holdfast.connect(cluster.url) as others:
        for place in (locks, others):
            lease = await locks.lock("x", ttl=60.0).acquire()
            adopter = asks()
            theirs = await backend_of(place)
            grant = await theirs.adopt(adopter, lease.owner, soon(theirs))
            assert isinstance(grant, Granted)
            assert await lease.wait_lost(timeout=15.0) is True  # its next renewal is in 20 s
            assert await release(theirs, adopter) is True


async def test_an_adoption_races_the_end_of_the_giver(cluster: EtcdCluster) -> None:
    """One step decides: the adopter has it or the lock is free, and never both."""
    async with holdfast.connect(cluster.url) as locks, holdfast.connect(cluster.url) as others:
        backend, theirs = await backend_of(locks), await backend_of(others)
        for turn in range(40):
            giver, adopter = asks(), asks()
            await ask(backend, giver)
            first = Job(release, backend, giver)
            second = Job(adopt, theirs, adopter, giver)
            freed, answer = await first.result(), await second.result()
            assert freed is isinstance(answer, Gone), turn
            if isinstance(answer, Granted):
                assert await holders(backend) == [adopter.owner]
                assert isinstance(await renew(theirs, adopter), Renewed)
                assert await release(theirs, adopter) is True
            assert await holders(backend) == []


async def test_one_of_two_adopts(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks, holdfast.connect(cluster.url) as others:
        backend, theirs = await backend_of(locks), await backend_of(others)
        for _ in range(20):
            giver, tickets = asks(), [asks(), asks()]
            await ask(backend, giver)
            jobs = [
                Job(adopt, place, ticket, giver)
                for place, ticket in zip((backend, theirs), tickets, strict=True)
            ]
            answers = [await job.result() for job in jobs]
            (winner,) = [
                ticket
                for ticket, answer in zip(tickets, answers, strict=True)
                if isinstance(answer, Granted)
            ]
            assert await holders(backend) == [winner.owner]
            assert await release(backend, winner) is True


@pytest.mark.usefixtures("unwatched")
async def test_an_adoption_whose_reply_was_lost_is_the_same_adoption(
    cluster: EtcdCluster, proxy: Proxy
) -> None:
    async with holdfast.connect(cluster.url) as locks, through(proxy) as others:
        backend, theirs = await backend_of(locks), await backend_of(others)
        giver, adopter = asks(), asks()
        await ask(backend, giver)
        proxy.about = b"/lock/x/lock.1/~"
        proxy.reset_once = True
        grant = await adopt(theirs, adopter, giver)
        assert not proxy.reset_once
        assert isinstance(grant, Granted)
        (holder,) = (await backend.inspect("x", soon(backend))).holders
        assert (holder.owner, holder.token) == (adopter.owner, grant.token)
        assert await release(theirs, adopter) is True
        assert await holders(backend) == []


@pytest.mark.usefixtures("unwatched")
async def test_an_adoption_that_arrives_after_it_was_given_up_changes_nothing(
    cluster: EtcdCluster, proxy: Proxy
) -> None:
    async with holdfast.connect(cluster.url) as locks, through(proxy) as others:
        backend, theirs = await backend_of(locks), await backend_of(others)
        giver, adopter = asks(), asks()
        await ask(backend, giver)
        txn = theirs._retrier.txn
        sent: list[bytes] = []

        async def cut(request: bytes, deadline: float, unanswered: Any = None) -> Any:
            sent.append(request)
            unanswered()
            raise holdfast.BackendUnavailable("the way is cut")

        theirs._retrier.txn = cut
        with pytest.raises(holdfast.BackendUnavailable):
            await adopt(theirs, adopter, giver)
        theirs._retrier.txn = txn
        assert await release(theirs, adopter) is False
        reply = await txn(sent[0], soon(theirs))
        assert not reply.succeeded
        assert await holders(backend) == [giver.owner]
        with pytest.raises(holdfast.BackendUnavailable, match="given up"):
            await adopt(theirs, adopter, giver)
        assert isinstance(await renew(backend, giver), Renewed)


@pytest.mark.usefixtures("unwatched")
@pytest.mark.parametrize("heired", [True, False])
@pytest.mark.parametrize(("kind", "capacity"), [("lock", 1), ("semaphore", 3), ("rwlock", 10)])
async def test_an_acquire_that_arrives_after_its_lease_was_detached_is_refused(
    cluster: EtcdCluster, proxy: Proxy, kind: str, capacity: int, heired: bool
) -> None:
    """The first try of two. Else an entry that nobody has lives on with the giver's other leases."""
    async with holdfast.connect(cluster.url) as others, through(proxy) as locks:
        backend, theirs = await backend_of(locks), await backend_of(others)
        kept = await locks.lock("kept").acquire()
        giver, heir, second = [asks(kind, capacity) for _ in range(3)]
        proxy.keep_once = True
        assert isinstance(await ask(backend, giver), Granted)
        assert await backend.detach("x", giver.owner, 30.0, soon(backend)) is True
        grant = await adopt(theirs, heir, giver)
        assert isinstance(grant, Granted)
        if not heired:
            assert await release(theirs, heir) is True
        proxy.let_go()
        assert await holders(theirs) == ([heir.owner] if heired else [])
        assert await waiters(theirs) == []
        assert isinstance(await adopt(theirs, second, giver), Gone)
        assert await release(theirs, heir) is heired
        assert await holders(theirs) == []
        assert await kept.release() is True


async def detach_unanswered(backend: Any, giver: Ticket, ttl: float) -> None:
    """Has the lease of `giver` detached, and the reply to that lost."""
    txn = backend._retrier.txn

    async def lost(request: bytes, deadline: float, unanswered: Any = None) -> Any:
        await txn(request, deadline, unanswered)
        raise holdfast.BackendUnavailable("the reply was lost")

    backend._retrier.txn = lost
    with pytest.raises(holdfast.BackendUnavailable):
        await backend.detach("x", giver.owner, ttl, soon(backend))
    backend._retrier.txn = txn


@pytest.mark.usefixtures("unwatched")
@pytest.mark.parametrize(("kind", "capacity"), [("lock", 1), ("semaphore", 3)])
async def test_a_lease_whose_detaching_was_not_answered_is_released(
    cluster: EtcdCluster, proxy: Proxy, kind: str, capacity: int
) -> None:
    """Its requests are refused by then; the release is not, though it is one that refuses them, too."""
    async with holdfast.connect(cluster.url) as others, through(proxy) as locks:
        backend, theirs = await backend_of(locks), await backend_of(others)
        giver, waiter = asks(kind, capacity), asks(kind, capacity, weight=capacity)
        proxy.keep_once = True
        assert isinstance(await ask(backend, giver), Granted)
        await detach_unanswered(backend, giver, 30.0)
        assert await holders(theirs) == [giver.owner]
        assert isinstance(await ask(theirs, waiter), Queued)
        assert await release(backend, giver) is True
        proxy.let_go()
        assert isinstance(await renew(theirs, waiter), Renewed)
        assert await release(theirs, waiter) is True
        assert await holders(theirs) == []
        assert await waiters(theirs) == []
        slot = "/holdfast/holdfast/slot/"
        assert cluster.ctl("get", "--prefix", slot, "--keys-only").split() == []


@pytest.mark.usefixtures("unwatched")
@pytest.mark.parametrize("doubtful", [False, True])
@pytest.mark.parametrize(
    ("kind", "capacity"), [("lock", 1), ("semaphore", 3), ("rwlock", 10), ("election", 1)]
)
async def test_the_release_of_what_was_detached_unanswered_ends_nothing_else(
    cluster: EtcdCluster, kind: str, capacity: int, doubtful: bool
) -> None:
    """The giver finds its key on an etcd lease of its own. The one that it was on is that of others."""
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        backend, theirs = await backend_of(locks), await backend_of(others)
        kept = await locks.lock("kept", ttl=30.0).acquire()
        giver = asks(kind, capacity)
        assert isinstance(await ask(backend, giver), Granted)
        if doubtful:
            backend._attempts.known("x", giver.owner).doubt()
        await detach_unanswered(backend, giver, 77.0)
        assert await release(backend, giver) is True
        assert await holders(theirs) == []
        assert (await others.inspect("kept")).held
        assert isinstance(await renew(backend, giver), Gone)
        assert await kept.release() is True
