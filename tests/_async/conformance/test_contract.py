"""The backend contract itself, verb by verb: the rules of `holdfast.stores._async.contract`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast import aio as holdfast
from holdfast.entries import Claim
from holdfast.model import Busy, Gone, Granted, Label, Queued, Renewed, Waiting, new_owner
from holdfast.stores._async.contract import Backend, Terms, Ticket
from worlds.aio import eventually

LABEL = Label("host", 7, "test")


class Bench:
    """A backend, with shorter words for its verbs."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.clock = backend.clock

    def deadline(self) -> float:
        return self.clock.now() + 15.0

    def ticket(
        self, name: str = "x", *, ttl: float = 30.0, queue: bool = True, barge: bool = False
    ) -> Ticket:
        return Ticket(Terms(name, ttl, LABEL, barge=barge), new_owner(), queue)

    def share(self, weight: int, capacity: int) -> Ticket:
        terms = Terms("x", 30.0, LABEL, weight=weight, capacity=capacity, kind="rwlock")
        return Ticket(terms, new_owner())

    async def ask(self, ticket: Ticket) -> Granted | Queued | Busy:
        return await self.backend.acquire(ticket, self.deadline())

    async def grant(self, ticket: Ticket) -> Granted:
        answer = await self.ask(ticket)
        assert isinstance(answer, Granted)
        return answer

    async def renew(self, ticket: Ticket, ttl: float | None = None) -> object:
        claim = Claim(ticket.name, ticket.owner, ticket.ttl if ttl is None else ttl)
        (outcome,) = await self.backend.renew([claim], self.deadline())
        return outcome

    async def release(self, ticket: Ticket) -> bool:
        return await self.backend.release(ticket.name, ticket.owner, self.deadline())

    async def told(self, ticket: Ticket) -> int:
        """Waits until a waiter is woken, and returns its token.

        It is told of its grant, or told to look before the store can tell it more.
        """
        while True:
            grant = await self.backend.wait(ticket, self.deadline())
            if grant is not None:
                assert grant.handed
                return grant.token
            state = await self.backend.inspect(ticket.name, self.deadline())
            if state.holders and state.holders[0].owner == ticket.owner:
                return state.holders[0].token

    async def remaining(self, name: str = "x") -> float:
        return (await self.backend.inspect(name, self.deadline())).holders[0].remaining


@asynccontextmanager
async def bench(url: str, **options: Any) -> AsyncIterator[Bench]:
    async with holdfast.connect(url, **options) as locks:
        yield Bench((await locks._session()).backend)


async def test_the_same_ticket_again_gets_the_same_grant(url: str) -> None:
    async with bench(url) as store:
        ticket = store.ticket()
        first = await store.grant(ticket)
        assert (await store.grant(ticket)).token == first.token
        assert await store.release(ticket) is True
        assert (await store.backend.inspect("x", store.deadline())).holders == ()


async def test_the_same_ticket_again_keeps_its_place_in_the_queue(url: str) -> None:
    async with bench(url) as store:
        holder, first, second = store.ticket(), store.ticket(), store.ticket()
        await store.grant(holder)
        assert isinstance(await store.ask(first), Queued)
        assert isinstance(await store.ask(second), Queued)
        assert isinstance(await store.ask(first), Queued)
        state = await store.backend.inspect("x", store.deadline())
        assert [waiter.owner for waiter in state.waiters] == [first.owner, second.owner]


async def test_a_repeated_acquire_never_shortens(url: str) -> None:
    async with bench(url) as store:
        ticket = store.ticket(ttl=60.0)
        await store.grant(ticket)
        ticket.ttl = 1.0
        await store.grant(ticket)
        assert await store.remaining() > 50.0


async def test_a_renewal_never_shortens(url: str) -> None:
    async with bench(url) as store:
        ticket = store.ticket(ttl=60.0)
        await store.grant(ticket)
        assert isinstance(await store.renew(ticket, ttl=1.0), Renewed)
        assert await store.remaining() > 50.0


async def test_an_owner_in_use_for_something_else_is_refused(fair_url: str) -> None:
    async with bench(fair_url) as store:
        ticket = store.share(1, 3)
        await store.grant(ticket)
        other = store.share(2, 3)
        other.owner = ticket.owner
        with pytest.raises(holdfast.ConfigError, match="already used"):
            await store.ask(other)


async def test_busy_leaves_nothing_behind(url: str) -> None:
    async with bench(url) as store:
        await store.grant(store.ticket(ttl=30.0))
        answer = await store.ask(store.ticket(queue=False))
        assert isinstance(answer, Busy)
        assert 25.0 < answer.remaining <= 30.0
        assert (await store.backend.inspect("x", store.deadline())).waiters == ()


