"""Labs with servers of their own: to be frozen, killed, emptied, traced, given a wrong clock."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar, Protocol

from ..faults import CLOCK, Fault
from ..servers.errors import ServerError
from ..servers.processes import children_of, freeze, has_ended, thaw
from ..servers.stepped import SteppedClock
from ..servers.tracing import Trace
from ..tiers import tier
from .lab import CannotBreak, Chance, Injury
from .links import LinkedLab

SYNCS = "fsync,fdatasync"
"""The calls by which a server has its data on the disk."""


class Clock(Protocol):
    """The wall clock of one server."""

    def step(self, seconds: int) -> None:
        """Has it be so many seconds off the real time from now on."""

    def remove(self) -> None:
        """Removes what it has on the disk."""


class Node:
    """One server process of a lab, with the few things that can be done to it."""

    def __init__(
        self,
        name: str,
        *,
        pid: Callable[[], int],
        start: Callable[[], None],
        kill: Callable[[], None],
        wipe: Callable[[], None],
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self._pid = pid
        self.start = start
        """Starts it again with the data it has, and waits until it serves."""
        self.kill = kill
        """Kills it as a crash would; harmless if it does not run."""
        self.wipe = wipe
        """Removes its data, while it does not run."""
        self.clock = clock
        self.stepped = False
        """Whether its clock was stepped: it may end by itself then, as MariaDB does, and later too."""

    def pids(self) -> list[int]:
        """Returns its process, and those that this has started; none if it does not run."""
        try:
            pid = self._pid()
        except ServerError:
            return []
        return [pid, *children_of(pid)]

    @property
    def lives(self) -> bool:
        """Whether the process is there, and has not ended by itself."""
        return any(not has_ended(pid) for pid in self.pids()[:1])


def clock_for_node() -> SteppedClock | None:
    """Returns a clock for a server, if this machine can make one."""
    return SteppedClock() if tier(CLOCK).available else None


def environment_of(clock: SteppedClock | None) -> dict[str, str]:
    return clock.environment if clock is not None else {}


class NodeLab(LinkedLab):
    """A lab with throw-away servers."""

    syncs = SYNCS
    """The system calls that are slow, or fail, if the disk is."""
    possible: ClassVar[tuple[str, ...]] = (
        "pause",
        "holder-crash",
        "partition",
        "cut",
        "loss",
        "delay",
        "lost-reply",
        "reset",
        "store-pause",
        "store-crash",
        "amnesia",
        "clock",
        "slow-disk",
        "disk-error",
        "kill-at-call",
    )

    @property
    @abstractmethod
    def servers(self) -> list[Node]:
        """The nodes, in the order of `nodes`."""

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.servers)

    def choose(self, chance: Chance) -> Node:
        """Returns the node to hit."""
        living = [node for node in self.servers if node.lives]
        if not living:
            raise ServerError(f"{', '.join(self.nodes)} ended without being told to")
        return chance.random.choice(living)

    def node_to_cut(self, chance: Chance) -> str:
        return self.choose(chance).name

    def _store_pause(self, fault: Fault, chance: Chance) -> Injury:
        node = self.choose(chance)
        pids = node.pids()
        for pid in pids:
            with suppress(ProcessLookupError):
                freeze(pid)

        def resume() -> None:
            for pid in reversed(pids):
                thaw(pid)

        return Injury(fault.name, [node.name], f"{node.name} stands still", resume)

    def _store_crash(self, fault: Fault, chance: Chance) -> Injury:
        node = self.choose(chance)
        node.kill()
        return Injury(fault.name, [node.name], f"{node.name} was killed", node.start)

    def _amnesia(self, fault: Fault, chance: Chance) -> Injury:
        node = self.choose(chance)
        node.kill()
        node.wipe()
        text = f"{node.name} was killed, and comes back without its data"
        return Injury(fault.name, [node.name], text, node.start)

    def _heal_injuries(self) -> None:
        super()._heal_injuries()
        self._start_fallen()

    def _start_fallen(self) -> None:
        """Starts the nodes that ended by themselves after their clock was stepped."""
        for node in self.servers:
            if node.stepped and not node.lives:
                node.start()

    def _clock(self, fault: Fault, chance: Chance) -> Injury:
        self._start_fallen()
        node = self.choose(chance)
        clock = node.clock
        if clock is None:
            raise CannotBreak(f"{node.name} has no clock that can be stepped")
        size = int(chance.ttl * 2) + chance.random.randint(1, 30)
        step = chance.random.choice((size, -size))
        try:
            clock.step(step)
        except (ServerError, OSError) as error:
            raise CannotBreak(f"the clock of {node.name} cannot be stepped: {error}") from None
        node.stepped = True

        def set_right() -> None:
            try:
                clock.step(0)
            except (ServerError, OSError):
                if node.lives:
                    raise
            self._start_fallen()

        text = f"the clock of {node.name} is stepped by {step:+d} s"
        return Injury(fault.name, [node.name], text, set_right)

    def _slow_disk(self, fault: Fault, chance: Chance) -> Injury:
        node = self.choose(chance)
        seconds = chance.ttl * chance.random.uniform(0.1, 0.5)
        trace = self._trace(node, f"{self.syncs}:delay_enter={int(seconds * 1e6)}")
        text = f"each sync of {node.name}'s disk takes {seconds:.1f} s"
        return Injury(fault.name, [node.name], text, trace.stop, count=trace.count)

    def _disk_error(self, fault: Fault, chance: Chance) -> Injury:
        node = self.choose(chance)
        trace = self._trace(node, f"{self.syncs}:error=EIO")

        def mend() -> None:
            trace.stop()
            node.kill()  # some end by themselves, sooner or later
            node.start()

        text = f"the syncs of {node.name}'s disk fail"
        return Injury(fault.name, [node.name], text, mend, count=trace.count)

    def _trace(self, node: Node, injection: str) -> Trace:
        try:
            return Trace(node.pids(), injection)
        except ServerError as error:
            raise CannotBreak(str(error)) from None

    def stop_clocks(self) -> None:
        for node in self.servers:
            if node.clock is not None:
                node.clock.remove()
