"""A store that is silent: for how long callers, other leases and `close()` wait for it."""

from __future__ import annotations

import time

import pytest

from _async.line import ALL, scene
from holdfast import aio as holdfast
from holdfast._async import closing
from worlds.aio import Job, eventually


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
        s.line.silent = {"release"}
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


async def test_a_close_counts_the_calls_that_go_on_in_the_background(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(closing, "CLOSE_LIMIT", 30.0)  # a clean-up is waited for less
    async with scene("memory://background") as s:
        await s.others.lock("x").acquire()
        waiter = Job(s.locks.lock("x").acquire)
        await s.waiters(1)
        s.line.silent, s.line.slow = ALL, True
        began = time.monotonic()
        await s.locks.close()
        assert time.monotonic() - began < 15.0
        assert isinstance(await waiter.error(), holdfast.LockError)
