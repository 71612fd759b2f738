"""Leases that are amended, detached and adopted: lost replies, races, and what is left behind."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.exceptions import NoNodeError

from _async.conformance.test_contract import LABEL, Bench, bench
from holdfast import aio as holdfast
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.zookeeper import TICK, lock_path
from holdfast.model import Gone, Granted, Queued, Renewed, new_owner
from holdfast.stores._async.contract import Terms, Ticket
from holdfast.stores.zookeeper._async import transfers
from worlds.aio import Job, eventually

SHARES = 10


def ask_for(name: str = "x", kind: str = "lock", weight: int = 1, capacity: int = 1) -> Ticket:
    return Ticket(Terms(name, 30.0, LABEL, weight, capacity, kind), new_owner())


def lose(proxy: Proxy, where: str, about: str) -> None:
    """Has the next request about `about` lost on its way, or its answer."""
    proxy.about = about.encode()
    if where == "request":
        proxy.keep_once = True
    else:
        proxy.reset_once = True


def arrive_late(proxy: Proxy, where: str) -> None:
    """Has a request that was lost on its way arrive after all."""
    assert (proxy.keep_once, proxy.reset_once) == (False, False)
    if where == "request":
        proxy.let_go(answered=False)


def children(raw: Any, path: str) -> list[str]:
    """Returns the children of a znode, which ZooKeeper may have removed after the last of them."""
    try:
        found: list[str] = raw.get_children(path)
    except NoNodeError:
        return []
    return found


async def owners(store: Bench, name: str = "x") -> list[str]:
    state = await store.backend.inspect(name, store.deadline())
    assert state.waiters == ()
    return [holder.owner for holder in state.holders]


lost = pytest.mark.parametrize("where", ["request", "answer"])


@lost
async def test_an_amendment_of_which_a_message_is_lost(
    url: str, through: str, proxy: Proxy, where: str
) -> None:
    async with bench(url) as others, bench(through, tick=TICK) as store:
        ticket = ask_for(kind="rwlock", weight=SHARES, capacity=SHARES)
        grant = await store.grant(ticket)
        lose(proxy, where, ticket.owner)
        assert await store.backend.amend("x", ticket.owner, store.deadline(), weight=1) is True
        arrive_late(proxy, where)
        (holder,) = (await others.backend.inspect("x", others.deadline())).holders
        assert (holder.owner, holder.token, holder.weight) == (ticket.owner, grant.token, 1)
        outcome = await store.renew(ticket)
        assert isinstance(outcome, Renewed)
        assert outcome.token == grant.token
        assert await store.release(ticket) is True
        assert await owners(others) == []


@lost
async def test_a_lease_is_detached_though_a_message_is_lost(
    url: str, through: str, proxy: Proxy, raw: Any, where: str
) -> None:
    async with bench(url) as others:
        async with bench(through, tick=TICK) as store:
            ticket = ask_for(kind="semaphore", capacity=3)
            grant = await store.grant(ticket)
            lose(proxy, where, ",@")
            assert await store.backend.detach("x", ticket.owner, 60.0, store.deadline()) is True
            arrive_late(proxy, where)
        (holder,) = (await others.backend.inspect("x", others.deadline())).holders
        assert (holder.owner, holder.token, holder.slot) == (ticket.owner, grant.token, grant.slot)
        path = lock_path(url, "x")
        assert [raw.exists(f"{path}/{one}").ephemeralOwner for one in children(raw, path)] == [
            0,
            0,
        ]
        assert await others.release(ticket) is True
        assert children(raw, path) == []
        assert children(raw, f"{path.rpartition('/locks/')[0]}/detached") == []


@lost
async def test_a_lease_is_adopted_though_a_message_is_lost(
    url: str, through: str, proxy: Proxy, where: str
) -> None:
    async with bench(url) as others, bench(through, tick=TICK) as store:
        for kind, capacity in (("lock", 1), ("semaphore", 3), ("election", 1)):
            giver, heir = (ask_for(kind, kind, capacity=capacity) for _ in range(2))
            given = await others.grant(giver)
            lose(proxy, where, heir.owner)
            grant = await store.backend.adopt(heir, giver.owner, store.deadline())
            arrive_late(proxy, where)
            assert isinstance(grant, Granted)
            assert grant.token > given.token
            assert grant.slot == given.slot
            assert await owners(others, kind) == [heir.owner]
            assert isinstance(await others.renew(giver), Gone)
            outcome = await store.renew(heir)
            assert isinstance(outcome, Renewed)
            assert (outcome.token, outcome.slot) == (grant.token, grant.slot)
            assert await store.release(heir) is True
            assert await owners(others, kind) == []


@lost
async def test_a_permit_is_granted_though_a_message_is_lost(
    url: str, through: str, proxy: Proxy, raw: Any, where: str
) -> None:
    async with bench(url) as others, bench(through, tick=TICK) as store:
        first = [ask_for(kind="semaphore", capacity=2) for _ in range(2)]
        slots = {(await others.grant(ticket)).slot for ticket in first}
        assert slots == {0, 1}
        ticket = ask_for(kind="semaphore", capacity=2)
        assert isinstance(await store.ask(ticket), Queued)
        lose(proxy, where, "/slot-")  # the step that makes the waiter a holder
        freed = await others.renew(first[0])
        assert isinstance(freed, Renewed)
        assert await others.release(first[0]) is True

        async def holds() -> bool:
            outcome = await store.renew(ticket)
            return isinstance(outcome, Renewed) and outcome.slot == freed.slot

        await eventually(holds)
        arrive_late(proxy, where)
        assert len(children(raw, lock_path(url, "x"))) == 4
        assert await store.release(ticket) is True
        assert await others.release(first[1]) is True
        assert children(raw, lock_path(url, "x")) == []


async def test_a_release_while_a_lease_is_amended_leaves_nothing(
    url: str, through: str, proxy: Proxy, raw: Any
) -> None:
    async with bench(through, tick=TICK) as store:
        for number in range(6):
            ticket = ask_for(kind="rwlock", weight=SHARES, capacity=SHARES)
            await store.grant(ticket)
            proxy.delay = 0.1
            amend = Job(store.backend.amend, "x", ticket.owner, store.deadline(), 1)
            attempts: Any = store.backend
            attempt = attempts._attempts._attempts[ticket.owner]
            await eventually(lambda one=attempt: not one.path)  # type: ignore[misc]
            release = Job(store.release, ticket)
            if number % 2:
                proxy.hang_up()
            assert await release.result() is True
            await amend.result()
            proxy.delay = 0.0
            assert children(raw, lock_path(url, "x")) == []


async def test_either_the_giver_releases_or_the_heir_adopts(url: str, raw: Any) -> None:
    async with bench(url) as store, bench(url) as elsewhere:
        for number in range(30):
            giver = ask_for()
            given = await store.grant(giver)
            detached = number % 3 == 0
            if detached:
                assert await store.backend.detach("x", giver.owner, 60.0, store.deadline()) is True
            heirs = [ask_for() for _ in range(2)]
            jobs = [
                Job(elsewhere.backend.adopt, heir, giver.owner, store.deadline()) for heir in heirs
            ]
            release = Job(store.release, giver)
            results = [await job.result() for job in jobs]
            freed = await release.result()
            grants = [result for result in results if isinstance(result, Granted)]
            assert len(grants) + freed == 1, (results, freed)
            assert all(grant.token > given.token for grant in grants)
            for heir, result in zip(heirs, results, strict=True):
                assert await elsewhere.release(heir) is isinstance(result, Granted)
            assert children(raw, lock_path(url, "x")) == []


async def test_a_waiter_comes_in_when_a_detached_lease_ends(url: str) -> None:
    async with holdfast.connect(url) as locks, bench(url) as store:
        giver = ask_for()
        given = await store.grant(giver)
        waiter = Job(locks.lock("x").acquire)

        async def waits() -> bool:
            return len((await locks.inspect("x")).waiters) == 1

        await eventually(waits)
        assert await store.backend.detach("x", giver.owner, 60.0, store.deadline()) is True
        # Once more: the one verb that may shorten.
        assert await store.backend.detach("x", giver.owner, 1.0, store.deadline()) is True
        lease = await waiter.result()
        assert lease.token > given.token
        assert await lease.release() is True


async def test_what_was_detached_is_removed_though_nobody_comes_by(
    url: str, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "SWEEP_EVERY", 0.0)
    async with bench(url) as store:
        for number in range(3):
            ticket = ask_for(f"x{number}", "semaphore", capacity=2)
            await store.grant(ticket)
            deadline = store.deadline()
            assert await store.backend.detach(ticket.name, ticket.owner, 0.05, deadline) is True
        last = ask_for("last")
        await store.grant(last)
        root = lock_path(url, "x").rpartition("/locks/")[0]

        async def swept() -> bool:
            await store.backend.detach("last", last.owner, 60.0, store.deadline())
            left = [children(raw, lock_path(url, f"x{number}")) for number in range(3)]
            return left == [[], [], []]

        await eventually(swept)
        assert await store.release(last) is True

        async def unmarked() -> bool:
            transfers_of: Any = store.backend
            await transfers_of._transfers.sweep(store.deadline())
            marks = children(raw, f"{root}/detached")
            return all(mark.endswith(last.owner) for mark in marks)  # of ends that lie ahead

        await eventually(unmarked)


async def test_more_that_was_detached_than_one_look_removes_is_removed(
    url: str, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would come faster than it goes, where each has a name of its own."""
    monkeypatch.setattr(transfers, "SWEPT_AT_ONCE", 2)
    async with bench(url) as store:
        for number in range(7):
            ticket = ask_for(f"x{number}")
            await store.grant(ticket)
            assert await store.backend.detach(ticket.name, ticket.owner, 0.05, store.deadline())
        backend: Any = store.backend
        marks = lock_path(url, "x").rpartition("/locks/")[0] + "/detached"
        latest = max(int(one.partition(",")[0]) for one in children(raw, marks))

        async def ended() -> bool:
            moment: int = await backend._inspection.server_time("", store.deadline())
            return moment >= latest

        await eventually(ended)
        backend._transfers._swept_at = float("-inf")
        last = ask_for("last")
        await store.grant(last)

        async def swept() -> bool:
            await store.backend.detach("last", last.owner, 60.0, store.deadline())
            return all(one.endswith(last.owner) for one in children(raw, marks))

        await eventually(swept)
        left = [children(raw, lock_path(url, f"x{number}")) for number in range(7)]
        assert left == [[]] * 7


