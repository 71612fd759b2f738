"""Case 11: clocks that are moved."""

from __future__ import annotations

import asyncio
import threading
import uuid

import holdfast
import holdfast.aio
from faults.actors import Stage, reached, until
from holdfast import ManualClock

WALL = """
import time
time.shift, real, real_ns = 0, time.time, time.time_ns
time.time, time.time_ns = lambda: real() + time.shift, lambda: real_ns() + time.shift * 10**9
"""
STEP = "setattr(time, 'shift', {})"


def test_the_wall_clock_steps(stage: Stage, world: str) -> None:
    one, two = stage.actor(world, WALL), stage.actor(world, WALL)
    tokens = [one.acquire("held", ttl=3.0)["token"]]
    one.ask("on_lost", key="held")
    steps = [(0, 0), (3600, 0), (3600, 3600), (-3600, 3600), (-3600, -3600), (0, 0)]
    for first, second in steps:
        one.ask("run", code=STEP.format(first))
        two.ask("run", code=STEP.format(second))
        for actor in (one, two):
            tokens.append(actor.acquire("x")["token"])
            assert actor.ask("release", key="x") is True
        assert two.attempt("held") is None
        one.ask("renew", key="held")
    assert tokens == sorted(set(tokens))
    seen = [3.0]

    def rose() -> bool:
        seen.append(one.ask("look", key="held")["remaining"])
        return seen[-1] > seen[-2]

    until(rose, "a renewal by itself")
    assert one.heard("lost") == []
    assert one.ask("release", key="held") is True


def test_a_manual_clock_ends_a_lease() -> None:
    clock = ManualClock()
    name = f"memory://{uuid.uuid4().hex}"
    with holdfast.connect(name, clock=clock) as one, holdfast.connect(name, clock=clock) as two:
        lease = one.lock("x", ttl=10.0, renew=False).acquire()
        lost: list[holdfast.Lease] = []
        lease.on_lost(lost.append)
        got: list[holdfast.Lease] = []
        rival = threading.Thread(target=lambda: got.append(two.lock("x").acquire()))
        rival.start()
        until(lambda: two.inspect("x").waiters, "the rival's waiting")
        clock.step_wall(3600.0)
        clock.advance(9.0)
        clock.step_wall(-7200.0)
        assert lease.held
        assert lost == []
        assert not got
        clock.advance(1.0)
        assert lease.held is False
        until(lambda: lost, "on_lost")
        until(lambda: got, "the rival's grant")
        rival.join()
        assert got[0].token > lease.token
        assert lease.release() is False
        assert got[0].held


async def test_a_manual_clock_ends_a_lease_in_asyncio() -> None:
    clock = ManualClock()
    name = f"memory://{uuid.uuid4().hex}"
    async with (
        holdfast.aio.connect(name, clock=clock) as one,
        holdfast.aio.connect(name, clock=clock) as two,
    ):
        lease = await one.lock("x", ttl=10.0, renew=False).acquire()
        lost: list[holdfast.aio.Lease] = []
        lease.on_lost(lost.append)
        rival = asyncio.create_task(two.lock("x").acquire())
        while not (await two.inspect("x")).waiters:  # noqa: ASYNC110 - nobody would set an event
            await asyncio.sleep(0)
        clock.step_wall(3600.0)
        clock.advance(9.0)
        clock.step_wall(-7200.0)
        assert lease.held
        assert lost == []
        assert not rival.done()
        clock.advance(1.0)
        assert lease.held is False
        granted = await rival
        await reached(lambda: lost)
        assert granted.token > lease.token
        assert await lease.release() is False
        assert granted.held


def test_the_keeper_follows_a_manual_clock() -> None:
    clock = ManualClock()
    with holdfast.connect(f"memory://{uuid.uuid4().hex}", clock=clock) as locks:
        lease = locks.lock("x", ttl=9.0).acquire()
        for _ in range(40):  # more than four times its TTL, half a second at a time
            clock.advance(0.5)
            # Renewed when a third of it has gone, or a little earlier.
            until(lambda: lease.remaining() > 9.0 * 2 / 3 - 0.2, "the renewal")
        assert lease.held
        assert lease.release() is True


async def test_the_keeper_follows_a_manual_clock_in_asyncio() -> None:
    clock = ManualClock()
    async with holdfast.aio.connect(f"memory://{uuid.uuid4().hex}", clock=clock) as locks:
        lease = await locks.lock("x", ttl=9.0).acquire()
        for _ in range(40):
            clock.advance(0.5)
            await reached(lambda: lease.remaining() > 9.0 * 2 / 3 - 0.2)
        assert lease.held
        assert await lease.release() is True
