"""`memory://` with a clock that the test moves: what users do in their own tests."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import aio as holdfast
from holdfast._async import session
from worlds.aio import Job, eventually

URL = "memory://manual"


async def test_time_stands_still_until_it_is_moved() -> None:
    clock = holdfast.ManualClock()
    async with holdfast.connect(URL, clock=clock) as locks:
        lease = await locks.lock("x", ttl=30.0, renew=False).acquire()
        left = lease.remaining()
        assert lease.remaining() == left
        clock.advance(10.0)
        assert lease.remaining() == pytest.approx(left - 10.0)
        clock.advance(19.0)
        assert lease.held
        clock.advance(1.0)
        assert not lease.held
        assert await lease.release() is False


async def test_a_rival_is_granted_when_the_clock_has_passed_the_ttl() -> None:
    clock = holdfast.ManualClock()
    async with holdfast.connect(URL, clock=clock) as locks:
        lease = await locks.lock("x", ttl=30.0, renew=False).acquire()
        waiter = Job(locks.lock("x").acquire)

        async def waits() -> bool:
            return len((await locks.inspect("x")).waiters) == 1

        await eventually(waits)
        lost: list[object] = []
        lease.on_lost(lost.append)
        clock.advance(31.0)
        # By this jump the waiter's own heartbeat is overdue as well: it enrols again, and is granted.
        rival = await waiter.result()
        assert rival.token > lease.token
        await eventually(lambda: lost)
        assert lost == [lease]


async def test_what_runs_out_unseen_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who takes a lock for a fixed time, and never gives it back, may do so for ever."""
    monkeypatch.setattr(session, "MANY", 10)
    clock = holdfast.ManualClock()
    async with holdfast.connect(URL, clock=clock) as locks:
        kept = await locks.lock("kept", ttl=1e6).acquire()
        for number in range(100):
            await locks.lock(f"{number}", ttl=30.0, renew=False).acquire()
            clock.advance(10.0)
        assert len((await locks._session()).leases) <= 10
        assert kept.held
        assert await kept.release() is True


async def test_the_keeper_renews_as_the_clock_moves() -> None:
    clock = holdfast.ManualClock()
    renewals: list[holdfast.Event] = []
    async with holdfast.connect(URL, clock=clock) as locks:
        locks.on_event(renewals.append)
        lease = await locks.lock("x", ttl=30.0).acquire()
        renewals.clear()
        for _ in range(5):
            seen = len(renewals)
            clock.advance(10.0)
            await eventually(lambda seen=seen: len(renewals) > seen)  # type: ignore[misc]
            assert lease.held
        assert {event.kind for event in renewals} == {"renewed"}
        assert (await locks.inspect("x")).token == lease.token


async def test_a_jump_past_the_ttl_loses_the_lease() -> None:
    clock = holdfast.ManualClock()
    async with holdfast.connect(URL, clock=clock) as locks:
        lease = await locks.lock("x", ttl=30.0).acquire()
        clock.advance(60.0)
        with pytest.raises(holdfast.LeaseLost):
            lease.ensure()


async def test_a_timeout_is_counted_on_the_same_clock() -> None:
    clock = holdfast.ManualClock()
    async with holdfast.connect(URL, clock=clock) as locks:
        lease = await locks.lock("x", ttl=1000.0).acquire()
        waiter = Job(locks.lock("x").try_acquire, 3.0)

        async def waits() -> bool:
            return len((await locks.inspect("x")).waiters) == 1

        await eventually(waits)
        clock.advance(2.0)
        assert not waiter.done()
        clock.advance(1.0)
        assert await waiter.result() is None
        assert lease.held


async def test_a_wall_clock_that_steps_back_lowers_no_token() -> None:
    clock = holdfast.ManualClock()
    async with holdfast.connect(URL, clock=clock) as locks:
        tokens = []
        for step in (0.0, 3600.0, -7200.0, -86400.0, 60.0):
            clock.step_wall(step)
            async with locks.lock("x") as lease:
                assert lease.remaining() > 29.0
                tokens.append(lease.token)
        assert tokens == sorted(set(tokens))
        with pytest.raises(ValueError, match="never goes back"):
            clock.advance(-1.0)


async def test_all_who_name_the_same_store_share_it() -> None:
    clock = holdfast.ManualClock()
    async with holdfast.connect(URL, clock=clock) as locks, holdfast.connect(URL) as others:
        lease = await locks.lock("x").acquire()
        assert await others.lock("x").try_acquire() is None
        async with holdfast.connect("memory://another") as elsewhere:
            assert await elsewhere.lock("x").try_acquire() is not None
        with pytest.raises(holdfast.ConfigError, match="another clock"):
            async with holdfast.connect(URL, clock=holdfast.ManualClock()):
                pass
        clock.advance(5.0)
        assert lease.held
    async with holdfast.connect(URL) as fresh:
        assert not (await fresh.inspect("x")).held


async def test_a_bad_clock_is_refused() -> None:
    with pytest.raises(holdfast.ConfigError, match="clock"):
        holdfast.connect(URL, clock=5)  # type: ignore[arg-type]


async def test_a_slot_ends_with_its_period_though_a_renewal_was_waited_for() -> None:
    clock = holdfast.ManualClock()
    async with holdfast.connect(URL, clock=clock) as locks:
        lease = await locks.once("report", 60.0, ttl=30.0)
        assert lease is not None
        session = await locks._session()
        renew = session.backend.renew
        done: list[str] = []

        async def slow(claims: Any, deadline: float) -> Any:
            await eventually(lambda: done)
            return await renew(claims, deadline)

        session.backend.renew = slow  # type: ignore[method-assign]
        renewal = Job(lease.renew)
        await eventually(lambda: session.renewals.under_way)
        release = Job(lease.release)
        await eventually(lambda: session.renewals.under_way[0].signals)
        clock.advance(5.0)
        done.append("renewal")
        assert await release.result() is True
        await renewal.error()
        (holder,) = (await locks.inspect("report")).holders
        assert holder.remaining <= 55.0
        clock.advance(55.0)
        assert await locks.once("report", 60.0) is not None
