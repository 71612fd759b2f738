"""Scenes with simulated nodes that would take too long with real ones."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Iterator, Sequence
from math import inf
from typing import Any
from weakref import ref

import pytest

from holdfast import aio
from holdfast.errors import BackendUnavailable
from holdfast.sim.__main__ import check_variant
from holdfast.sim.chances import Chances
from holdfast.sim.connection import SimConnection
from holdfast.sim.process import Process
from holdfast.sim.redis.server import RedisNode, Session
from holdfast.sim.redlock.base import CalmRedlock
from holdfast.sim.redlock.plan import plan
from holdfast.sim.runs import FULL_COLLECTION, collect_garbage, simulate
from holdfast.sim.world import World

SEEDS = 40
"""Runs of a scene; the one with seed 31 failed before."""


@pytest.fixture(autouse=True)
def hushed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Silences what `runs.hush` does, for one test."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    logging.disable()
    yield
    gc.enable()
    gc.collect()
    logging.disable(logging.NOTSET)


class Counting(RedisNode):
    asked = 0

    def _answer(self, words: list[bytes], session: Session, micros: int) -> bytes:
        self.asked += words[0] == b"INFO"
        return super()._answer(words, session, micros)


class Failing(RedisNode):
    def received(self, connection: SimConnection, data: bytes) -> None:
        raise RuntimeError("a mistake in the simulation")


class Failed(CalmRedlock):
    def node(self, process: Process) -> RedisNode:
        return Failing(process, {})


class TwoHaveRestarted(CalmRedlock):
    """Three nodes, two of which have restarted and are out for max_ttl, half a minute."""

    sizes: Sequence[int] = (3,)
    clients: Sequence[int] = (1,)

    def node(self, process: Process) -> RedisNode:
        return Counting(process)

    def start(self, world: World) -> list[Any]:
        nodes = super().start(world)
        for node in nodes[:2]:
            node.restart("nothing")
        return nodes


class Scene(World):
    seconds = 0.0

    async def _main(self) -> None:
        await self.clients[0].spawn(self._connect())

    async def _connect(self) -> None:
        began = self.loop.now
        locks = aio.connect(self.plan.url, **self.plan.options)
        with pytest.raises(BackendUnavailable, match="it has restarted"):
            await locks._session()
        self.seconds = self.loop.now - began
        await locks.close()


def test_a_node_that_is_out_for_long_is_not_asked_all_the_time() -> None:
    """Without a majority, every client used to ask such a node every 20 ms."""
    scene = Scene(TwoHaveRestarted(), 1)
    assert scene.run().violations == []
    assert scene.seconds >= 4.0
    for node in scene.servers[:2]:
        assert isinstance(node, Counting)
        assert 5 <= node.asked <= 40


class TwoClients(CalmRedlock):
    """Nothing fails, and a waiter's heartbeats are too far apart to help."""

    clients: Sequence[int] = (2,)

    def start(self, world: World) -> list[Any]:
        nodes = super().start(world)
        self.options["heartbeat"] = 30.0
        return nodes


class Release(World):
    """One client releases, and takes and releases the lock again if it can; the other waits."""

    released = inf
    granted = 0.0

    async def _main(self) -> None:
        self.network.chances = Chances(slow=0.5, slowest=0.005)
        held = asyncio.Event()
        tasks = [
            self.clients[0].spawn(self._hold(held)),
            self.clients[1].spawn(self._wait(held)),
        ]
        for task in tasks:
            await task

    async def _hold(self, held: asyncio.Event) -> None:
        async with aio.connect(self.plan.url, **self.plan.options) as locks:
            lease = await locks.lock("x").acquire()
            held.set()
            await asyncio.sleep(1.0)  # of virtual time: the other waits by then
            await lease.release()
            again = await locks.lock("x").try_acquire()
            self.released = self.loop.now
            if again is not None:
                await again.release()

    async def _wait(self, held: asyncio.Event) -> None:
        await held.wait()
        async with aio.connect(self.plan.url, **self.plan.options) as locks:
            lease = await locks.lock("x").acquire()
            self.granted = self.loop.now
            await lease.release()


def test_a_waiter_is_not_left_behind_by_a_release_that_is_still_on_its_way() -> None:
    """The node that wakes it is told first, or has a round of its own instead of the lease."""
    late = []
    for seed in range(SEEDS):
        scene = Release(TwoClients(), seed)
        assert scene.run().violations == []
        if scene.granted > scene.released + 1.0:
            late.append(seed)
    assert late == []


def test_a_mistake_in_the_simulation_is_not_taken_for_what_a_bad_variant_did(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert not check_variant("failed", lambda seed: Failed(), 1)
    assert "failed by itself: failed: a callback failed: RuntimeError" in capsys.readouterr().out


def test_nothing_keeps_a_run_that_is_over() -> None:
    """The Lua interpreter, which serves all runs, used to keep the last one until the next."""
    loop = ref(simulate(plan, 1).trace._loop)
    assert loop() is not None  # only a sweep finds that it is over
    for _ in range(2):  # some that were killed die only at the second try
        collect_garbage(FULL_COLLECTION)
    assert loop() is None


@pytest.mark.parametrize("seed", [503_691, 1_794_866_544_901])
def test_nodes_that_lost_their_data_while_one_was_coming_back_are_used_again(seed: int) -> None:
    """That one had a number for its new life, and refused for ever to start as if never used."""
    assert simulate(plan, seed).violations == []