async def test_holders_of_a_semaphore_never_share_a_slot(url: str) -> None:
    permits, managers, turns = 3, 4, 12
    taken: set[int] = set()
    seen: list[int] = []
    async with holdfast.connect(url) as first, holdfast.connect(url) as second:

        async def work(locks: holdfast.Locks) -> None:
            for _ in range(turns):
                async with locks.semaphore("x", permits=permits) as lease:
                    slot = lease.slot
                    assert slot is not None
                    assert slot not in taken
                    taken.add(slot)
                    seen.append(slot)
                    await lease.renew()
                    assert lease.slot == slot
                    taken.discard(slot)

        jobs = [Job(work, locks) for locks in (first, second) for _ in range(managers)]
        for job in jobs:
            await job.result()
    assert set(seen) == set(range(permits))


async def test_what_is_held_outlives_its_manager(url: str, raw: Any) -> None:
    """The engine frees what is to be freed: what is left has a delay, or a body goes on under it."""
    async with bench(url, tick=TICK) as store:
        ticket = Ticket(Terms("x", 5.0, LABEL, delay=3.0), new_owner())
        await store.grant(ticket)
        await store.grant(ask_for("y"))
        freed = ask_for("z")
        await store.grant(freed)
        await store.backend.release("z", freed.owner, store.deadline())
    assert len(children(raw, lock_path(url, "x"))) == 1
    assert len(children(raw, lock_path(url, "y"))) == 1
    assert children(raw, lock_path(url, "z")) == []
    async with holdfast.connect(url, tick=TICK) as locks:
        lease = await locks.lock("x").acquire(timeout=60.0)
        assert await lease.release() is True
