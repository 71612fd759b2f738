"""Leases that have ended for us and are still to be freed: `close`, and callbacks that take long."""

from __future__ import annotations

from threading import Event, Thread
from typing import Any

import pytest

from holdfast import aio as holdfast
from worlds.aio import Job, eventually, pause


async def test_close_waits_for_a_body_whose_max_hold_is_over(url: str) -> None:
    async with holdfast.connect(url) as others:
        locks = holdfast.connect(url)
        order: list[str] = []

        async def body() -> None:
            async with locks.lock("x", ttl=30.0, max_hold=1.0) as lease:
                try:
                    await lease.wait_lost(20.0)
                    await pause(0.2)  # in asyncio it is cancelled here, or before
                finally:
                    order.append("told")
                    await pause(0.3)
                    order.append("out")

        job = Job(body)
        await eventually(lambda: order)
        await locks.close()
        order.append("closed")
        assert isinstance(await job.error(), holdfast.LeaseLost)
        assert order == ["told", "out", "closed"]
        assert not (await others.inspect("x")).held


async def test_close_waits_for_work_that_a_leader_stops(fair_url: str) -> None:
    async with holdfast.connect(fair_url) as others:
        locks = holdfast.connect(fair_url)
        term = await locks.election("boss", ttl=30.0).campaign()
        order: list[str] = []

        async def body() -> None:
            async with term:
                try:
                    await term.wait_lost(20.0)
                    await pause(0.2)
                finally:
                    order.append("told")
                    await pause(0.3)
                    order.append("out")

        job = Job(body)
        await eventually(lambda: term._hold._usage.bodies)
        resigning = Job(term.resign)
        await eventually(lambda: order)
        await locks.close()
        order.append("closed")
        assert isinstance(await job.error(), holdfast.LeaseLost)
        await resigning.error()
        assert order == ["told", "out", "closed"]
        assert not (await others.inspect("boss")).held


async def test_nothing_is_freed_while_a_callback_runs() -> None:
    """The keeper had taken the lease from its wheel when another thread found its time over."""
    async with holdfast.connect("memory://calling") as others:
        locks = holdfast.connect("memory://calling")
        lease = await locks.lock("x", ttl=180.0).acquire()
        inside, go_on = Event(), Event()
        calls: list[str] = []

        def first(lease: holdfast.Lease) -> None:
            calls.append("first")
            inside.set()
            go_on.wait(60.0)

        lease.on_lost(first)
        lease.on_lost(lambda lease: calls.append("second"))
        hold: Any = lease._hold
        telling = Thread(target=hold._recall, args=("a test wants it",))
        telling.start()
        await eventually(inside.is_set)
        keeper = (await locks._session()).keeper
        for _ in range(3):
            await keeper._renew([hold])
        assert calls == ["first"]
        closing = Job(locks.close)
        await pause(0.2)
        assert (await others.inspect("x")).held
        assert not closing.done()
        go_on.set()
        await closing.result()
        telling.join()
        assert calls == ["first", "second"]
        assert not (await others.inspect("x")).held


@pytest.mark.parametrize("several", [False, True])
async def test_a_body_that_ends_frees_nothing_while_a_callback_runs(several: bool) -> None:
    async with (
        holdfast.connect("memory://ends") as others,
        holdfast.connect("memory://ends") as locks,
    ):
        inside, go_on = Event(), Event()

        def slow(lease: holdfast.Lease) -> None:
            inside.set()
            go_on.wait(60.0)

        async def body() -> None:
            lock: Any = locks.lock("x", ttl=180.0)
            if several:
                lock = locks.multi(["x", "y"], ttl=180.0)
            async with lock as lease:
                lease.on_lost(slow)
                hold: Any = lease._hold.holds[1] if several else lease._hold
                Thread(target=hold._recall, args=("a test wants it",)).start()
                await eventually(inside.is_set)

        job = Job(body)
        assert isinstance(await job.error(), holdfast.LeaseLost)
        assert (await others.inspect("x")).held
        go_on.set()

        async def free() -> bool:
            return not (await others.inspect("x")).held

        await eventually(free)


async def test_all_parts_are_freed_after_a_callback_in_which_the_body_ended() -> None:
    """Another part ended while the callback and the body still ran, as all do when `max_hold` ends."""
    async with (
        holdfast.connect("memory://parts-end") as others,
        holdfast.connect("memory://parts-end") as locks,
    ):
        inside, go_on = Event(), Event()

        def slow(lease: holdfast.MultiLease) -> None:
            inside.set()
            go_on.wait(60.0)

        async def body() -> None:
            async with locks.multi(["x", "y", "z"], ttl=180.0, max_hold=90.0) as lease:
                lease.on_lost(slow)
                first, second, third = lease._hold.holds
                Thread(target=second._recall, args=("a test wants it",)).start()
                assert inside.wait(60.0)
                first._recall("a test wants it")
                third._recall("a test wants it")

        async def free() -> bool:
            return not any([(await others.inspect(name)).held for name in "xyz"])

        job = Job(body)
        assert isinstance(await job.error(), holdfast.LeaseLost)
        assert not await free()
        go_on.set()
        await eventually(free)


