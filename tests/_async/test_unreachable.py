"""A store that does not answer, answers late, or whose answers and wake-ups are lost.

The faults are made between the engine and a real backend, so that every case can be had exactly; the
faults of real stores and processes are in `tests/faults`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from typing import Any

import pytest

from holdfast import aio as holdfast
from holdfast.model import Granted
from worlds.aio import Job, eventually, pause

ALL = {"acquire", "renew", "release"}


class Line:
    """Stands between the engine and a backend: cut, or losing what comes back."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.cut = False
        self.refuse: set[str] = set()
        """Verbs that are not carried out."""
        self.lose: set[str] = set()
        """Verbs that are carried out, and whose answers do not arrive."""
        self.delay = 0.0
        self.late = False
        """Grants arrive when they are over."""
        self.deaf = False
        """Wake-ups do not arrive."""
        self.silent: set[str] = set()
        """Verbs that are not answered: each call would take all the time that it is given."""
        self.given: list[tuple[str, float]] = []
        """For each such call, its verb and those seconds."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def acquire(self, *args: Any) -> Any:
        return await self._call("acquire", args)

    async def renew(self, *args: Any) -> Any:
        return await self._call("renew", args)

    async def release(self, *args: Any) -> Any:
        return await self._call("release", args)

    async def _call(self, name: str, args: Any) -> Any:
        if self.cut or name in self.refuse:
            raise holdfast.BackendUnavailable("the line is cut")
        if name in self.silent:
            self.given.append((name, args[-1] - self.clock.now()))
            raise holdfast.BackendUnavailable("no answer in time")
        answer = await getattr(self._backend, name)(*args)
        if name in self.lose:
            self.lose.discard(name)
            raise holdfast.BackendUnavailable("the answer was lost")
        if self.delay:
            await pause(self.delay)
        if self.late and isinstance(answer, Granted):
            await pause(answer.ttl)
        return answer

    async def wait(self, ticket: Any, until: float | None) -> Any:
        while True:
            grant = await self._backend.wait(ticket, until)
            if not self.deaf or grant is None:
                return grant


class Scene:
    def __init__(self, locks: holdfast.Locks, line: Line, others: holdfast.Locks) -> None:
        self.locks = locks
        self.line = line
        self.others = others
        self.events: list[holdfast.Event] = []
        locks.on_event(self.events.append)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    async def waiters(self, number: int) -> None:
        async def there() -> bool:
            return len((await self.others.inspect("x")).waiters) == number

        await eventually(there)

    async def look_at(self, lease: holdfast.Lease) -> None:
        """Have it renewed now, rather than when it is due."""
        (await self.locks._session()).look_at([lease.owner])


@asynccontextmanager
async def scene(url: str, **options: Any) -> AsyncIterator[Scene]:
    async with holdfast.connect(url, **options) as locks, holdfast.connect(url) as others:
        session = await locks._session()
        line = Line(session.backend)
        session.backend = line
        yield Scene(locks, line, others)
        line.cut = False


async def test_a_lease_that_cannot_be_renewed_is_uncertain_and_ends_first_for_us(url: str) -> None:
    async with scene(url) as s:
        lease = await s.locks.lock("x").acquire()
        s.line.cut = True
        await s.look_at(lease)
        await eventually(lambda: lease.state == "uncertain")
        assert lease.held

        async def ours_ends_first() -> bool:
            left = lease.remaining()  # asked first: a slow answer can only make the store's less
            (holder,) = (await s.others.inspect("x")).holders
            return holder.owner == lease.owner and 0 < left < holder.remaining

        await eventually(ours_ends_first)
        assert s.kinds().count("uncertain") == 1


async def test_a_lease_that_cannot_be_renewed_is_lost_by_our_own_clock(url: str) -> None:
    async with scene(url) as s:
        lease = await s.locks.lock("x", ttl=0.3).acquire(timeout=10.0)
        lost: list[object] = []
        lease.on_lost(lost.append)
        s.line.cut = True
        await eventually(lambda: lost)
        assert not lease.held
        with pytest.raises(holdfast.LeaseLost, match="before a renewal was answered"):
            lease.ensure()
        assert s.kinds().count("lost") == 1


async def test_a_renewal_that_succeeds_in_the_end_makes_it_certain_again(url: str) -> None:
    async with scene(url) as s:
        lease = await s.locks.lock("x").acquire()
        left = lease.remaining()
        s.line.cut = True
        await s.look_at(lease)
        await eventually(lambda: lease.state == "uncertain")
        assert lease.remaining() < left
        s.line.cut = False
        await s.look_at(lease)
        await eventually(lambda: lease.state == "held")
        assert lease.held


async def test_an_explicit_renewal_that_is_not_answered_says_so(url: str) -> None:
    async with scene(url) as s:
        lease = await s.locks.lock("x").acquire()
        s.line.cut = True
        with pytest.raises(holdfast.BackendUnavailable):
            await lease.renew()
        assert lease.held


async def test_nothing_is_granted_that_is_not_answered(url: str) -> None:
    async with scene(url) as s:
        s.line.cut = True
        with pytest.raises(holdfast.BackendUnavailable):
            await s.locks.lock("x").acquire(timeout=5.0)
        with pytest.raises(holdfast.BackendUnavailable):
            await s.locks.lock("x").try_acquire()


async def test_a_grant_whose_answer_was_lost_leaves_no_ghost(url: str) -> None:
    async with scene(url) as s:
        s.line.lose.add("acquire")
        with pytest.raises(holdfast.BackendUnavailable, match="lost"):
            await s.locks.lock("x").acquire()
        assert not (await s.others.inspect("x")).held
        assert await s.others.lock("x").try_acquire() is not None


async def test_leaving_with_while_the_store_is_gone_does_not_raise(url: str) -> None:
    async with scene(url) as s:
        async with s.locks.lock("x") as lease:
            s.line.cut = True
        assert s.kinds()[-1] == "release_failed"
        s.line.cut = False
        # Not renewed any more: the TTL frees it.
        assert not lease._hold._kept


async def test_an_explicit_release_raises_and_may_be_repeated(url: str) -> None:
    async with scene(url) as s:
        lease = await s.locks.lock("x").acquire()
        s.line.cut = True
        with pytest.raises(holdfast.BackendUnavailable):
            await lease.release()
        s.line.cut = False
        assert await lease.release() is True
        assert await lease.release() is False


async def test_a_release_whose_answer_was_lost_was_a_release(url: str) -> None:
    async with scene(url) as s:
        lease = await s.locks.lock("x").acquire()
        s.line.lose.add("release")
        with pytest.raises(holdfast.BackendUnavailable):
            await lease.release()
        rival = await s.others.lock("x").acquire(timeout=5.0)
        assert await lease.release() is True
        assert rival.held
        assert (await s.others.inspect("x")).token == rival.token


async def test_after_a_release_nothing_is_renewed_in_any_order(url: str) -> None:
    async with scene(url) as s:
        for turn in range(30):
            lease = await s.locks.lock("x").acquire(timeout=10.0)
            await s.look_at(lease)
            if turn % 3:
                await pause(turn * 0.0001)  # before, while or after the keeper renews
            await lease.release()
            assert not (await s.others.inspect("x")).held


async def test_the_deadline_is_counted_from_the_sending(url: str) -> None:
    async with scene(url) as s:
        s.line.delay = 0.2
        lease = await s.locks.lock("x", ttl=10.0, renew=False).acquire()
        assert lease.held
        assert lease.remaining() <= 9.8
        await lease.renew()
        assert lease.remaining() <= 9.8


async def test_an_answer_later_than_the_lease_grants_nothing(url: str) -> None:
    async with scene(url) as s:
        s.line.late = True
        assert await s.locks.lock("x", ttl=0.1).try_acquire() is None
        with pytest.raises(holdfast.BackendUnavailable, match="longer to answer"):
            await s.locks.lock("x", ttl=0.1).acquire()
        assert not (await s.others.inspect("x")).held


async def test_a_waiter_outlasts_a_store_that_is_gone_for_a_while(url: str) -> None:
    async with scene(url, heartbeat=0.05) as s:
        lease = await s.others.lock("x").acquire()
        waiter = Job(s.locks.lock("x").acquire)
        await s.waiters(1)
        s.line.cut = True
        if not url.startswith("zookeeper"):  # where a place lives as long as its session
            await s.waiters(0)  # five heartbeats missed: it has lost its place
        s.line.cut = False
        await s.waiters(1)  # and has enrolled again, as somebody new
        await lease.release()
        assert (await waiter.result()).token > lease.token


async def test_a_waiter_that_times_out_while_the_store_is_gone_times_out(url: str) -> None:
    async with scene(url) as s:
        await s.others.lock("x").acquire()
        s.line.refuse = {"renew", "release"}  # all that comes after it has joined the queue
        assert await s.locks.lock("x").try_acquire(timeout=0.2) is None
        s.line.refuse = set()
        await s.waiters(0)


async def test_wake_ups_are_hints_and_heartbeats_carry_it(url: str) -> None:
    async with scene(url, heartbeat=0.1) as s:
        lease = await s.others.lock("x").acquire()
        waiter = Job(s.locks.lock("x").acquire)
        await s.waiters(1)
        s.line.deaf = True
        await lease.release()
        granted = await waiter.result()
        assert granted.held
        assert granted.remaining() > 25.0


async def test_a_hand_over_of_which_little_is_left_is_confirmed_first(fair_url: str) -> None:
    async with scene(fair_url) as s:
        lease = await s.others.lock("x").acquire()
        session = await s.locks._session()
        lasts, _ = session.claim
        session.claim = lasts, inf  # whatever is left is too little
        waiter = Job(s.locks.lock("x").acquire)
        await s.waiters(1)
        await lease.release()
        granted = await waiter.result()
        assert granted.remaining() > 25.0  # the full TTL already: it asked before it believed


async def test_a_hand_over_that_was_never_confirmed_ends_with_the_claim(fair_url: str) -> None:
    async with scene(fair_url, claim_window=1.5) as s:
        lease = await s.others.lock("x").acquire()
        waiter = Job(s.locks.lock("x").acquire)
        await s.waiters(1)
        s.line.cut = True
        await lease.release()
        granted = await waiter.result()
        assert granted.remaining() <= 1.5
        assert await granted.wait_lost(timeout=5.0) is True
        assert (await s.others.lock("x").acquire(timeout=5.0)).token > granted.token


@pytest.mark.parametrize("timeout", [0.1, 1.0, 3.0])
async def test_a_silent_store_is_not_waited_for_much_longer_than_the_timeout(
    url: str, timeout: float
) -> None:
    async with scene(url) as s:
        s.line.silent = ALL
        with pytest.raises(
            holdfast.BackendUnavailable, match="'x' could not be acquired"
        ) as raised:
            await s.locks.lock("x").acquire(timeout=timeout)
        (_, asked), (verb, left) = s.line.given[:2]
        assert asked <= max(timeout, 2.0)
        assert verb == "release"
        assert left <= 0.25
        assert raised.value.name == "x"
        s.line.silent = set()


async def test_no_renewal_takes_longer_than_any_other_lease_can_spare() -> None:
    clock = holdfast.ManualClock()
    async with scene("memory://spare", clock=clock) as s:
        long = await s.locks.lock("long", ttl=600.0).acquire()

        async def given() -> float:
            s.line.given.clear()
            s.line.silent = {"renew"}
            await s.look_at(long)
            await eventually(lambda: s.line.given)
            s.line.silent = set()
            return s.line.given[0][1]

        assert await given() == 5.0
        short = await s.locks.lock("short", ttl=6.0).acquire()
        assert await given() == 2.0
        for _ in range(30):
            clock.advance(1.0)
            assert await given() == 2.0
            assert await given() == 2.0  # also if it was not looked at since the last time
            left = short.remaining()
            await s.look_at(short)
            await eventually(lambda left=left: short.remaining() > left)  # type: ignore[misc]
        await short.release()
        for _ in range(3):  # and a while later nobody is held up for its sake
            clock.advance(10.0)
            left = long.remaining()
            await s.look_at(long)
            await eventually(lambda left=left: long.remaining() > left)  # type: ignore[misc]
        assert await given() == 5.0


async def test_nobody_is_kept_by_another_who_tries_to_reach_the_store(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = holdfast.connect(url)
    backend = locks._opening._opener()
    given: list[float] = []
    over: list[bool] = []

    async def slow(deadline: float) -> None:
        given.append(deadline - backend.clock.now())
        await eventually(lambda: over)
        raise holdfast.BackendUnavailable("nobody there")

    monkeypatch.setattr(backend, "open", slow)
    monkeypatch.setattr(locks._opening, "_opener", lambda: backend)
    first = Job(locks._opening.session, 30.0)
    await eventually(lambda: given)
    third = Job(locks._opening.session, 30.0)
    second = Job(locks._opening.session, 0.1)
    assert isinstance(await second.error(), holdfast.BackendUnavailable)
    assert not first.done()
    over.append(True)
    for job in (first, third):
        assert isinstance(await job.error(), holdfast.BackendUnavailable)
    assert given[1] < 30.0  # it has what is left of its own time
    monkeypatch.undo()
    await backend.open(backend.clock.now() + 10.0)
    await backend.close()
    await locks.close()


async def test_who_times_out_on_a_silent_store_is_not_kept_by_the_clean_up(fair_url: str) -> None:
    async with scene(fair_url) as s:
        await s.others.lock("x").acquire()
        s.line.silent = {"renew", "release"}  # all that comes after it has joined the queue
        assert await s.locks.lock("x").try_acquire(timeout=0.3) is None
        assert next(given for verb, given in s.line.given if verb == "release") <= 2.0
        s.line.silent = set()


async def test_what_could_not_be_given_back_in_time_is_given_back_behind(url: str) -> None:
    async with scene(url) as s:
        s.line.lose.add("acquire")
        s.line.refuse = {"release"}
        with pytest.raises(holdfast.BackendUnavailable):
            await s.locks.lock("x", ttl=60.0).acquire()

        async def free() -> bool:
            return not (await s.others.inspect("x")).held

        assert not await free()
        s.line.refuse = set()
        await eventually(free)
        assert "release_failed" not in s.kinds()


async def test_what_is_still_owed_at_the_end_is_tried_once_more_and_told(url: str) -> None:
    async with scene(url) as s:
        s.line.lose.add("acquire")
        s.line.refuse = {"release"}
        with pytest.raises(holdfast.BackendUnavailable):
            await s.locks.lock("x").acquire()
        await s.locks.close()
        assert s.kinds()[-1] == "release_failed"


async def test_a_close_waits_for_a_silent_store_once_and_not_for_each_lease(url: str) -> None:
    async with scene(url) as s:
        for number in range(30):
            await s.locks.lock(f"n{number}").acquire()
        s.line.silent = ALL
        await s.locks.close()
        assert s.kinds().count("release_failed") == 30
        # Here no call takes any time. Where each takes what it is given, the rest get nothing.
        first, second, *rest = [given for verb, given in s.line.given if verb == "release"]
        assert first <= 5.0
        assert second <= 5.0
        assert rest == sorted(rest, reverse=True)


async def test_a_close_tells_every_holder_though_the_store_is_silent(url: str) -> None:
    async with scene(url) as s:
        told: list[str] = []
        for number in range(30):
            lease = await s.locks.lock(f"n{number}").acquire()
            lease.on_lost(lambda lease: told.append(lease.name))
        s.line.silent = ALL
        await s.locks.close()
        assert sorted(told) == sorted(f"n{number}" for number in range(30))
        assert s.kinds().count("release_failed") == 30
        assert all(given <= 5.0 for verb, given in s.line.given if verb == "release")
