"""The verbs of the backend contract that change, detach, pass on and observe what is held."""

from __future__ import annotations

import pytest

from holdfast import aio as holdfast
from holdfast.errors import ConfigError
from holdfast.model import Busy, Gone, Granted, Label, Queued, Renewed, new_owner
from holdfast.stores._async.contract import BEFORE_ALL, Terms, Ticket
from worlds.aio import eventually

from .test_contract import LABEL, Bench, bench

SHARES = 10


def writer() -> Ticket:
    terms = Terms("x", 30.0, LABEL, weight=SHARES, capacity=SHARES, kind="rwlock")
    return Ticket(terms, new_owner())


def reader() -> Ticket:
    return Ticket(Terms("x", 30.0, LABEL, capacity=SHARES, kind="rwlock"), new_owner())


def permit(permits: int = 3) -> Ticket:
    return Ticket(Terms("x", 30.0, LABEL, capacity=permits, kind="semaphore"), new_owner())


def candidate(text: str, name: str = "x", ttl: float = 30.0) -> Ticket:
    terms = Terms(name, ttl, Label("host", 7, text), kind="election")
    return Ticket(terms, new_owner())


def observer(name: str = "x") -> Ticket:
    return Ticket(Terms(name, 30.0, LABEL, kind="election"), new_owner())


def alike(ticket: Ticket, ttl: float = 30.0) -> Ticket:
    """Returns a ticket for the same lock, of another owner: one that adopts."""
    terms = Terms(
        ticket.name, ttl, LABEL, ticket.weight, ticket.capacity, ticket.kind, ticket.barge
    )
    return Ticket(terms, new_owner(), queue=False)


async def holders(store: Bench, name: str = "x") -> list[str]:
    state = await store.backend.inspect(name, store.deadline())
    return [holder.owner for holder in state.holders]


async def waiting(store: Bench, name: str = "x") -> list[str]:
    state = await store.backend.inspect(name, store.deadline())
    return [waiter.owner for waiter in state.waiters]


# Amending.


async def test_a_writer_becomes_a_reader_and_readers_are_admitted(url: str) -> None:
    async with bench(url) as store:
        first, second = writer(), reader()
        grant = await store.grant(first)
        fair = store.backend.guarantees.fair
        second.queue = fair
        answer = await store.ask(second)
        assert isinstance(answer, Queued if fair else Busy)
        assert await store.backend.amend("x", first.owner, store.deadline(), weight=1) is True
        if fair:
            await store.told(second)
        else:
            await store.grant(second)
        assert set(await holders(store)) == {first.owner, second.owner}
        assert await store.backend.amend("x", first.owner, store.deadline(), weight=1) is True
        outcome = await store.renew(first)
        assert isinstance(outcome, Renewed)
        assert outcome.token == grant.token
        assert await store.release(first) is True
        assert await store.release(second) is True


async def test_a_downgraded_writer_keeps_out_writers(url: str) -> None:
    async with bench(url) as store:
        first, second = writer(), writer()
        await store.grant(first)
        assert await store.backend.amend("x", first.owner, store.deadline(), weight=1) is True
        second.queue = False
        assert isinstance(await store.ask(second), Busy)
        assert await store.release(first) is True
        second = writer()
        await store.grant(second)


async def test_nobody_else_amends(url: str) -> None:
    async with bench(url) as store:
        ticket = store.ticket()
        await store.grant(ticket)
        stranger = new_owner()
        assert await store.backend.amend("x", stranger, store.deadline(), text="b") is False
        assert await store.backend.amend("x", ticket.owner, store.deadline(), text="b") is True
        state = await store.backend.inspect("x", store.deadline())
        assert state.holders[0].label == LABEL._replace(text="b")
        assert await store.release(ticket) is True
        assert await store.backend.amend("x", ticket.owner, store.deadline(), text="c") is False
        assert await holders(store) == []


# Detaching.


async def test_a_detached_lease_outlives_its_manager(url: str) -> None:
    ticket = Ticket(Terms("x", 30.0, LABEL), new_owner())
    async with bench(url) as store:  # a store in memory ends with its last manager
        async with bench(url) as elsewhere:
            await elsewhere.grant(ticket)
            deadline = store.deadline()
            assert await elsewhere.backend.detach("x", ticket.owner, 20.0, deadline) is True
        assert await holders(store) == [ticket.owner]
        remaining = await store.remaining()
        assert 0.0 < remaining <= 21.0
        assert isinstance(await store.ask(store.ticket(queue=False)), Busy)
        assert await store.release(ticket) is True
        assert await holders(store) == []


