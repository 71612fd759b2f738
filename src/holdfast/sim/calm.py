"""A calm run: nothing fails. Messages take a little longer or shorter, clients are paused for a moment
now and then, and several tasks of each client want a few locks, give up, and are cancelled.

Mistakes that leases and heartbeats would mend after a while must not happen at all then: no lease is
lost, a lock that is given back goes to a waiter at once, and as soon as all clients have given back
what they had, nothing is left on the servers or in the clients. TTLs are long, so that nothing mends
itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from .. import aio
from .._async.session import Session
from ..errors import LockTimeout
from .chances import Chances
from .checker import Checker, Grant
from .kinds import LOCK, READER, WRITER, Wanted, Wish, draw_kind, wish_for
from .process import Process
from .world import World

NAMES = "xyz"
PAUSE = 0.05
"""Seconds for which a client is paused at the most."""
SLOW = 0.02
"""Seconds that a message takes at the most."""
SOON = 1.0
"""Seconds after which nothing may be left."""
HEARTBEATS = (0.3, 1.0)
"""Heartbeats of waiters, in seconds, where a store has that option: some wait for several of them, some
for none."""
GIVEN_UP = (0.0, 0.001, 0.01, 0.1)
"""Seconds after which an attempt times out, or is cancelled."""
USES = (0.01, 0.1, 0.6)
"""Seconds for which a lock is held at the most."""
LIMIT = 120.0
"""Seconds after which a part of the run is taken to be stuck."""


class Calm:
    """The part of a plan that is different in calm runs; it stands before the plan of a store."""

    calm = True
    faults: Sequence[str] = ()
    clients: Sequence[int] = (1, 2, 3)
    tasks: Sequence[int] = (2, 4, 10)
    """Numbers of tasks of each client, of which one is drawn."""
    locks: Sequence[int] = (1, 2, 3)
    rounds = 3
    """Rounds of a run. After each one all clients rest, and the servers are searched for residue."""
    turns = 2
    ttls = (20.0, 30.0)
    at_once = 0.5
    """Seconds for which a lock may be free while an attempt waits for it."""


class Unclean(Calm):
    """A variant in which an attempt that is given up leaves on the store what it has asked for."""

    def altered(self) -> AbstractContextManager[object]:
        return self._unclean(super().altered())  # type: ignore[misc]

    @contextmanager
    def _unclean(self, altered: AbstractContextManager[object]) -> Iterator[None]:
        async def do_nothing(session: Session, *ticket: object) -> None:
            return None

        before = Session.clean_up
        Session.clean_up = do_nothing  # type: ignore[assignment, method-assign]
        try:
            with altered:
                yield
        finally:
            Session.clean_up = before  # type: ignore[method-assign]


class Usage:
    """The time at which each lock was last given back, and the longest wait for a free lock."""

    def __init__(self, checker: Checker, at_once: float) -> None:
        self._checker = checker
        self._at_once = at_once
        self._freed: dict[str, float] = {}
        self.longest = 0.0

    def take(self, grant: Grant) -> None:
        """Reports a grant that came too long after the lock was free.

        Where several hold at once, it cannot be told from here when there was room.
        """
        if grant.capacity > 1:
            return
        free = grant.granted_at - max(grant.asked_at, self._freed.get(grant.lock, 0.0))
        self.longest = max(self.longest, free)
        if free > self._at_once:
            self._checker.report(f"{grant}, and had waited while it was free for {free:.3f} s")

    def free(self, grant: Grant, now: float) -> None:
        """Notes that the lock is given back."""
        grant.ended_at = self._freed[grant.lock] = now


class CalmWorld(World):
    """All machines of one calm run."""

    async def _main(self) -> None:
        draw = self.loop.random
        plan: Any = self.plan
        usage = Usage(self.checker, plan.at_once)
        names = NAMES[: draw.choice(plan.locks)]
        actors = [CalmActor(self, client, usage, names) for client in self.clients]
        await self._run_all("connects", [actor.open() for actor in actors])
        kinds: dict[str, str] = {}
        for actor in actors:
            actor.draw_kinds(kinds)
        self.network.chances = Chances(slow=0.3 * draw.random(), slowest=SLOW)
        for number in range(plan.rounds):
            for client in self.clients:
                for _ in range(draw.randrange(3)):
                    self.pause_at(client, draw.randrange(200), PAUSE * draw.random())
            if not await self._run_all("takes locks", [actor.play() for actor in actors]):
                return
            self.trace.add(
                "director", "all have given back what they had; free for %.3f s", usage.longest
            )
            await asyncio.sleep(SOON)
            self._report_residue(f"{SOON:g} s after round {number + 1}")
            for actor in actors:
                for name in actor.known_attempts():
                    self.checker.report(f"{actor.process.name} still knows of {name!r}")
        await self._run_all("closes", [actor.close() for actor in actors])
        self._report_residue("after all have closed")

    async def _run_all(self, activity: str, work: list[Coroutine[Any, Any, None]]) -> bool:
        """Lets each client do its part at the same time; returns whether all succeeded."""
        tasks = [client.spawn(one) for client, one in zip(self.clients, work, strict=True)]
        await asyncio.wait(tasks, timeout=LIMIT)
        good = True
        for client, task in zip(self.clients, tasks, strict=True):
            if not task.done() or task.exception() is not None:
                good = False
                error = repr(task.exception()) if task.done() else f"no end in {LIMIT:g} s"
                self.checker.report(f"{client.name} {activity}: {error}")
        return good

    def _report_residue(self, when: str) -> None:
        for left in self.plan.residue(self.servers):
            self.checker.report(f"left behind {when}: {left}")


class CalmActor:
    """A client with several tasks."""

    def __init__(self, world: World, process: Process, usage: Usage, names: str) -> None:
        self._world = world
        self._loop = world.loop
        self._random = world.loop.random.random
        self._usage = usage
        self._names = names
        self._kinds: dict[str, str] = {}
        """By name: the kind of each lock."""
        self.process = process
        self._locks: aio.Locks
        self._session: Session

    async def open(self) -> None:
        self._locks = aio.connect(self._world.plan.url, **self._world.plan.options)
        self._session = await self._locks._session()

    def draw_kinds(self, kinds: dict[str, str]) -> None:
        """Draws the kinds of those locks that have none yet; all clients share them."""
        for name in self._names:
            if name not in kinds:
                kinds[name] = draw_kind(self._random) if self._world.mixed else LOCK
        self._kinds = kinds

    async def close(self) -> None:
        await self._locks.close()

    def known_attempts(self) -> list[str]:
        """Returns the locks of the attempts that the engine still knows of."""
        return [lease.name for lease in self._session.leases.values()]

    async def play(self) -> None:
        """Runs the client's tasks for one round."""
        plan: Any = self._world.plan
        count = self._loop.random.choice(plan.tasks)
        tasks = [asyncio.create_task(self._turns(f"{self.process.name}.{i}")) for i in range(count)]
        await asyncio.wait(tasks)
        for task in tasks:
            task.result()

    async def _turns(self, task: str) -> None:
        draw, names = self._random, self._names
        shortest, longest = self._world.plan.ttls
        for _ in range(self._world.plan.turns):
            await asyncio.sleep(draw() * draw() * 0.1)
            name = names[int(draw() * len(names))]
            ttl = shortest + draw() * (longest - shortest)
            fair = None if draw() < 0.8 else False
            kind = self._kinds[name]
            if kind in (READER, WRITER):
                kind = READER if draw() < 0.7 else WRITER
            await self._turn(wish_for(kind, name, self._locks, ttl, True, fair), task)

    async def _turn(self, wish: Wish, task: str) -> None:
        draw, record, loop = self._random, self._world.trace.add, self._loop
        asked_at, fate = loop.now, draw()
        patience = GIVEN_UP[int(draw() * len(GIVEN_UP))]
        record(task, "asks for %r", wish.name)
        try:
            if fate < 0.6:
                lease: aio.Lease | None = await wish.lock.acquire()
            elif fate < 0.8:
                lease = await wish.lock.acquire(patience)
            else:
                lease = await self._acquire_or_cancel(wish.lock, patience)
        except LockTimeout:
            record(task, "did not get %r in time", wish.name)
            return
        if lease is None:
            record(task, "was cancelled")
            return
        record(task, "holds %r as %d", wish.name, lease.token)
        checker = self._world.checker
        grant = checker.add_grant(wish, task, lease, asked_at, loop.now)
        self._usage.take(grant)
        if draw() < 0.7:
            await asyncio.sleep(draw() * USES[int(draw() * len(USES))])
        if not lease.held:
            checker.report(f"{grant}, and has lost it")
        checker.note_held(grant, loop.now)
        self._usage.free(grant, loop.now)
        if not await lease.release():
            checker.report(f"{grant}, and could not give it back")
        record(task, "gave back %r", wish.name)

    async def _acquire_or_cancel(self, lock: Wanted, patience: float) -> aio.Lease | None:
        """Acquires the lock, but cancels that after `patience` seconds."""
        task = asyncio.create_task(lock.acquire())
        await asyncio.wait({task}, timeout=patience)
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
        return None if task.cancelled() else task.result()