async def test_only_the_owner_releases_or_renews(url: str) -> None:
    async with bench(url) as store:
        holder, stranger = store.ticket(), store.ticket()
        await store.grant(holder)
        assert await store.release(stranger) is False
        assert isinstance(await store.renew(stranger), Gone)
        elsewhere = store.ticket("another")
        elsewhere.owner = holder.owner
        assert await store.release(elsewhere) is False
        assert isinstance(await store.renew(elsewhere), Gone)
        assert isinstance(await store.renew(holder), Renewed)


async def test_nothing_is_re_created(url: str) -> None:
    async with bench(url) as store:
        ticket = store.ticket(ttl=0.05)
        await store.grant(ticket)

        async def ended() -> bool:
            return not (await store.backend.inspect("x", store.deadline())).holders

        await eventually(ended)
        assert isinstance(await store.renew(ticket), Gone)
        assert await store.release(ticket) is False
        released = store.ticket()
        await store.grant(released)
        await store.release(released)
        assert isinstance(await store.renew(released), Gone)
        assert (await store.backend.inspect("x", store.deadline())).holders == ()


async def test_renewing_many_at_once_answers_for_each(url: str) -> None:
    async with bench(url) as store:
        held = [store.ticket(f"n{number}") for number in range(150)]
        tokens = [(await store.grant(ticket)).token for ticket in held]
        waiter, gone = store.ticket("n0"), store.ticket("n1")
        assert isinstance(await store.ask(waiter), Queued)
        tickets = [*held, waiter, gone]
        claims = [Claim(ticket.name, ticket.owner, ticket.ttl) for ticket in tickets]
        outcomes = await store.backend.renew(claims, store.deadline())
        assert [o.token for o in outcomes[:150] if isinstance(o, Renewed)] == tokens
        assert isinstance(outcomes[150], Waiting)
        assert isinstance(outcomes[151], Gone)


async def test_release_hands_on_for_the_claim_window_and_wakes_that_waiter(fair_url: str) -> None:
    async with bench(fair_url, claim_window=7.0) as store:
        holder, first, second = store.ticket(), store.ticket(), store.ticket()
        token = (await store.grant(holder)).token
        await store.ask(first)
        await store.ask(second)
        await store.release(holder)
        handed = await store.told(first)
        assert handed > token
        state = await store.backend.inspect("x", store.deadline())
        assert state.holders[0].owner == first.owner
        assert state.holders[0].token == handed
        assert 4.0 < state.holders[0].remaining <= 7.0
        assert await store.backend.wait(second, store.clock.now() + 0.05) is None
        assert isinstance(await store.renew(first), Renewed)
        assert await store.remaining() > 25.0


async def test_a_claim_is_never_longer_than_the_ttl(fair_url: str) -> None:
    async with bench(fair_url, claim_window=7.0) as store:
        holder, waiter = store.ticket(), store.ticket(ttl=3.0)
        await store.grant(holder)
        await store.ask(waiter)
        await store.release(holder)
        assert await store.remaining() <= 3.0


async def test_a_claim_that_nobody_makes_goes_to_the_next(fair_url: str) -> None:
    window, outcome = 0.05, None
    while not isinstance(outcome, Renewed):
        async with bench(fair_url, claim_window=window) as store:
            outcome = await claim_behind_a_silent_waiter(store)
        window *= 10  # it was too short: over before it was renewed


async def claim_behind_a_silent_waiter(store: Bench) -> object:
    """Returns the outcome of the next waiter's renewal once that waits no longer."""
    holder, silent, next_one = store.ticket(), store.ticket(), store.ticket()
    await store.grant(holder)
    await store.ask(silent)
    await store.ask(next_one)
    await store.release(holder)
    outcome: object = None

    async def decided() -> bool:
        nonlocal outcome
        outcome = await store.renew(next_one)
        return isinstance(outcome, (Renewed, Gone))

    await eventually(decided)
    assert isinstance(await store.renew(silent), Gone)
    assert await store.release(silent) is False
    return outcome


async def test_leaving_the_queue_and_being_granted_at_once_hands_on(fair_url: str) -> None:
    async with bench(fair_url) as store:
        holder, leaver, next_one = store.ticket(), store.ticket(), store.ticket()
        await store.grant(holder)
        await store.ask(leaver)
        await store.ask(next_one)
        await store.release(holder)  # the leaver has it now, and does not know
        assert await store.release(leaver) is True
        await store.told(next_one)


async def test_a_heartbeat_notices_an_expired_holder(url: str) -> None:
    async with bench(url) as store:
        ttl = 0.05
        while True:
            holder, waiter = store.ticket(ttl=ttl), store.ticket()
            token = (await store.grant(holder)).token
            if isinstance(await store.ask(waiter), Queued):
                break
            await store.release(waiter)  # too short: it was over before there was a queue
            ttl *= 10
        outcome: object = None

        async def granted() -> bool:
            nonlocal outcome
            outcome = await store.renew(waiter)
            return isinstance(outcome, Renewed)

        await eventually(granted)
        assert isinstance(outcome, Renewed)
        assert outcome.token > token
        assert outcome.ttl == 30.0
        assert await store.remaining() > 25.0