async def test_a_detached_lease_ends_by_itself_and_the_next_is_granted(url: str) -> None:
    ticket = Ticket(Terms("x", 30.0, LABEL), new_owner())
    async with bench(url) as store:
        grant = await store.grant(ticket)
        assert await store.backend.detach("x", ticket.owner, 1.0, store.deadline()) is True
        async with holdfast.connect(url) as locks:
            lease = await locks.lock("x").acquire(timeout=20.0)
            assert lease.token > grant.token
            await lease.release()
        assert isinstance(await store.renew(ticket), Gone)
        assert await store.backend.detach("x", ticket.owner, 1.0, store.deadline()) is False


async def test_what_is_not_held_is_not_detached(url: str) -> None:
    async with bench(url) as store:
        assert await store.backend.detach("x", new_owner(), 1.0, store.deadline()) is False
        ticket = store.ticket()
        await store.grant(ticket)
        assert await store.release(ticket) is True
        assert await store.backend.detach("x", ticket.owner, 1.0, store.deadline()) is False
        assert await holders(store) == []


# Adopting.


async def test_a_lease_is_adopted_with_a_new_token(url: str) -> None:
    async with bench(url) as store, bench(url) as elsewhere:
        giver = store.ticket()
        given = await store.grant(giver)
        heir = alike(giver)
        grant = await elsewhere.backend.adopt(heir, giver.owner, store.deadline())
        assert isinstance(grant, Granted)
        assert grant.token > given.token
        again = await elsewhere.backend.adopt(heir, giver.owner, store.deadline())
        assert isinstance(again, Granted)
        assert again.token == grant.token
        assert await holders(store) == [heir.owner]
        assert isinstance(await store.renew(giver), Gone)
        assert await store.release(giver) is False
        assert isinstance(await elsewhere.renew(heir), Renewed)
        assert await elsewhere.release(heir) is True
        assert await holders(store) == []


async def test_an_adopted_lease_passes_nobody_by(url: str) -> None:
    async with bench(url) as store, bench(url) as elsewhere:
        if not store.backend.guarantees.fair:
            return
        giver, waiter = store.ticket(), store.ticket()
        await store.grant(giver)
        assert isinstance(await store.ask(waiter), Queued)
        heir = alike(giver)
        grant = await elsewhere.backend.adopt(heir, giver.owner, store.deadline())
        assert isinstance(grant, Granted)
        assert await holders(store) == [heir.owner]
        assert await waiting(store) == [waiter.owner]
        assert await elsewhere.release(heir) is True
        assert await store.told(waiter) > grant.token
        assert await store.release(waiter) is True


async def test_a_detached_lease_is_adopted(url: str) -> None:
    giver = Ticket(Terms("x", 30.0, LABEL), new_owner())
    async with bench(url) as store:
        async with bench(url) as elsewhere:
            given = await elsewhere.grant(giver)
            deadline = store.deadline()
            assert await elsewhere.backend.detach("x", giver.owner, 25.0, deadline) is True
        heir = alike(giver)
        grant = await store.backend.adopt(heir, giver.owner, store.deadline())
        assert isinstance(grant, Granted)
        assert grant.token > given.token
        assert await holders(store) == [heir.owner]
        assert await store.release(heir) is True


async def test_what_is_gone_cannot_be_adopted(url: str) -> None:
    async with bench(url) as store:
        giver = store.ticket()
        assert isinstance(
            await store.backend.adopt(alike(giver), giver.owner, store.deadline()), Gone
        )
        await store.grant(giver)
        assert await store.release(giver) is True
        assert isinstance(
            await store.backend.adopt(alike(giver), giver.owner, store.deadline()), Gone
        )
        assert await holders(store) == []


async def test_a_lease_is_not_adopted_as_another_kind(url: str) -> None:
    async with bench(url) as store:
        giver = store.ticket()
        await store.grant(giver)
        heir = permit()
        heir.queue = False
        with pytest.raises(ConfigError):
            await store.backend.adopt(heir, giver.owner, store.deadline())
        assert await holders(store) == [giver.owner]


async def test_an_adopted_permit_keeps_its_slot(url: str) -> None:
    async with bench(url) as store:
        if not store.backend.guarantees.slots:
            return
        tickets = [permit() for _ in range(3)]
        for ticket in tickets:
            await store.grant(ticket)
        state = await store.backend.inspect("x", store.deadline())
        slots = {holder.owner: holder.slot for holder in state.holders}
        assert sorted(slot for slot in slots.values() if slot is not None) == [0, 1, 2]
        giver = tickets[1]
        heir = alike(giver)
        assert isinstance(await store.backend.adopt(heir, giver.owner, store.deadline()), Granted)
        state = await store.backend.inspect("x", store.deadline())
        after = {holder.owner: holder.slot for holder in state.holders}
        assert after[heir.owner] == slots[giver.owner]
        assert set(after) == {tickets[0].owner, heir.owner, tickets[2].owner}


