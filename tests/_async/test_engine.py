"""The engine's own safety rules, one at a time, on a clock that the test moves.

Each was broken on purpose, and its test noticed: `tests/mutants` says how.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast import aio as holdfast
from holdfast.entries import Claim
from holdfast.lifecycle import drift_margin
from holdfast.model import GONE, Queued, Renewed, Waiting
from worlds.aio import Job, eventually

_numbers = itertools.count()


class Line:
    """Stands before a backend, and may change or delay what it answers."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.change: Callable[[Any], Any] = lambda outcome: outcome
        self.seen = self.calls = 0
        """Renewals that were asked for, and the calls that they came in."""
        self.takes = 0.0
        """Seconds on the clock that the answer to an acquire takes."""
        self.silent = False
        self.hints = False
        """Whether a waiter is told to ask as soon as it has joined."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def acquire(self, *args: Any) -> Any:
        answer = await self._backend.acquire(*args)
        self.clock.advance(self.takes)
        if self.hints and isinstance(answer, Queued):
            args[0].tell()
        return answer

    async def renew(self, *args: Any) -> Any:
        if self.silent:
            self.seen += 1
            raise holdfast.BackendUnavailable("no answer")
        outcomes = [self.change(outcome) for outcome in await self._backend.renew(*args)]
        self.seen += len(outcomes)
        self.calls += 1
        return outcomes


class Scene:
    def __init__(self, locks: holdfast.Locks, line: Line, clock: holdfast.ManualClock):
        self.locks = locks
        self.line = line
        self.clock = clock

    async def renewed_after(self, seconds: float) -> None:
        """Moves the clock, and waits until something has been renewed, and is due again later."""
        keeper = (await self.locks._session()).keeper
        seen = self.line.seen
        self.clock.advance(seconds)
        await eventually(lambda: self.line.seen > seen and not keeper._taken)

    async def waiters(self, number: int) -> None:
        async def there() -> bool:
            return len((await self.locks.inspect("x")).waiters) == number

        await eventually(there)


@asynccontextmanager
async def scene(**options: Any) -> AsyncIterator[Scene]:
    clock = holdfast.ManualClock()
    url = f"memory://engine-{next(_numbers)}"
    async with holdfast.connect(url, clock=clock, **options) as locks:
        session = await locks._session()
        line = Line(session.backend)
        session.backend = line
        yield Scene(locks, line, clock)


@pytest.mark.parametrize("listener", [False, True])
async def test_a_renewal_counts_from_when_the_store_says(listener: bool) -> None:
    """A store may have renewed by an earlier request: then the lease ends earlier, too."""
    async with scene() as s:
        if listener:
            s.locks.on_event(lambda event: None)  # the keeper goes another way then
        lease = await s.locks.lock("x", ttl=30.0).acquire()
        since = s.clock.now() + 4.0
        s.line.change = lambda outcome: outcome._replace(since=since)
        await s.renewed_after(12.0)
        ends = since + 30.0 - drift_margin(30.0)
        await eventually(lambda: lease.remaining() > 30.0 - 12.0)  # it was noted
        assert lease.remaining() == pytest.approx(ends - s.clock.now())


@pytest.mark.parametrize("way", ["keeper", "keeper with a listener", "renew"])
async def test_a_renewed_lease_ends_for_us_before_it_ends_at_the_store(way: str) -> None:
    async with scene() as s:
        if way == "keeper with a listener":
            s.locks.on_event(lambda event: None)
        lease = await s.locks.lock("x", ttl=30.0).acquire()
        before = lease.remaining()
        if way == "renew":
            s.clock.advance(5.0)
            await lease.renew()
        else:
            await s.renewed_after(12.0)
            await eventually(lambda: lease.remaining() > before - 12.0)
        (holder,) = (await s.locks.inspect("x")).holders
        assert lease.remaining() <= holder.remaining - 0.99 * drift_margin(30.0)


async def test_a_granted_lease_ends_for_us_before_it_ends_at_the_store() -> None:
    async with scene() as s:
        lease = await s.locks.lock("x", ttl=30.0).acquire()
        (holder,) = (await s.locks.inspect("x")).holders
        assert lease.remaining() <= holder.remaining - 0.99 * drift_margin(30.0)


async def test_a_lease_that_is_renewed_for_longer_ends_for_us_first_too() -> None:
    async with scene() as s:
        lease = await s.locks.lock("x", ttl=30.0).acquire()
        await lease.renew(ttl=90.0)
        (holder,) = (await s.locks.inspect("x")).holders
        assert lease.remaining() <= holder.remaining - 0.99 * drift_margin(90.0)
        assert lease.remaining() > 80.0


async def test_a_lease_that_has_run_out_unseen_is_not_entered_again() -> None:
    async with scene() as s:
        lock = s.locks.rlock("x", ttl=30.0, renew=False)
        first = await lock.acquire()
        assert await lock.acquire() is first
        s.clock.advance(30.0)  # nobody has looked since
        second = await lock.acquire(timeout=0)
        assert second is not first
        assert second.token > first.token
        assert second.held
        assert await lock.try_acquire() is second


async def test_a_timeout_does_not_begin_anew_when_a_place_is_lost() -> None:
    async with scene() as s:
        await s.locks.lock("x", ttl=1000.0).acquire()
        waiter = Job(s.locks.lock("x").try_acquire, 10.0)
        await s.waiters(1)
        lost = 0

        def lose(outcome: Any) -> Any:
            nonlocal lost
            if isinstance(outcome, Waiting):
                lost += 1
                return GONE
            return outcome

        owners: set[str] = set()

        async def asks_anew() -> bool:
            return any(one.owner not in owners for one in (await s.locks.inspect("x")).waiters)

        s.line.change = lose
        for before in range(3):
            owners |= {one.owner for one in (await s.locks.inspect("x")).waiters}
            s.clock.advance(1.5)
            await eventually(lambda before=before: lost > before)  # type: ignore[misc]
            await eventually(asks_anew)  # since when its next heartbeat counts
        s.line.change = lambda outcome: outcome
        assert not waiter.done()
        s.clock.advance(6.0)  # 10.5 s since it asked, and a moment since it asked last
        assert await waiter.result() is None


async def test_a_lease_handed_over_for_less_than_the_claim_window_is_renewed() -> None:
    async with scene(claim_window=5.0) as s:
        first = await s.locks.lock("x", ttl=1000.0).acquire()
        waiter = Job(s.locks.lock("x", ttl=2.0).acquire)
        await s.waiters(1)
        await first.release()
        lease = await waiter.result()
        for _ in range(6):
            await s.renewed_after(0.8)
            await eventually(lambda: lease.remaining() > 1.0)
            (holder,) = (await s.locks.inspect("x")).holders
            assert holder.owner == lease.owner


async def test_a_hand_over_counts_from_the_last_heartbeat() -> None:
    """The store may have granted it right after that, and the wake-up may have taken its time."""
    async with scene(claim_window=2.0, heartbeat=1.0) as s:
        first = await s.locks.lock("x", ttl=1000.0).acquire()
        waiter = Job(s.locks.lock("x", ttl=30.0).acquire)
        await s.waiters(1)
        s.line.silent = True  # so that it is not confirmed, either
        s.clock.advance(0.4)
        await first.release()
        lease = await waiter.result()
        assert lease.remaining() <= 1.6
        s.line.silent = False


async def test_those_who_join_one_after_another_send_their_heartbeats_together() -> None:
    """One call for each of a thousand waiters would take a third of the store's time."""
    async with scene(heartbeat=1.0) as s:
        session = await s.locks._session()
        keeper = session.keeper
        first = await s.locks.lock("x", ttl=1000.0, renew=False).acquire()
        waiters = []
        for number in range(1, 13):
            waiters.append(Job(s.locks.lock("x", ttl=30.0).acquire))
            await s.waiters(number)
            s.clock.advance(0.004)
        s.line.seen = s.line.calls = 0
        s.clock.advance(0.44)

        def settled() -> bool:
            now = s.clock.now()
            joined = all(
                waiter._kept or waiter.beat_sent + 0.5 > now for waiter in session.waiters.values()
            )
            return joined and keeper._next > now and not keeper._taken

        for _ in range(150):
            s.clock.advance(0.004)
            await eventually(settled)
        assert s.line.seen >= 12
        assert s.line.calls <= 4
        await first.release()
        for waiter in waiters:
            await (await waiter.result()).release()


