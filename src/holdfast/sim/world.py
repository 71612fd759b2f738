"""One run: machines, clients that take locks, faults; then everything heals, and is checked."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from random import Random
from typing import Any, Protocol

from .. import aio, clock
from ..errors import LockError
from ..stores.redis.wire import pipelined_connection
from .checker import Checker, Grant
from .faults import Faults
from .loop import PROCESS, Process, Stuck, VirtualLoop
from .network import Network, Server
from .trace import Story

MOST_STEPS = 60_000
LONGEST = 300.0
SMALL_CHUNK = 4096
"""Bytes that a connection reads at once. To clear larger buffers for each of so many takes its time."""
FAILURE = "a callback failed"
EXPECTED = (LockError, TimeoutError)
"""What an acquisition may end with, while there are faults."""


class SimServer(Server, Protocol):
    """A simulated server that can crash."""

    def crash(self) -> None: ...
    def save(self) -> None: ...
    def restart(self, memory: str) -> None: ...


class Plan(Protocol):
    """What a store brings to be simulated; see docs/simulator.md."""

    calm: bool
    """Whether it is for `calm`, where nothing fails; most of what follows does not matter then."""
    url: str
    options: dict[str, Any]
    faults: Sequence[str]
    all_at_once: bool
    """Whether each run has all of these faults, and not some of them."""
    memories: Sequence[str]
    """With what a crashed server may come back: all, snapshot, nothing."""
    crashes: int
    breaks_exclusion: frozenset[str]
    """Faults after which exclusion is not promised: clock, snapshot, nothing."""
    breaks_tokens: frozenset[str]
    recovery: float
    """Seconds in which everybody gets the lock again after everything has healed. What a server's clock
    was set back in the run comes on top: for so much longer its keys live."""
    settle: float
    """Seconds after which nothing may be left of a lock that nobody holds; and the same."""
    trouble: float
    """Seconds in which faults happen."""
    clients: Sequence[int]
    """How many there may be."""
    turns: int
    """How often each client takes a lock."""
    pace: float
    """How long they hold it, and rest: a factor."""
    unsettled: int
    """How often `unsettle` is called."""
    ttls: tuple[float, float]
    """Of the locks that are taken, from and to."""
    heedless: bool
    """Clients that do not look whether they still hold the lock, and a resource without a fence."""

    def start(self, world: World) -> list[SimServer]: ...
    def unsettle(self, world: World) -> None:
        """Called at a few moments of trouble, for what only this store can have."""
        ...

    def may_crash(self, servers: Sequence[Any], server: Any) -> bool: ...
    def altered(self) -> AbstractContextManager[object]:
        """For a variant: the code is changed while this is entered."""
        ...

    def leftovers(self, servers: Sequence[Any]) -> list[str]: ...
    def describe(self, data: bytes) -> object: ...


class Result:
    def __init__(self, seed: int, checker: Checker, story: Story, loop: VirtualLoop) -> None:
        self.seed = seed
        self.violations = checker.violations
        self.grants = len(checker.grants)
        self.stale_refused = checker.stale_refused
        self.steps = loop.steps
        self.story = story


class World:
    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan = plan
        self.seed = seed
        self.loop = VirtualLoop(seed)
        self.story = Story(self.loop)
        self.network = Network(self.loop, self.story)
        self.network.describe = plan.describe
        self.checker = Checker(self.story)
        self.director = Process(self.loop, "director")
        self.register = Process(self.loop, "register")
        count = self.loop.random.choice(plan.clients)
        self.clients = [Process(self.loop, f"client{i}") for i in range(1, count + 1)]
        self.servers = plan.start(self)
        self._pauses: dict[Process, list[tuple[int, float]]] = {}
        self._healed = False

    def run(self) -> Result:
        source, urandom, chunk = clock.source, os.urandom, pipelined_connection.CHUNK
        log = logging.getLogger("holdfast")
        log.addFilter(self._logged)
        clock.source = lambda: PROCESS.get().clock
        # Owner ids and the lengths of pauses come from here: a run must be the same each time.
        os.urandom = Random(~self.seed).randbytes
        pipelined_connection.CHUNK = SMALL_CHUNK
        try:
            self.loop.on_stop = self._on_stop
            main = self.director.spawn(self._main())
            try:
                with self.plan.altered():
                    self.loop.run(main, self.director, MOST_STEPS, LONGEST)
                main.result()
            except Stuck as error:
                self.checker.broken(f"the run did not end: {error}")
            for failure in reversed(self.loop.unhandled):  # what it came of comes first
                self.checker.violations.insert(0, f"{FAILURE}: {failure!r}")
            self.checker.judge()
        finally:
            clock.source, os.urandom, pipelined_connection.CHUNK = source, urandom, chunk
            log.removeFilter(self._logged)
            self.loop.close()
        return Result(self.seed, self.checker, self.story, self.loop)

    def _logged(self, record: logging.LogRecord) -> bool:
        """What the engine would complain of, it must not have to complain of."""
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, GeneratorExit):
            self.checker.broken(f"logged: {record.getMessage()}: {error!r}")
        return False

    # The faults, as `faults` asks for them.

    def fault(self, kind: str) -> None:
        if kind in self.plan.breaks_exclusion:
            self.checker.excluded = False
        if kind in self.plan.breaks_tokens:
            self.checker.ordered = False

    def pause_at(self, process: Process, step: int, length: float) -> None:
        """After so many callbacks from now."""
        planned = self._pauses.setdefault(process, [])
        planned.append((process.steps + step + 1, length))
        planned.sort(reverse=True)
        process.stop_at = planned[-1][0]

    def _on_stop(self, process: Process) -> None:
        planned = self._pauses[process]
        _, length = planned.pop()
        while planned and planned[-1][0] <= process.steps:
            planned.pop()
        process.stop_at = planned[-1][0] if planned else -1
        self.stand_still(process, length)

    def stand_still(self, process: Process, length: float) -> None:
        if not self._healed and not process.paused and not process.dead:
            self.story.tell(process.name, "stands still for %.3f s", length)
            process.pause()
            self.loop.after(length, self.director, self._go_on, process)

    def _go_on(self, process: Process) -> None:
        if process.paused:
            self.story.tell(process.name, "goes on")
            process.resume()

    def cut(self, ways: Sequence[tuple[str, str]], length: float) -> None:
        """Nothing gets from the one to the other of each."""
        for one, other in ways:
            self.story.tell(one, "cannot reach %s for %.3f s", other, length)
            self.network.cut(one, other)
        self.loop.after(length, self.director, self._mend, ways)

    def _mend(self, ways: Sequence[tuple[str, str]]) -> None:
        for one, other in ways:
            self.network.mend(one, other)

    def crash(self, server: Any, memory: str, length: float) -> None:
        if server.up and not self._healed and self.plan.may_crash(self.servers, server):
            self.story.tell(server.process.name, "crashes, for %.3f s", length)
            server.crash()
            self.loop.after(length, self.director, self._restart, server, memory)

    def _restart(self, server: Any, memory: str) -> None:
        if not server.up:
            self.fault(memory)
            server.restart(memory)
            self.story.tell(server.process.name, "restarts with %s of its data", memory)

    def kill(self, client: Process) -> None:
        if not self._healed and not client.dead:
            self.story.tell(client.name, "is killed")
            client.kill()
            for server in self.servers:
                for link in list(server.links):  # type: ignore[attr-defined]
                    if link.client is client:
                        link.close()

    def heal(self) -> None:
        self._healed = True
        self.story.tell("director", "everything heals")
        self.network.heal()
        for server in self.servers:
            server.process.resume()
            server.process.clock.run_at(1.0)
            if not server.up:
                self._restart(server, self.plan.memories[0])
        for client in self.clients:
            client.resume()
            client.clock.run_at(1.0)

    def _unsettle(self) -> None:
        if not self._healed:
            self.plan.unsettle(self)

    # What happens.

    async def _main(self) -> None:
        faults = Faults(self, self.plan.faults, self.plan.trouble)
        ready = self.loop.create_future()
        actors: list[Actor] = []
        together = self.loop.random.random() < 0.2  # all who are the first to use a store
        for client in self.clients:
            actors.append(Actor(self, client, ready))
            if not together:
                await actors[-1].opened
        for actor in actors:
            await actor.opened
        self.story.tell("director", "all are connected")
        faults.begin()
        for _ in range(self.plan.unsettled):
            self.loop.after(
                self.loop.random.random() * self.plan.trouble, self.director, self._unsettle
            )
        ready.set_result(None)
        await asyncio.sleep(self.plan.trouble)
        self.heal()
        set_back = max(server.process.clock.set_back for server in self.servers)
        alive = [actor for actor in actors if not actor.process.dead]
        for actor in alive:
            await actor.finished(self.plan.recovery + set_back)
        await asyncio.sleep(self.plan.settle + set_back)
        for left in self.plan.leftovers(self.servers):
            self.checker.broken(f"left behind: {left}")


class Actor:
    """A client: it takes locks, uses them, gives them back, or is cut off at it."""

    def __init__(self, world: World, process: Process, ready: asyncio.Future[None]) -> None:
        self._world = world
        self._loop = world.loop
        self._random = world.loop.random.random
        self._checker = world.checker
        self._ready = ready
        self.process = process
        self.opened = world.loop.create_future()
        self._healed = world.loop.create_future()
        self._task = process.spawn(self._run())

    def _tell(self, what: str, *args: object) -> None:
        self._world.story.tell(self.process.name, what, *args)

    async def finished(self, limit: float) -> None:
        """After everything has healed: it gets the lock once more, and closes."""
        if not self._healed.done():
            self._healed.set_result(None)
        done, _ = await asyncio.wait({self._task}, timeout=limit)
        if not done:
            self._checker.broken(
                f"{self.process.name} made no progress in {limit:g} s after healing"
            )
        elif self._task.exception() is not None:
            self._checker.broken(f"{self.process.name} ended with {self._task.exception()!r}")

    async def _run(self) -> None:
        locks = aio.connect(self._world.plan.url, **self._world.plan.options)
        while not await self._opens(locks):
            pass
        self.opened.set_result(None)
        await self._ready
        for _ in range(self._world.plan.turns):
            if self._healed.done():
                break
            await asyncio.sleep(self._random() * 1.2 * self._world.plan.pace)
            await self._turn(locks)
        await self._healed
        while not await self._gets_it_again(locks):
            pass
        await locks.close()

    async def _opens(self, locks: aio.Locks) -> bool:
        try:
            await locks._session()
        except EXPECTED as error:  # where there are faults from the start
            self._tell("cannot connect: %s", error)
            return False
        return True

    async def _gets_it_again(self, locks: aio.Locks) -> bool:
        try:
            lease = await locks.lock("x", ttl=self._world.plan.ttls[1]).acquire()
            self._tell("gets 'x' as %d after healing", lease.token)
            await lease.release()
        except EXPECTED as error:
            self._tell("did not get it after healing: %s", error)
            await asyncio.sleep(0.1 + self._random() * 0.1)
            return False
        return True

    async def _turn(self, locks: aio.Locks) -> None:
        draw = self._random
        name = "x" if draw() < 0.75 else "y"
        shortest, longest = self._world.plan.ttls
        ttl = shortest + draw() * (longest - shortest)
        asked = self._loop.now
        renew = draw() < 0.6
        lock = locks.lock(name, ttl=ttl, renew=renew)
        timeout = (None, 0.0, 1.0, 4.0)[int(draw() * 4)]
        self._tell("asks for %r", name)
        try:
            if draw() < 0.15:
                obtained = await self._cancelled(lock, timeout)
                if obtained is None:
                    return
                lease, got = obtained
            else:
                lease, got = await self._acquired(lock, timeout)
        except EXPECTED as error:
            self._tell("does not get %r: %s", name, error)
            return
        grant = self._checker.granted(name, self.process.name, lease.token, asked, got)
        self._tell("holds %r as %d", name, lease.token)
        await self._use(lease, grant)
        if renew or draw() < 0.7:
            try:
                freed = await lease.release()
                self._tell("released %r: %s", name, freed)
            except EXPECTED as error:
                self._tell("could not release %r: %s", name, error)
        else:
            self._tell("lets %r run out", name)
            await lease.wait_lost()
        if not lease.held:
            grant.ended = self._loop.now

    async def _acquired(self, lock: aio.Lock, timeout: float | None) -> tuple[aio.Lease, float]:
        """With the moment of the grant: between tasks its client may stand still for long."""
        lease = await lock.acquire(timeout)
        return lease, self._loop.now

    async def _cancelled(
        self, lock: aio.Lock, timeout: float | None
    ) -> tuple[aio.Lease, float] | None:
        """An acquisition that somebody may cancel, at whatever await it is by then."""
        task = asyncio.get_running_loop().create_task(self._acquired(lock, timeout))
        await asyncio.wait({task}, timeout=(0.0, 0.001, 0.5)[int(self._random() * 3)])
        if not task.done():
            self._tell("is cancelled")
            task.cancel()
            await asyncio.wait({task})
        return None if task.cancelled() else task.result()

    async def _use(self, lease: aio.Lease, grant: Grant) -> None:
        draw = self._random
        heedless = self._world.plan.heedless
        for _ in range(1 + int(draw() * 4)):
            if lease.held:
                self._checker.still_held(grant, self._loop.now)
            elif not heedless:
                self._tell("has lost %r", grant.lock)
                break
            # Between the look and the write there is always a moment; sometimes a long one.
            late = draw() * (0.002 if draw() < 0.8 else 2.0)
            self._loop.after(late, self._world.register, self._checker.write, grant, not heedless)
            await asyncio.sleep(draw() * 0.5 * self._world.plan.pace)
        if lease.held:
            self._checker.still_held(grant, self._loop.now)


Maker = Callable[[int], Plan]
"""Makes the plan for a seed."""
