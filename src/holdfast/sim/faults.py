"""The faults of one run, drawn from its seed: their kinds, moments, machines and lengths."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from .chances import Chances

if TYPE_CHECKING:
    from .process import Process
    from .world import World

NETWORK, CUT, PAUSE, STALL, CRASH, KILL, DRIFT, STEP, RACE = KINDS = (
    "network",
    "cut",
    "pause",
    "stall",
    "crash",
    "kill",
    "drift",
    "step",
    "race",
)
"""The kinds of faults: requests and connections that go wrong; ways that are cut; clients paused at an
await; servers paused; servers that crash and restart; clients killed; clocks that run fast or slow;
wall clocks that are stepped; server clocks so fast that every lease soon ends."""
PAUSES = (0.02, 0.3, 1.5, 4.0)
"""Seconds that a pause lasts at the most; one of these is drawn."""


class Faults:
    """The faults of one run."""

    def __init__(self, world: World, kinds: Sequence[str], seconds: float) -> None:
        self._world = world
        self._random: Random = world.loop.random
        self._seconds = seconds
        # Some runs have many kinds of trouble, some only one: each hides what the others show.
        drawn = [kind for kind in kinds if self._random.random() < (0.15 if kind == RACE else 0.45)]
        if world.plan.all_at_once:
            drawn = list(kinds)
        self.kinds = drawn or [self._random.choice(list(kinds))]

    def begin(self) -> None:
        """Schedules all faults of the run."""
        self._world.trace.add("faults", "%s", ", ".join(self.kinds))
        for kind in self.kinds:
            getattr(self, f"_{kind}")()

    def _moments(self, most: int) -> list[float]:
        """Returns between one and `most` moments of the time in which faults happen."""
        count = 1 + int(self._random.random() * most)
        return [self._random.random() * self._seconds for _ in range(count)]

    def _later(self, at: float, action: object, *args: object) -> None:
        self._world.loop.after(at, self._world.director, action, *args)

    def _record(self, subject: str, text: str, *args: object) -> None:
        self._world.trace.add(subject, text, *args)

    def _network(self) -> None:
        draw = self._random.random
        share = 0.03 * draw()
        self._world.network.chances = Chances(
            slow=0.1 * draw(),
            slowest=self._random.choice((0.05, 0.5, 3.0)),
            lost=share * draw(),
            unanswered=share * draw(),
            overtaken=share * draw(),
            replayed=share * draw() * 3,
        )

    def _cut(self) -> None:
        world = self._world
        for at in self._moments(4):
            node = self._random.choice(world.servers).process.name
            clients = [client.name for client in world.clients]
            if self._random.random() < 0.6:
                clients = [self._random.choice(clients)]
            ways = [(c, node) for c in clients] + [(node, c) for c in clients]
            if self._random.random() < 0.6:  # in one direction only
                ways = ways[: len(clients)] if self._random.random() < 0.5 else ways[len(clients) :]
            length = self._random.choice((0.05, 0.5, 2.0, 6.0)) * self._random.random()
            self._later(at, world.cut, ways, length)

    def _pause(self) -> None:
        """Pauses clients at an await: after a number of their callbacks."""
        for _ in range(1 + int(self._random.random() * 4)):
            client = self._random.choice(self._world.clients)
            step = int(self._random.random() * self._random.choice((30, 120, 400)))
            self._world.pause_at(client, step, self._random.choice(PAUSES) * self._random.random())

    def _stall(self) -> None:
        for at in self._moments(3):
            server = self._random.choice(self._world.servers)
            length = self._random.choice(PAUSES) * self._random.random()
            self._later(at, self._world.pause, server.process, length)

    def _crash(self) -> None:
        for at in self._moments(self._world.plan.crashes):
            server = self._random.choice(self._world.servers)
            memory = self._random.choice(self._world.plan.memories)
            length = self._random.choice((0.01, 0.3, 2.0)) * self._random.random()
            save = self._random.random() * at
            self._later(save, server.save)
            self._later(at, self._crash_one, server, memory, length)

    def _crash_one(self, server: object, memory: str, length: float) -> None:
        self._world.crash(server, memory, length)

    def _kill(self) -> None:
        client = self._random.choice(self._world.clients)
        self._later(self._random.random() * self._seconds, self._world.kill, client)

    def _drift(self) -> None:
        """Lets each clock run at a rate of its own, within half of the margin that is promised."""
        for process in (*self._world.clients, *(s.process for s in self._world.servers)):
            process.clock.run_at(1.0 + (self._random.random() - 0.5) * 0.008)

    def _step(self) -> None:
        """Steps a server's wall clock, or makes it far too fast: more than any store promises."""
        for at in self._moments(2):
            server = self._random.choice(self._world.servers)
            self._later(at, self._step_one, server.process)

    def _race(self) -> None:
        """Makes all servers' clocks many times too fast: leases end long before their holders know."""
        self._world.note_fault("clock")
        for server in self._world.servers:
            rate = self._random.choice((5.0, 30.0, 100.0))
            self._record(server.process.name, "its clock runs %g times as fast", rate)
            server.process.clock.run_at(rate)

    def _step_one(self, process: Process) -> None:
        self._world.note_fault("clock")
        if self._random.random() < 0.7:
            seconds = self._random.choice((-40.0, -2.0, 1.0, 3.0, 40.0)) * self._random.random()
            self._record(process.name, "its clock is stepped by %+.3f s", seconds)
            process.clock.step(seconds)
        else:
            rate = self._random.choice((0.5, 0.9, 1.2, 3.0))
            self._record(process.name, "its clock runs %g times as fast", rate)
            process.clock.run_at(rate)