# Observing.


async def changes(store: Bench, ticket: Ticket, after: int, count: int) -> list[tuple[int, str]]:
    """Waits for so many changes; returns the number and the value of each."""
    seen: list[tuple[int, str]] = []
    while len(seen) < count:
        observation = await store.backend.observe(ticket, after, store.deadline())
        for change in observation.changes:
            assert change.number > after
            after = change.number
            seen.append((change.number, change.label.text if change.owner else "nobody"))
        if len(seen) < count:
            await store.backend.wait(ticket, store.clock.now() + 5.0)
    return seen


async def test_every_change_of_an_election_is_seen(url: str) -> None:
    async with bench(url) as store, bench(url) as elsewhere:
        eye = observer()
        nothing = await elsewhere.backend.observe(eye, 0, store.deadline())
        assert nothing == ((), 0.0)
        first, second = candidate("a"), candidate("b")
        await store.grant(first)
        ((after, value),) = await changes(elsewhere, eye, 0, 1)
        assert value == "a"
        if not store.backend.guarantees.every_change:
            return
        assert await store.backend.amend("x", first.owner, store.deadline(), text="A") is True
        assert await store.release(first) is True
        await store.grant(second)
        assert await store.backend.force_release("x", "test", store.deadline()) is True
        seen = await changes(elsewhere, eye, after, 4)
        assert [value for _, value in seen] == ["A", "nobody", "b", "nobody"]
        # Whoever comes now sees how things stand.
        ((number, value),) = await changes(elsewhere, observer(), 0, 1)
        assert (number, value) == seen[-1]
        await elsewhere.backend.unobserve(eye, store.deadline())


async def test_an_observer_that_is_woken_for_nothing_sees_nothing(url: str) -> None:
    async with bench(url) as store:
        eye = observer()
        for after in (0, BEFORE_ALL, BEFORE_ALL):
            assert await store.backend.observe(eye, after, store.deadline()) == ((), 0.0)
        await store.grant(candidate("a"))
        ((_, value),) = await changes(store, eye, BEFORE_ALL, 1)
        assert value == "a"


async def test_a_hand_over_is_one_change(url: str) -> None:
    async with bench(url) as store, bench(url) as elsewhere:
        if not store.backend.guarantees.fair:
            return
        eye = observer()
        first, second = candidate("a"), candidate("b")
        await store.grant(first)
        assert isinstance(await store.ask(second), Queued)
        ((after, _),) = await changes(elsewhere, eye, 0, 1)
        assert await store.release(first) is True
        await store.told(second)
        (seen,) = await changes(elsewhere, eye, after, 1)
        assert seen[1] == "b"
        assert await store.release(second) is True


async def test_an_observer_is_woken(url: str) -> None:
    async with bench(url) as store, bench(url) as elsewhere:
        eye = observer()
        first = candidate("a")
        await store.grant(first)
        observation = await elsewhere.backend.observe(eye, 0, store.deadline())
        assert 0.0 < observation.remaining <= 31.0
        assert await store.release(first) is True
        before = store.clock.now()
        await elsewhere.backend.wait(eye, before + 20.0)
        assert store.clock.now() < before + 15.0
        (seen,) = await changes(elsewhere, eye, observation.changes[-1].number, 1)
        assert seen[1] == "nobody"


async def test_a_leader_that_ran_out_is_seen_to_be_gone(url: str) -> None:
    async with bench(url) as store, bench(url) as elsewhere:
        eye = observer()
        first = candidate("a")
        await store.grant(first)
        ((after, _),) = await changes(elsewhere, eye, 0, 1)
        assert await store.backend.detach("x", first.owner, 1.0, store.deadline()) is True

        async def gone() -> bool:
            seen = (await elsewhere.backend.observe(eye, after, store.deadline())).changes
            return [change.owner for change in seen] == [""]

        await eventually(gone)


# Forcing.


async def test_a_holder_is_told_of_a_forced_release_at_once_or_when_it_asks(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as elsewhere:
        session = await locks._session()
        for lock in (
            locks.lock("x", ttl=60.0),
            locks.lock("z", ttl=60.0, renew=False),
            locks.semaphore("y", permits=3, ttl=60.0),
        ):
            lease = await lock.acquire()
            assert await elsewhere.force_release(lock.name) is True
            if not locks.guarantees.recall:  # then the next renewal tells it
                session.look_at([lease.owner])
            assert await lease.wait_lost(timeout=15.0) is True  # its next renewal is in 20 s
