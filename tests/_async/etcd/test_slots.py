"""The slots of semaphores on etcd: keys that live and end with the entries of their holders."""

from __future__ import annotations

from typing import Any

import pytest

from _async.etcd.scenes import backend_of, soon, through
from holdfast import aio as holdfast
from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.chaos.servers.proxy import Proxy
from holdfast.model import Granted, Label, Queued, new_owner
from holdfast.stores._async.contract import Terms, Ticket
from worlds.aio import Job, eventually

PERMITS = 3


def permit(permits: int = PERMITS, ttl: float = 30.0) -> Ticket:
    terms = Terms("x", ttl, Label("here", 1), capacity=permits, kind="semaphore")
    return Ticket(terms, new_owner())


async def ask(backend: Any, ticket: Ticket) -> Any:
    return await backend.acquire(ticket, soon(backend))


async def release(backend: Any, ticket: Ticket) -> bool:
    freed: bool = await backend.release("x", ticket.owner, soon(backend))
    return freed


async def slots(backend: Any) -> dict[str, int | None]:
    state = await backend.inspect("x", soon(backend))
    return {one.owner: one.slot for one in state.holders}


def stored(cluster: EtcdCluster) -> dict[int, str]:
    """Returns the owner of each slot's key."""
    lines = cluster.ctl("get", "--prefix", "/holdfast/holdfast/slot/").split()
    return {
        int(key.rpartition("/")[2]): owner for key, owner in zip(*[iter(lines)] * 2, strict=True)
    }


async def test_a_slot_goes_from_hand_to_hand(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks, holdfast.connect(cluster.url) as others:
        backend, theirs = await backend_of(locks), await backend_of(others)
        tickets = [permit() for _ in range(PERMITS)]
        assert [(await ask(backend, one)).slot for one in tickets] == [0, 1, 2]
        waiters = [permit(), permit()]
        for waiter in waiters:
            assert isinstance(await ask(theirs, waiter), Queued)
        assert await release(backend, tickets[1]) is True
        await eventually(lambda: waiters[0].grant is not None)
        assert waiters[0].grant is not None
        assert waiters[0].grant.slot == 1
        repeated = await ask(theirs, waiters[0])
        assert isinstance(repeated, Granted)
        assert repeated.slot == 1  # and it was moved to its own lease
        assert await release(theirs, waiters[1]) is False
        assert await release(backend, tickets[0]) is True
        newcomer = permit()
        assert (await ask(backend, newcomer)).slot == 0
        held = {newcomer.owner: 0, waiters[0].owner: 1, tickets[2].owner: 2}
        assert await slots(backend) == held
        assert stored(cluster) == {slot: owner for owner, slot in held.items()}
        for place, ticket in ((backend, newcomer), (backend, tickets[2]), (theirs, waiters[0])):
            assert await release(place, ticket) is True
        assert stored(cluster) == {}


async def test_a_crowd_has_every_slot_once(cluster: EtcdCluster) -> None:
    managers = [holdfast.connect(cluster.url) for _ in range(4)]
    in_use: set[int] = set()
    turns: list[int] = []

    async def take(locks: holdfast.Locks) -> None:
        for _ in range(6):
            async with locks.semaphore("x", permits=PERMITS, ttl=30.0) as lease:
                slot = lease.slot
                assert slot is not None
                assert slot in range(PERMITS)
                assert slot not in in_use
                in_use.add(slot)
                state = await locks.inspect("x")
                assert slot in [one.slot for one in state.holders if one.owner == lease.owner]
                in_use.discard(slot)
                turns.append(slot)

    jobs = [Job(take, locks) for locks in managers for _ in range(3)]
    for job in jobs:
        await job.result()
    assert len(turns) == 72
    assert stored(cluster) == {}
    for locks in managers:
        await locks.close()


async def test_slots_end_with_their_holders(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as watcher:
        async with holdfast.connect(cluster.url) as locks:
            backend = await backend_of(locks)
            for _ in range(2):
                await ask(backend, permit())
            assert sorted(stored(cluster)) == [0, 1]
            assert await watcher.force_release("x") is True
            assert stored(cluster) == {}
            assert (await locks.semaphore("x", permits=PERMITS).acquire()).slot == 0
            assert sorted(stored(cluster)) == [0]
        assert stored(cluster) == {}  # the manager's end
        theirs = await backend_of(watcher)
        detached = permit()
        assert (await ask(theirs, detached)).slot == 0
        assert await theirs.detach("x", detached.owner, 1.0, soon(theirs)) is True
        assert stored(cluster) == {0: detached.owner}
        await eventually(lambda: stored(cluster) == {})


@pytest.mark.parametrize("lost", ["a", "b"])
async def test_a_slot_that_was_left_over_is_used_again(cluster: EtcdCluster, lost: str) -> None:
    """Somebody has deleted an entry by hand."""
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        tickets = {"a": permit(), "b": permit()}
        for ticket in tickets.values():
            await ask(backend, ticket)
        key = backend._attempts.known("x", tickets[lost].owner).key.decode()
        cluster.ctl("del", key)
        newcomers = [permit(), permit()]
        for newcomer in newcomers:
            assert isinstance(await ask(backend, newcomer), Granted)
        held = await slots(backend)
        assert sorted(slot for slot in held.values() if slot is not None) == [0, 1, 2]
        assert stored(cluster) == {slot: owner for owner, slot in held.items()}


@pytest.mark.usefixtures("unwatched")
async def test_a_permit_whose_reply_was_lost_keeps_its_slot(
    cluster: EtcdCluster, proxy: Proxy
) -> None:
    async with holdfast.connect(cluster.url) as locks, through(proxy) as others:
        backend, theirs = await backend_of(locks), await backend_of(others)
        await ask(backend, permit())
        for about in (b"/lock/x/", b"/slot/x/"):
            ticket = permit()
            proxy.about = about
            proxy.reset_once = True
            assert (await ask(theirs, ticket)).slot == 1
            assert not proxy.reset_once
            assert stored(cluster)[1] == ticket.owner
            proxy.reset_once = True
            assert await release(theirs, ticket) is True
            assert not proxy.reset_once
            assert sorted(stored(cluster)) == [0]


async def test_a_waiter_that_was_granted_a_permit_meanwhile_gives_its_slot_back(
    cluster: EtcdCluster,
) -> None:
    """It has not heard of its grant."""
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        for doubts in (0, 1):
            ticket = permit()
            await ask(backend, ticket)
            attempt = backend._attempts.known("x", ticket.owner)
            attempt.token, attempt.slot, attempt.changed = 0, None, attempt.changed - 1
            attempt.doubts = doubts
            assert await release(backend, ticket) is True
            assert stored(cluster) == {}
