"""A calm run: nothing fails. Messages take a little longer or shorter, clients stand still for a moment
now and then, and several tasks of each client want a few locks, give up, and are cancelled.

What leases and heartbeats would mend after a while must not happen at all then: no lease is lost, a
lock that is given back goes to whoever waits for it, and as soon as everybody has given back what they
had nothing is left, on the servers or in the clients. TTLs are long, so that nothing mends itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from .. import aio
from .._async.session import Session
from ..errors import LockTimeout
from .checker import Checker, Grant
from .loop import Process
from .network import Chances
from .world import World

NAMES = "xyz"
PAUSE = 0.05
"""Seconds for which a client stands still at the most."""
SLOW = 0.02
"""Seconds that a message takes at the most."""
SOON = 1.0
"""Seconds after which nothing may be left."""
HEARTBEATS = (0.3, 1.0)
"""Of those who wait, in seconds, where it can be said: some wait for several of them, some for none."""
GIVEN_UP = (0.0, 0.001, 0.01, 0.1)
"""After so many seconds somebody loses patience, or is cancelled."""
USES = (0.01, 0.1, 0.6)
"""For so many seconds a lock is held, at the most."""
LIMIT = 120.0


class Calm:
    """What is different in the plan of a store, in front of which this stands."""

    calm = True
    faults: Sequence[str] = ()
    clients: Sequence[int] = (1, 2, 3)
    tasks: Sequence[int] = (2, 4, 10)
    """Of each client."""
    locks: Sequence[int] = (1, 2, 3)
    rounds = 3
    """After each everybody waits, and it is looked whether something is left."""
    turns = 2
    ttls = (20.0, 30.0)
    at_once = 0.5
    """Seconds for which a lock may be free while somebody waits for it."""


class Unclean(Calm):
    """Who gives up leaves what it has asked for on the store."""

    def altered(self) -> AbstractContextManager[object]:
        return self._unclean(super().altered())  # type: ignore[misc]

    @contextmanager
    def _unclean(self, altered: AbstractContextManager[object]) -> Iterator[None]:
        async def nothing(session: Session, *ticket: object) -> None:
            return None

        before = Session.clean_up
        Session.clean_up = nothing  # type: ignore[assignment, method-assign]
        try:
            with altered:
                yield
        finally:
            Session.clean_up = before  # type: ignore[method-assign]


class Usage:
    """When each lock was last given back, and for how long it was free while somebody waited."""

    def __init__(self, checker: Checker, at_once: float) -> None:
        self._checker = checker
        self._at_once = at_once
        self._freed: dict[str, float] = {}
        self.longest = 0.0

    def taken(self, grant: Grant) -> None:
        free = grant.got - max(grant.asked, self._freed.get(grant.lock, 0.0))
        self.longest = max(self.longest, free)
        if free > self._at_once:
            self._checker.broken(f"{grant}, and had waited while it was free for {free:.3f} s")

    def freed(self, grant: Grant, now: float) -> None:
        grant.ended = self._freed[grant.lock] = now


class CalmWorld(World):
    async def _main(self) -> None:
        draw = self.loop.random
        plan: Any = self.plan
        usage = Usage(self.checker, plan.at_once)
        names = NAMES[: draw.choice(plan.locks)]
        members = [Member(self, client, usage, names) for client in self.clients]
        await self._all("connects", [member.open() for member in members])
        self.network.chances = Chances(slow=0.3 * draw.random(), slowest=SLOW)
        for number in range(plan.rounds):
            for client in self.clients:
                for _ in range(draw.randrange(3)):
                    self.pause_at(client, draw.randrange(200), PAUSE * draw.random())
            if not await self._all("takes locks", [member.play() for member in members]):
                return
            self.story.tell(
                "director", "all have given back what they had; free for %.3f s", usage.longest
            )
            await asyncio.sleep(SOON)
            self._nothing_is_left(f"{SOON:g} s after round {number + 1}")
            for member in members:
                for name in member.kept():
                    self.checker.broken(f"{member.process.name} still knows of {name!r}")
        await self._all("closes", [member.close() for member in members])
        self._nothing_is_left("after all have closed")

    async def _all(self, what: str, work: list[Coroutine[Any, Any, None]]) -> bool:
        """Each client does its own part, at the same time."""
        tasks = [client.spawn(one) for client, one in zip(self.clients, work, strict=True)]
        await asyncio.wait(tasks, timeout=LIMIT)
        good = True
        for client, task in zip(self.clients, tasks, strict=True):
            if not task.done() or task.exception() is not None:
                good = False
                error = repr(task.exception()) if task.done() else f"no end in {LIMIT:g} s"
                self.checker.broken(f"{client.name} {what}: {error}")
        return good

    def _nothing_is_left(self, when: str) -> None:
        for left in self.plan.leftovers(self.servers):
            self.checker.broken(f"left behind {when}: {left}")


class Member:
    """A client with several tasks."""

    def __init__(self, world: World, process: Process, usage: Usage, names: str) -> None:
        self._world = world
        self._loop = world.loop
        self._random = world.loop.random.random
        self._usage = usage
        self._names = names
        self.process = process
        self._locks: aio.Locks
        self._session: Session

    async def open(self) -> None:
        self._locks = aio.connect(self._world.plan.url, **self._world.plan.options)
        self._session = await self._locks._session()

    async def close(self) -> None:
        await self._locks.close()

    def kept(self) -> list[str]:
        """The attempts of which the engine still knows."""
        return [lease.name for lease in self._session.leases.values()]

    async def play(self) -> None:
        plan: Any = self._world.plan
        count = self._loop.random.choice(plan.tasks)
        tasks = [asyncio.create_task(self._turns(f"{self.process.name}.{i}")) for i in range(count)]
        await asyncio.wait(tasks)
        for task in tasks:
            task.result()

    async def _turns(self, who: str) -> None:
        draw, names = self._random, self._names
        shortest, longest = self._world.plan.ttls
        for _ in range(self._world.plan.turns):
            await asyncio.sleep(draw() * draw() * 0.1)
            name = names[int(draw() * len(names))]
            ttl = shortest + draw() * (longest - shortest)
            lock = self._locks.lock(name, ttl=ttl, fair=None if draw() < 0.8 else False)
            await self._turn(lock, who)

    async def _turn(self, lock: aio.Lock, who: str) -> None:
        draw, tell, loop = self._random, self._world.story.tell, self._loop
        asked, fate = loop.now, draw()
        patience = GIVEN_UP[int(draw() * len(GIVEN_UP))]
        tell(who, "asks for %r", lock.name)
        try:
            if fate < 0.6:
                lease: aio.Lease | None = await lock.acquire()
            elif fate < 0.8:
                lease = await lock.acquire(patience)
            else:
                lease = await self._cancelled(lock, patience)
        except LockTimeout:
            tell(who, "did not get %r in time", lock.name)
            return
        if lease is None:
            tell(who, "was cancelled")
            return
        tell(who, "holds %r as %d", lock.name, lease.token)
        checker = self._world.checker
        grant = checker.granted(lock.name, who, lease.token, asked, loop.now)
        self._usage.taken(grant)
        if draw() < 0.7:
            await asyncio.sleep(draw() * USES[int(draw() * len(USES))])
        if not lease.held:
            checker.broken(f"{grant}, and has lost it")
        checker.still_held(grant, loop.now)
        self._usage.freed(grant, loop.now)
        if not await lease.release():
            checker.broken(f"{grant}, and could not give it back")
        tell(who, "gave back %r", lock.name)

    async def _cancelled(self, lock: aio.Lock, patience: float) -> aio.Lease | None:
        task = asyncio.create_task(lock.acquire())
        await asyncio.wait({task}, timeout=patience)
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        return None if task.cancelled() else task.result()
