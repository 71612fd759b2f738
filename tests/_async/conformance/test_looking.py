"""What can be seen of locks from outside: inspect, list, labels, events."""

from __future__ import annotations

import os
import time
from contextlib import aclosing

import pytest

from holdfast import aio as holdfast
from worlds.aio import Job, eventually


async def test_inspect_shows_holders_and_waiters(url: str) -> None:
    async with holdfast.connect(url, label="billing") as locks:
        free = await locks.inspect("x")
        assert (free.name, free.holders, free.waiters, free.held) == ("x", (), (), False)
        before = time.time()
        lease = await locks.lock("x", ttl=20.0).acquire()
        waiter = Job(locks.lock("x").acquire)

        async def waits() -> bool:
            return len((await locks.inspect("x")).waiters) == 1

        await eventually(waits)
        state = await locks.inspect("x")
        (holder,) = state.holders
        assert state.held
        assert state.token == holder.token == lease.token
        assert holder.owner == lease.owner
        assert holder.label == (os.uname().nodename, os.getpid(), "billing")
        assert str(holder.label).startswith("billing (")
        assert before - 1 <= holder.since <= time.time() + 1
        assert 15.0 < holder.remaining <= 20.0
        assert state.waiters[0].token == 0
        assert state.waiters[0].label.text == "billing"
        await lease.release()
        await (await waiter.result()).release()
        after = await locks.inspect("x")
        assert not after.held
        assert after.token >= lease.token


async def test_the_ttl_of_holders_and_waiters_is_shown(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x", ttl=20.0, lock_delay=5.0).acquire()
        pool = await locks.semaphore("pool", permits=2, ttl=40.0).acquire()
        waiter = Job(locks.lock("x", ttl=30.0).acquire)

        async def waits() -> bool:
            return len((await locks.inspect("x")).waiters) == 1

        await eventually(waits)
        for state in (await locks.inspect("x"), (await locks.list("x"))[0]):
            assert [one.ttl for one in state.holders] == [25.0]
            assert [one.ttl for one in state.waiters] == [30.0]
        assert [one.ttl for one in (await locks.inspect("pool")).holders] == [pool.ttl]
        await lease.release()
        await (await waiter.result()).release()
        await pool.release()


async def test_list_shows_every_lock_in_use_by_its_prefix(url: str) -> None:
    async with holdfast.connect(url) as locks:
        for name in ("b:2", "a:1", "b:1", "b%", "c"):
            await locks.lock(name).acquire()
        await (await locks.lock("gone").acquire()).release()
        assert [state.name for state in await locks.list()] == ["a:1", "b%", "b:1", "b:2", "c"]
        assert [state.name for state in await locks.list("b:")] == ["b:1", "b:2"]
        assert [state.name for state in await locks.list("b%")] == ["b%"]
        assert await locks.list("none") == []


async def test_an_ended_lease_is_not_shown(url: str) -> None:
    async with holdfast.connect(url) as locks:
        await locks.lock("x", ttl=0.05, renew=False).acquire(timeout=10.0)

        async def gone() -> bool:
            return not (await locks.inspect("x")).held and await locks.list() == []

        await eventually(gone)


async def test_events_tell_the_story_of_a_lease(url: str) -> None:
    events: list[holdfast.Event] = []
    async with holdfast.connect(url, on_event=events.append) as locks:
        lease = await locks.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)

        async def waits() -> bool:
            return len((await locks.inspect("x")).waiters) == 1

        await eventually(waits)
        await lease.renew()
        await lease.release()
        second = await waiter.result()
        await second.release()
        lost = await locks.lock("y", ttl=0.05, renew=False).acquire(timeout=10.0)
        await lost.wait_lost()
        await locks.force_release("z")
    told = [(event.kind, event.name) for event in events if event.kind != "renewed"]
    # The waiter's own story may be told before or after the first one's release.
    assert [entry for entry in told if entry[0] == "acquired"] == [
        ("acquired", "x"),
        ("acquired", "x"),
        ("acquired", "y"),
    ]
    assert ("waited", "x") in told
    assert told.count(("released", "x")) == 2
    assert ("lost", "y") in told
    assert ("forced", "z") in told
    by_kind = {event.kind: event for event in events}
    assert by_kind["renewed"].duration >= 0
    assert by_kind["lost"].token == lost.token
    assert by_kind["lost"].owner == lost.owner
    assert by_kind["lost"].duration > 0
    assert by_kind["lost"].detail
    assert all(event.at > 1e9 for event in events)


async def test_a_waiter_that_gives_up_tells_how_long_it_waited(url: str) -> None:
    events: list[holdfast.Event] = []
    async with holdfast.connect(url) as locks:
        stop = locks.on_event(events.append)
        await locks.lock("x").acquire()
        assert await locks.lock("x").try_acquire(timeout=0.05) is None
        waited = [event for event in events if event.kind == "waited"]
        assert [event.detail for event in waited] == ["gave up"]
        assert 0.04 < waited[0].duration < 5.0
        stop()
        await locks.lock("y").acquire()
        told = [(event.kind, event.name) for event in events if event.kind != "renewed"]
        assert told == [("acquired", "x"), ("waited", "x"), ("timed_out", "x")]


async def test_a_listener_that_fails_harms_nobody(url: str) -> None:
    def bad(event: holdfast.Event) -> None:
        raise RuntimeError("mine")

    events: list[holdfast.Event] = []
    async with holdfast.connect(url, on_event=bad) as locks:
        locks.on_event(events.append)
        async with locks.lock("x") as lease:
            assert lease.held
    assert [event.kind for event in events] == ["acquired", "released"]


async def test_locks_are_watched(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url, heartbeat=0.1) as elsewhere:
        held = await locks.lock("a:1").acquire()
        async with aclosing(elsewhere.watch("a:")) as seen:

            async def following() -> tuple[str, str, str]:
                sighting = await anext(seen)
                assert sighting.participant is not None
                return sighting.kind, sighting.name, sighting.participant.owner

            assert await following() == ("granted", "a:1", held.owner)
            other = await locks.lock("b:1").acquire()
            second = await locks.lock("a:2").acquire()
            assert await following() == ("granted", "a:2", second.owner)
            assert await held.release() is True
            assert await following() == ("ended", "a:1", held.owner)
            await other.release()
            await second.release()
        for bad in (0, -1.0, "1"):
            with pytest.raises(holdfast.ConfigError):
                await anext(elsewhere.watch(every=bad))  # type: ignore[arg-type]
        with pytest.raises(holdfast.ConfigError):
            await anext(elsewhere.watch("\n"))


async def test_watching_ends_with_its_manager(url: str) -> None:
    locks = holdfast.connect(url, heartbeat=0.1)
    lease = await locks.lock("x").acquire()
    seen = locks.watch()
    assert (await anext(seen)).kind == "granted"
    assert await lease.release() is True
    await locks.close()
    with pytest.raises(holdfast.LockError):
        await anext(seen)