async def test_a_hint_is_followed_though_it_took_long_to_join() -> None:
    """The lock may be the waiter's already: it would stand idle until the next heartbeat."""
    async with scene(heartbeat=1.0) as s:
        first = await s.locks.lock("x", ttl=1000.0, renew=False).acquire()
        s.line.hints, s.line.takes = True, 0.6
        waiter = Job(s.locks.lock("x", ttl=30.0).acquire)
        await eventually(lambda: s.line.seen == 1)
        await first.release()
        await (await waiter.result()).release()


async def test_a_lease_handed_over_without_renewal_is_confirmed_once() -> None:
    async with scene(claim_window=2.0) as s:
        first = await s.locks.lock("x", ttl=1000.0).acquire()
        waiter = Job(s.locks.lock("x", ttl=30.0, renew=False).acquire)
        await s.waiters(1)
        await first.release()
        lease = await waiter.result()
        assert lease.remaining() < 2.0
        s.clock.advance(0.1)
        await eventually(lambda: lease.remaining() > 29.0)
        seen = s.line.seen
        s.clock.advance(20.0)
        assert lease.held
        assert s.line.seen == seen


async def test_a_renewal_with_another_token_is_the_end() -> None:
    async with scene() as s:
        lease = await s.locks.lock("x", ttl=30.0).acquire()
        s.line.change = lambda outcome: (
            outcome._replace(token=outcome.token + 1) if isinstance(outcome, Renewed) else outcome
        )
        s.clock.advance(12.0)
        await eventually(lambda: not lease.held)
        assert lease.state == "lost"


