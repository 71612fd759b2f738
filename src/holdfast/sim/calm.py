"""A calm run: nothing fails. Messages take a little longer or shorter, clients stand still for a moment
now and then, and several tasks of each client want a few locks, give up, and are cancelled.

What leases and heartbeats would mend after a while must then not happen at all: no lease is lost, a lock
that is given back goes to whoever waits for it, and as soon as everybody has given back what they had
nothing is left, on the servers or in the clients. The TTLs are long, so that none of it mends itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
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
AT_ONCE = 3.0
"""Seconds for which a lock may be free while somebody waits for it: more than a heartbeat and a claim
window, far less than a TTL."""
GIVEN_UP = (0.0, 0.001, 0.01, 0.1)
"""After so many seconds somebody loses patience, or is cancelled."""
LIMIT = 120.0


class Calm:
    """What is different in the plan of a store, in front of which this stands."""

    calm = True
    faults: Sequence[str] = ()
    clients: Sequence[int] = (1, 2, 3)
    tasks: Sequence[int] = (2, 3, 4)
    """Of each client."""
    locks: Sequence[int] = (1, 1, 2, 3)
    turns = 5
    ttls = (20.0, 30.0)


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
    """When each lock was last given back, and how long those who waited for it had to wait after that."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._freed: dict[str, float] = {}
        self.longest = 0.0

    def taken(self, grant: Grant) -> None:
        free = grant.got - max(grant.asked, self._freed.get(grant.lock, 0.0))
        self.longest = max(self.longest, free)
        if free > AT_ONCE:
            self._checker.broken(f"{grant}, and had waited while it was free for {free:.3f} s")

    def freed(self, grant: Grant, now: float) -> None:
        grant.ended = self._freed[grant.lock] = now


class CalmWorld(World):
    async def _main(self) -> None:
        draw = self.loop.random
        usage = Usage(self.checker)
        ready = self.loop.create_future()
        members = [Member(self, client, usage, ready) for client in self.clients]
        for member in members:
            await member.opened
        self.network.chances = Chances(slow=0.3 * draw.random(), slowest=SLOW)
        for client in self.clients:
            for _ in range(draw.randrange(4)):
                self.pause_at(client, draw.randrange(400), PAUSE * draw.random())
        ready.set_result(None)
        for member in members:
            done, _ = await asyncio.wait({member.task}, timeout=LIMIT)
            if not done:
                self.checker.broken(f"{member.process.name} was not done in {LIMIT:g} s")
                return
            member.task.result()
        self.story.tell(
            "director", "all have given back what they had; free for %.3f s", usage.longest
        )
        await asyncio.sleep(SOON)
        self._nothing_is_left(f"{SOON:g} s after all were done")
        for member in members:
            kept = member.kept()
            if kept:
                self.checker.broken(f"{member.process.name} still knows of {kept}")
        for member in members:
            member.close.set_result(None)
            await member.closed
        self._nothing_is_left("after all have closed")

    def _nothing_is_left(self, when: str) -> None:
        for left in self.plan.leftovers(self.servers):
            self.checker.broken(f"left behind {when}: {left}")


class Member:
    """A client with several tasks."""

    def __init__(
        self, world: World, process: Process, usage: Usage, ready: asyncio.Future[None]
    ) -> None:
        self._world = world
        self._loop = world.loop
        self._random = world.loop.random.random
        self._usage = usage
        self._ready = ready
        self.process = process
        self.opened = world.loop.create_future()
        self.close = world.loop.create_future()
        self.closed = world.loop.create_future()
        self.task = process.spawn(self._run())
        self._session: Any = None

    def kept(self) -> list[str]:
        """The attempts of which the engine still knows."""
        return [lease.name for lease in self._session.leases.values()]

    async def _run(self) -> None:
        plan: Any = self._world.plan
        locks = aio.connect(plan.url, **plan.options)
        self._session = await locks._session()
        self.opened.set_result(None)
        await self._ready
        draw = self._loop.random
        names = NAMES[: draw.choice(plan.locks)]
        count = draw.choice(plan.tasks)
        tasks = [
            asyncio.create_task(self._turns(locks, f"{self.process.name}.{i}", names))
            for i in range(count)
        ]
        await asyncio.wait(tasks)
        self.process.spawn(self._closes(locks))
        for task in tasks:
            task.result()

    async def _closes(self, locks: aio.Locks) -> None:
        await self.close
        await locks.close()
        self.closed.set_result(None)

    async def _turns(self, locks: aio.Locks, who: str, names: str) -> None:
        draw = self._random
        shortest, longest = self._world.plan.ttls
        for _ in range(self._world.plan.turns):
            await asyncio.sleep(draw() * draw() * 0.1)
            name = names[int(draw() * len(names))]
            lock = locks.lock(name, ttl=shortest + draw() * (longest - shortest))
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
        if draw() < 0.8:
            await asyncio.sleep(draw() * draw() * 0.1)
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
