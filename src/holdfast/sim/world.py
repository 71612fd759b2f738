"""One run: clients that take locks, servers, and faults; then everything heals, and is checked."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from random import Random
from typing import Any

from .. import clock
from ..stores.redis.wire import pipelined_connection
from .actor import Actor
from .checker import Checker
from .faults import Faults
from .loop import Stuck, VirtualLoop
from .network import Network
from .plan import Plan
from .process import PROCESS, Process
from .trace import Trace

MIXED = 0.4
"""The part of runs in which clients take locks of all kinds."""
MOST_STEPS = 60_000
LONGEST = 300.0
"""Virtual seconds after which a run is taken to be stuck."""
SMALL_CHUNK = 4096
"""Bytes that a connection reads at once. Clearing larger buffers, for so many connections, is slow."""
FAILURE = "a callback failed"
"""The words with which a violation begins that comes from a mistake in the simulation itself."""
UNENDED = "the run did not end"
"""The words with which a violation begins where a run did not come to its end."""


class Result:
    """The outcome of a run."""

    def __init__(self, seed: int, checker: Checker, trace: Trace, loop: VirtualLoop) -> None:
        self.seed = seed
        self.violations = checker.violations
        self.grants = len(checker.grants)
        self.stale_refused = checker.stale_refused
        self.steps = loop.steps
        self.trace = trace


class World:
    """All machines of one run, and the faults that befall them."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan = plan
        self.seed = seed
        self.loop = VirtualLoop(seed)
        self.trace = Trace(self.loop)
        self.network = Network(self.loop, self.trace)
        self.network.describe = plan.describe
        self.checker = Checker(self.trace)
        self.director = Process(self.loop, "director")
        self.register = Process(self.loop, "register")
        count = self.loop.random.choice(plan.clients)
        self.clients = [Process(self.loop, f"client{i}") for i in range(1, count + 1)]
        self.mixed = self.loop.random.random() < getattr(plan, "mixed", MIXED)
        """Whether clients take locks of all kinds, and renew them by hand; or plain ones only."""
        self.passes_on = False
        """Whether such clients also export leases and adopt them. A plan says so when it starts."""
        self.servers = plan.start(self)
        self._pauses: dict[Process, list[tuple[int, float]]] = {}
        self._healed = False

    def run(self) -> Result:
        """Runs until the end and returns what the checker found."""
        source, urandom, chunk = clock.source, os.urandom, pipelined_connection.CHUNK
        log = logging.getLogger("holdfast")
        log.addFilter(self._report_log)
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
                self.checker.report(f"{UNENDED}: {error}")
            for failure in reversed(self.loop.unhandled):  # the first cause comes first
                self.checker.violations.insert(0, f"{FAILURE}: {failure!r}")
            self.checker.compare_grants()
        finally:
            clock.source, os.urandom, pipelined_connection.CHUNK = source, urandom, chunk
            log.removeFilter(self._report_log)
            self.loop.close()
        return Result(self.seed, self.checker, self.trace, self.loop)

    def _report_log(self, record: logging.LogRecord) -> bool:
        """Reports an error that the engine logs as a violation, since it has no reason for one."""
        error = record.exc_info[1] if record.exc_info else None
        if record.levelno >= logging.ERROR and not isinstance(error, GeneratorExit):
            self.checker.report(f"logged: {record.getMessage()}: {error!r}")
        return False

    # The faults, called by `faults`.

    def note_fault(self, kind: str) -> None:
        """Takes back the promises that the store does not make after a fault of this kind."""
        if kind in self.plan.breaks_exclusion:
            self.checker.exclusion_promised = False
        if kind in self.plan.breaks_tokens:
            self.checker.order_promised = False

    def pause_at(self, process: Process, step: int, length: float) -> None:
        """Pauses `process` for `length` seconds, after `step` more callbacks."""
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
        self.pause(process, length)

    def pause(self, process: Process, length: float) -> None:
        if not self._healed and not process.paused and not process.dead:
            self.trace.add(process.name, "stands still for %.3f s", length)
            process.pause()
            self.loop.after(length, self.director, self._resume, process)

    def _resume(self, process: Process) -> None:
        if process.paused:
            self.trace.add(process.name, "goes on")
            process.resume()

    def cut(self, ways: Sequence[tuple[str, str]], length: float) -> None:
        """Lets nothing pass on these ways, each from one machine to another, for `length` seconds."""
        for source, target in ways:
            self.trace.add(source, "cannot reach %s for %.3f s", target, length)
            self.network.cut(source, target)
        self.loop.after(length, self.director, self._mend, ways)

    def _mend(self, ways: Sequence[tuple[str, str]]) -> None:
        for source, target in ways:
            self.network.mend(source, target)

    def crash(self, server: Any, memory: str, length: float) -> None:
        if server.up and not self._healed and self.plan.may_crash(self.servers, server):
            self.trace.add(server.process.name, "crashes, for %.3f s", length)
            server.crash()
            self.loop.after(length, self.director, self._restart, server, memory)

    def _restart(self, server: Any, memory: str) -> None:
        if not server.up:
            self.note_fault(memory)
            server.restart(memory)
            self.trace.add(server.process.name, "restarts with %s of its data", memory)

    def kill(self, client: Process) -> None:
        if not self._healed and not client.dead:
            self.trace.add(client.name, "is killed")
            client.kill()
            for server in self.servers:
                for connection in list(server.connections):
                    if connection.client is client:
                        connection.close()

    def heal(self) -> None:
        """Ends all faults, for good."""
        self._healed = True
        self.trace.add("director", "everything heals")
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

    # The course of a run.

    async def _main(self) -> None:
        faults = Faults(self, self.plan.faults, self.plan.trouble)
        ready = self.loop.create_future()
        actors: list[Actor] = []
        at_once = self.loop.random.random() < 0.2  # all are the first to use the store
        for client in self.clients:
            actors.append(Actor(self, client, ready))
            if not at_once:
                await actors[-1].opened
        for actor in actors:
            await actor.opened
        self.trace.add("director", "all are connected")
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
            await actor.finish(self.plan.recovery + set_back)
        await asyncio.sleep(self.plan.settle + set_back)
        for left in self.plan.residue(self.servers):
            self.checker.report(f"left behind: {left}")
