"""Scenes on the simulated ZooKeeper: a holder on a server that the others lose, and its rival.

The holder is to be told before its rival is granted the lock; without the rule in question it is not.
"""

from __future__ import annotations

import os
import random
from asyncio import Future, sleep
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from holdfast import aio, clock
from holdfast.sim.plan import Plan
from holdfast.sim.process import PROCESS
from holdfast.sim.world import World
from holdfast.sim.zookeeper.ensemble import TICK
from holdfast.sim.zookeeper.plan import ZooKeeperPlan
from holdfast.stores.zookeeper import session
from holdfast.stores.zookeeper.pulse import Pulse
from holdfast.stores.zookeeper.requests import get_data
from holdfast.stores.zookeeper.session import ClientSession

TTL = 1.0
REPORT = TICK / 2
"""Seconds between two reports of a server to its leader, which says then whom it has heard from."""


class Scene:
    """A holder on a follower, a rival on the leader, and what becomes of them."""

    def __init__(self) -> None:
        self.plan = ZooKeeperPlan()
        self.world = World(cast(Plan, self.plan), 3)
        self.holder, self.rival = self.world.clients[:2]
        self.ended: dict[str, float] = {}

    def run(self, trouble: Callable[[Scene, aio.Lease], Awaitable[None]]) -> None:
        with self.plan.altered():
            story = self.world.director.spawn(self._story(trouble))
            self.world.loop.run(story, self.world.director, 100_000, 60.0)
            story.result()

    async def _story(self, trouble: Callable[[Scene, aio.Lease], Awaitable[None]]) -> None:
        made: Future[aio.Lease] = self.world.loop.create_future()
        holder = self.holder.spawn(self._hold(made))
        lease = await made
        rival = self.rival.spawn(self._wait())
        await sleep(0.5)
        await trouble(self, lease)
        await holder
        await rival

    async def _hold(self, made: Future[aio.Lease]) -> None:
        locks = aio.connect("zookeeper://zk2:2181", tick=TICK)
        lease = await locks.lock("x", ttl=TTL).acquire()
        made.set_result(lease)
        await lease.wait_lost()
        self.ended["ours"] = self.world.loop.now
        await locks.close()

    async def _wait(self) -> None:
        locks = aio.connect("zookeeper://zk1:2181", tick=TICK)
        await locks.lock("x", ttl=TTL).acquire()
        self.ended["theirs"] = self.world.loop.now
        await locks.close()

    async def until_report(self, after: float) -> None:
        """Waits until `after` seconds after a report."""
        now = self.world.loop.now
        await sleep(REPORT - now % REPORT + after)

    def cut_off(self) -> None:
        self.plan.ensemble.cut_off(self.plan.ensemble.servers[1], 10.0)


async def one_write_after_a_pause(scene: Scene, lease: aio.Lease) -> None:
    """Pauses the holder; when it goes on, one write is answered, and no report follows."""
    await scene.until_report(0.2 * REPORT)
    await scene.holder.spawn(renew(lease))
    await scene.until_report(0.2 * REPORT)
    scene.world.pause(scene.holder, 8 * REPORT)
    await sleep(8 * REPORT)
    await sleep(0.6 * REPORT)
    scene.cut_off()


async def renew(lease: aio.Lease) -> None:
    await lease.renew()


async def cut_off(scene: Scene, lease: aio.Lease) -> None:
    scene.cut_off()


def from_any_write(self: ClientSession, sent_at: float) -> float:
    return sent_at


def from_the_latest(self: Pulse, greeted_at: float, interval: float) -> None:
    restart(self, greeted_at, interval)
    self._answered = Latest(self)


restart = Pulse.restart


class Latest(list[float]):
    """The times of answered writes, of which each counts at once."""

    def __init__(self, pulse: Pulse) -> None:
        self._pulse = pulse

    def append(self, sent_at: float) -> None:
        self._pulse.base = sent_at

    def clear(self) -> None:
        pass


def by_reading(path: str, data: bytes) -> Any:
    return get_data(path)


@pytest.mark.parametrize(
    ("trouble", "broken"),
    [
        (one_write_after_a_pause, None),
        (one_write_after_a_pause, (ClientSession, "vouch", from_any_write)),
        (one_write_after_a_pause, (Pulse, "restart", from_the_latest)),
        (cut_off, None),
        (cut_off, (session, "set_data", by_reading)),
    ],
    ids=["one write", "any write counts", "one pulse counts", "cut off", "reading counts"],
)
def test_a_holder_is_told_before_its_rival_is_granted(
    trouble: Callable[[Scene, aio.Lease], Awaitable[None]],
    broken: tuple[Any, str, Any] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()
    monkeypatch.setattr(clock, "source", lambda: PROCESS.get().clock)
    monkeypatch.setattr(os, "urandom", random.Random(1).randbytes)
    if broken is not None:
        monkeypatch.setattr(*broken)
    scene.run(trouble)
    assert (scene.ended["ours"] < scene.ended["theirs"]) == (broken is None), scene.ended