async def test_weights_never_add_up_to_more_than_the_capacity(fair_url: str) -> None:
    async with bench(fair_url) as store:
        two, three, one = store.share(2, 5), store.share(3, 5), store.share(1, 5)
        await store.grant(two)
        await store.grant(three)
        assert isinstance(await store.ask(one), Queued)
        await store.release(two)
        assert isinstance(await store.renew(one), Renewed)
        assert (
            sum(h.weight for h in (await store.backend.inspect("x", store.deadline())).holders) == 4
        )


async def test_the_first_in_line_that_does_not_fit_stops_the_rest(fair_url: str) -> None:
    async with bench(fair_url) as store:
        one, all_of_it, small = store.share(1, 5), store.share(5, 5), store.share(1, 5)
        await store.grant(one)
        assert isinstance(await store.ask(all_of_it), Queued)
        assert isinstance(await store.ask(small), Queued)
        assert isinstance(await store.renew(small), Waiting)
        await store.release(one)
        assert isinstance(await store.renew(all_of_it), Renewed)
        assert isinstance(await store.renew(small), Waiting)


async def test_a_barging_head_is_woken_and_not_handed_the_lock(fair_url: str) -> None:
    async with bench(fair_url) as store:
        holder, barger = store.ticket(), store.ticket(barge=True)
        await store.grant(holder)
        await store.ask(barger)
        await store.release(holder)
        if not store.backend.guarantees.barging:
            # The permission is ignored: it is handed the lock like anybody, and nobody overtakes it.
            assert isinstance(await store.renew(barger), Renewed)
            overtaking = await store.ask(store.ticket(barge=True, queue=False))
            assert isinstance(overtaking, Busy)
            return
        assert (await store.backend.inspect("x", store.deadline())).holders == ()
        assert await store.backend.wait(barger, store.deadline()) is None  # a hint, without a token
        fair = store.ticket(queue=False)
        assert isinstance(await store.ask(fair), Busy)
        newcomer = store.ticket(barge=True, queue=False)
        await store.grant(newcomer)
        assert isinstance(await store.renew(barger), Waiting)
        await store.release(newcomer)
        assert isinstance(await store.renew(barger), Renewed)


async def test_a_barging_head_that_does_not_come_is_passed_over_after_the_claim_window(
    fair_url: str,
) -> None:
    async with bench(fair_url, heartbeat=12.0, claim_window=1.0) as store:
        holder, barger, behind = store.ticket(), store.ticket(barge=True), store.ticket()
        await store.grant(holder)
        await store.ask(barger)
        if not store.backend.guarantees.barging:
            return  # handed over as to anybody, which is tested elsewhere
        await store.ask(behind)
        await store.release(holder)

        async def granted() -> bool:
            return isinstance(await store.renew(behind), Renewed)

        await eventually(granted)  # its place would last for a minute


async def test_tokens_of_holders_at_once_are_unique_and_of_the_next_higher(fair_url: str) -> None:
    async with bench(fair_url) as store:
        tickets = [store.share(1, 4) for _ in range(4)]
        tokens = [(await store.grant(ticket)).token for ticket in tickets]
        assert len(set(tokens)) == 4
        for ticket in tickets:
            await store.release(ticket)
        assert (await store.grant(store.share(4, 4))).token > max(tokens)


async def test_what_a_closed_backend_is_asked_fails_closed(url: str) -> None:
    async with bench(url) as store:
        ticket = store.ticket()
        await store.backend.close()
        with pytest.raises(holdfast.BackendUnavailable, match="closed"):
            await store.ask(ticket)
        with pytest.raises(holdfast.BackendUnavailable, match="closed"):
            await store.renew(ticket)
        with pytest.raises(holdfast.BackendUnavailable, match="closed"):
            await store.release(ticket)


async def test_the_guarantees_say_what_is_promised(url: str) -> None:
    async with holdfast.connect(url) as locks:
        said = locks.guarantees
        assert all(text for text in said if isinstance(text, str))
        assert isinstance(said.fair, bool)
        assert "efficiency" in said.safe_for
        assert said == (await locks._session()).backend.guarantees
        if said.fair:
            locks.lock("x", fair=True)
        else:
            with pytest.raises(holdfast.GuaranteeError):
                locks.lock("x", fair=True)


async def test_a_waiter_gets_the_claim_window_that_it_counts_on(fair_url: str) -> None:
    async with (
        bench(fair_url, claim_window=0.1) as hasty,
        bench(fair_url, claim_window=8.0) as patient,
    ):
        holder, waiter = hasty.ticket(), patient.ticket()
        await hasty.grant(holder)
        assert isinstance(await patient.ask(waiter), Queued)
        await hasty.release(holder)
        assert 4.0 < await patient.remaining() <= 8.0