async def test_a_lease_that_comes_after_the_callers_time_is_given_back() -> None:
    async with scene() as s:
        s.line.takes = 4.0
        assert await s.locks.lock("x", ttl=30.0).try_acquire(timeout=1.0) is None
        assert not (await s.locks.inspect("x")).held
        s.line.takes = 0.9
        assert await s.locks.lock("x", ttl=30.0).try_acquire(timeout=1.0) is not None


async def test_a_waiter_is_told_when_the_store_stays_silent() -> None:
    async with scene() as s:
        await s.locks.lock("x", ttl=1000.0).acquire()
        waiter = Job(s.locks.lock("x").acquire)
        await s.waiters(1)
        s.line.silent = True
        for _ in range(9):
            await s.renewed_after(1.0)
        assert not waiter.done()
        for _ in range(3):
            s.clock.advance(2.0)
        error = await waiter.error()
        assert isinstance(error, holdfast.BackendUnavailable)
        assert "has not answered for 10 s" in str(error)
        s.line.silent = False
        await s.waiters(0)


async def test_a_waiter_that_was_frozen_itself_is_not_told_of_silence() -> None:
    async with scene() as s:
        first = await s.locks.lock("x", ttl=1000.0).acquire()
        waiter = Job(s.locks.lock("x").acquire)
        await s.waiters(1)
        s.line.silent = True
        await s.renewed_after(1.1)
        await s.renewed_after(100.0)  # we stood still, while a request was under way
        s.line.silent = False
        s.clock.advance(1.0)
        await s.waiters(1)  # it has enrolled again
        await first.release()
        assert (await waiter.result()).held


async def test_a_holder_that_the_store_has_put_back_into_the_queue_is_lost() -> None:
    """The store was restored from an older state, in which this owner was waiting."""
    async with scene() as s:
        lease = await s.locks.lock("x", ttl=30.0).acquire()
        s.line.change = lambda outcome: Waiting(10.0)
        s.clock.advance(12.0)
        await eventually(lambda: not lease.held)
        assert lease.state == "lost"


async def test_what_is_answered_after_the_release_is_no_loss() -> None:
    async with scene() as s:
        events: list[holdfast.Event] = []
        s.locks.on_event(events.append)
        lease = await s.locks.lock("x", ttl=30.0).acquire()
        session = await s.locks._session()

        def released_meanwhile(outcome: Any) -> Any:
            session.keeper.forget(lease._hold)  # what a release does first
            return GONE

        s.line.change = released_meanwhile
        await s.renewed_after(12.0)
        assert await lease.release() is True
        assert [event.kind for event in events] == ["acquired", "released"]


async def test_a_lease_that_has_run_out_at_the_store_cannot_be_renewed_there() -> None:
    async with scene() as s:
        lease = await s.locks.lock("x", ttl=30.0, renew=False).acquire()
        s.clock.advance(30.0)
        claim = Claim("x", lease.owner, 30.0)
        assert await s.line.renew([claim], s.clock.now() + 5.0) == [GONE]
        assert not (await s.locks.inspect("x")).held