async def test_a_telling_that_was_interrupted_is_taken_up_again() -> None:
    async with holdfast.connect("memory://again") as locks:
        lease = await locks.lock("x", ttl=180.0).acquire()
        told: list[str] = []

        def first(lease: holdfast.Lease) -> None:
            told.append("first")
            raise KeyboardInterrupt

        lease.on_lost(first)
        lease.on_lost(lambda lease: told.append("second"))
        hold: Any = lease._hold
        with pytest.raises(KeyboardInterrupt):
            hold._recall("a test wants it")
        await eventually(lambda: told == ["first", "second"])

        async def free() -> bool:
            return not (await locks.inspect("x")).held

        await eventually(free)


@pytest.mark.parametrize("end", ["closed", "at_most"])
async def test_the_slot_of_a_period_is_kept_though_its_manager_is_closed(end: str) -> None:
    async with holdfast.connect(f"memory://slot-{end}") as others:
        locks = holdfast.connect(f"memory://slot-{end}")
        backend: Any = (await locks._session()).backend
        detach = backend.detach

        async def slowly(*args: Any) -> Any:
            await pause(0.2)
            return await detach(*args)

        backend.detach = slowly
        at_most = 0.1 if end == "at_most" else None

        async def work() -> None:
            lease = await locks.once("job", 60.0, at_least=30.0, at_most=at_most, ttl=5.0)
            assert lease is not None
            async with lease:
                if end == "closed":
                    await locks.close()
                else:
                    await lease.wait_lost(20.0)
                    await pause(0.2)

        assert isinstance(await Job(work).error(), holdfast.LeaseLost)
        await locks.close()
        (holder,) = (await others.inspect("job")).holders
        assert holder.remaining > 20.0


async def test_the_end_of_an_adopted_lease_is_told_unasked() -> None:
    kinds: list[str] = []
    async with (
        holdfast.connect("memory://adopted") as giver,
        holdfast.connect(
            "memory://adopted", on_event=lambda event: kinds.append(event.kind)
        ) as locks,
    ):
        text = await (await giver.lock("x", ttl=0.3).acquire()).export()
        lease = await locks.adopt(text, renew=False, ttl=0.3)
        await eventually(lambda: "lost" in kinds)
        assert lease.state == "lost"


async def test_a_re_entrant_lease_that_is_given_away_leaves_nothing() -> None:
    async with holdfast.connect("memory://given") as locks:
        for number in range(5):
            await (await locks.rlock(f"x{number}").acquire()).export()
        assert not (await locks._session()).reentrant


async def test_what_is_detached_is_not_renewed_behind_that() -> None:
    """The keeper has seen that the lease is to be renewed, and has not sent it yet."""
    async with holdfast.connect("memory://behind") as locks:
        lease = await locks.lock("x", ttl=180.0).acquire()
        session: Any = await locks._session()
        hold = lease._hold
        renewed: list[str] = []
        renew = session.backend.renew

        async def note(claims: Any, deadline: float) -> Any:
            renewed.extend(claim.owner for claim in claims)
            return await renew(claims, deadline)

        session.backend.renew = note
        keeper = session.keeper
        limit = keeper._limit

        def forgets(*args: Any) -> float:
            keeper.forget(hold)  # as `detach` does, which finds no call under way
            seconds: float = limit(*args)
            return seconds

        keeper._limit = forgets
        await keeper._renew([hold])
        assert renewed == []


async def test_close_waits_for_a_silent_store_once_however_many_slots_are_to_be_kept() -> None:
    locks = holdfast.connect("memory://slots")
    backend: Any = (await locks._session()).backend

    async def silent(name: str, owner: str, rest: float, deadline: float) -> Any:
        await pause(max(deadline - backend.clock.now(), 0.0))
        raise holdfast.BackendUnavailable("no answer in time")

    backend.detach = silent
    for number in range(6):
        lease = await locks.once(f"job{number}", 600.0, at_least=300.0, ttl=180.0)
        assert lease is not None
        lease.on_lost(lambda lease: None)
    began = backend.clock.now()
    await locks.close()
    assert backend.clock.now() - began < 15.0  # 24 where each of them has its time
