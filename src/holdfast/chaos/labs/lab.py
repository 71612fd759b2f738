"""A lab: one store to be broken, with everything that stands between it and the workers.

The conductor of a run uses it so:

    with open_lab("redis") as lab:
        worker = start(                     # of holdfast.chaos.servers.process: ends with the conductor
            [*lab.inside("w1"), sys.executable, "-m", …, lab.url_for("w1")],
            environment=lab.environment_for("w1"),
        )
        injury = lab.apply("partition", Chance(random, ttl, workers, holder))
        …                                   # for about lab.duration(injury.fault, chance) seconds
        injury.heal()                       # it is over when this returns
        lab.heal()                          # whatever is still broken is mended: every node serves
        …                                   # workers have ended, leases have run out
        lab.ghosts(namespace)               # what is left on the store, in words
"""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Protocol, Self

from ...guarantees import Guarantees
from ..faults import FAULTS, NAMESPACES, Fault
from ..servers.errors import ServerError
from ..servers.processes import await_ended, freeze, has_ended, thaw
from ..servers.rooms import Rooms
from ..servers.tracing import Trace

DYING = 0.3
"""Seconds that a process has to end in, if it was hit."""


class Worker(Protocol):
    """A process that takes the lock, as far as a lab needs to know it."""

    @property
    def name(self) -> str:
        """Its lane: the name that was given to `url_for`."""

    @property
    def pid(self) -> int:
        """The process; another one after it was killed and started again."""


class Chance(NamedTuple):
    """A moment at which a fault is to happen. The lab draws whom it hits from `random`."""

    random: Random
    ttl: float
    """The TTL of the locks of this run, in seconds."""
    workers: Sequence[Worker]
    """The workers that live and are not hit already."""
    holder: Worker | None = None
    """The worker that holds the lock now, as far as the conductor knows: it is hit first."""

    @property
    def victim(self) -> Worker:
        """The holder, if there is one, else any worker."""
        return self.holder if self.holder is not None else self.random.choice(self.workers)


class Injury:
    """A fault that was done. `heal` mends it, waits until that is done, and may be called again."""

    def __init__(
        self,
        fault: str,
        lanes: Sequence[str],
        text: str,
        heal: Callable[[], None] = lambda: None,
        killed: Sequence[str] = (),
        count: Callable[[], int] | None = None,
    ) -> None:
        self.fault = fault
        """The name of the fault."""
        self.lanes = tuple(lanes)
        """The workers and nodes that were hit: the lanes on which it is drawn."""
        self.text = text
        """The words that tell what was done."""
        self.killed = tuple(killed)
        """The workers that are dead of it, or will be when it is healed: to be started again."""
        self.count = count
        """Returns how many calls, requests or packets were hit, once it is healed at the latest.

        None: it hits whatever the moment is.
        """
        self.missed = False
        """Whether it was healed before it had hit anything, so that nothing was done at all."""
        self._heal: Callable[[], None] | None = heal

    @property
    def healed(self) -> bool:
        return self._heal is None

    def heal(self) -> None:
        heal, self._heal = self._heal, None
        if heal is not None:
            heal()
            self.missed = self.count is not None and not self.count()
            if self.missed:
                self.killed = ()


class CannotBreak(Exception):
    """Raised by `apply` if the fault cannot be done at this moment; the text says why."""


class Lab(ABC):
    """One store, running, and the ways to break it. Nothing is left once `stop` has returned."""

    name: ClassVar[str]
    """The name that `--backend` takes."""
    title: ClassVar[str]
    """The name for people, such as "Redis with Sentinel"."""
    programs: ClassVar[tuple[str, ...]] = ()
    """The programs that have to be installed, each with its Debian package: `program:package`."""
    modules: ClassVar[tuple[str, ...]] = ()
    """The Python modules that have to be there: the driver of the store."""
    extra: ClassVar[str] = ""
    """The extra of holdfast that brings them."""
    calls: ClassVar[str] = "?sendto,?sendmsg,?recvfrom,?recvmsg,write,read"
    """The system calls by which a worker talks to the store, as strace names them."""
    possible: ClassVar[tuple[str, ...]] = ()
    """The faults that a lab of this kind can do where every tier is available."""

    def __init__(self, rooms: Rooms | None = None) -> None:
        """Starts the store; in `rooms`, if there are any, which end with it."""
        self._injuries: list[Injury] = []
        self.rooms = rooms

    @classmethod
    def folders(cls) -> list[str]:
        """Returns where else to look for its programs; Debian keeps some of them off the path."""
        return []

    @property
    @abstractmethod
    def guarantees(self) -> Guarantees:
        """The guarantees of the store as the workers use it, from the store's own data."""

    @property
    @abstractmethod
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes, one lane each; the same throughout the run."""

    @classmethod
    def tier_of(cls, fault: str) -> str:
        """Returns the tier without which a lab of this kind cannot do the fault."""
        return FAULTS[fault].tier

    @property
    def faults(self) -> tuple[str, ...]:
        """The faults that this lab can do on this machine, in the order of `FAULTS`."""
        return tuple(
            name for name in FAULTS if name in self.possible and self.why_not(name) is None
        )

    def why_not(self, fault: str) -> str | None:
        """Returns why this lab cannot do the fault on this machine; None if it can."""
        from ..tiers import tier

        if fault not in self.possible:
            return f"{self.title} has nothing that {FAULTS[fault].title} could hit"
        needed = tier(self.tier_of(fault))
        if not needed.available:
            return needed.why
        if needed.name == NAMESPACES and self.rooms is None:
            return "servers and workers were not started in rooms of their own"
        return None

    @property
    def options(self) -> dict[str, Any]:
        """The options that workers have to give to `connect()` beside the URL, as JSON can carry."""
        return {}

    @property
    def shortest_ttl(self) -> float:
        """The shortest TTL, in seconds, that says anything about this store."""
        return 1.0

    @abstractmethod
    def url_for(self, worker: str) -> str:
        """Returns the URL by which this worker, and no other one, connects."""

    @property
    @abstractmethod
    def direct_url(self) -> str:
        """The URL without anything in between: for the conductor, which is never cut off."""

    def environment_for(self, worker: str) -> dict[str, str]:
        """Returns what the environment of this worker's process has to have on top."""
        return {"HOLDFAST_CHAOS_LANE": worker}

    def inside(self, worker: str) -> list[str]:
        """Returns the command under which this worker is to be run; mostly there is none."""
        return []

    def duration(self, fault: str, chance: Chance) -> float:
        """Returns how long the fault should last, in seconds; 0 if it is over at once."""
        low, high = FAULTS[fault].lasts
        return chance.random.uniform(low, high) * chance.ttl

    def apply(self, fault: str, chance: Chance) -> Injury:
        """Does the fault, and returns what was done; when it returns, it is in effect.

        Raises `CannotBreak` if there is nobody to hit at this moment, and ValueError if this lab
        cannot do it at all.
        """
        if fault not in FAULTS:
            raise ValueError(f"unknown fault {fault!r}; there are {', '.join(FAULTS)}")
        if (why := self.why_not(fault)) is not None:
            raise ValueError(f"{fault} cannot be done here: {why}")
        if FAULTS[fault].tier == "clients" and not chance.workers:
            raise CannotBreak("there is no worker to hit")
        injury: Injury = getattr(self, "_" + fault.replace("-", "_"))(FAULTS[fault], chance)
        self._injuries = [old for old in self._injuries if not old.healed] + [injury]
        return injury

    def heal(self) -> None:
        """Mends whatever is still broken, and waits until every node serves."""
        self._heal_injuries()
        self.wait_ready()

    def _heal_injuries(self) -> None:
        while self._injuries:
            self._injuries.pop().heal()

    @abstractmethod
    def wait_ready(self) -> None:
        """Waits until every node serves."""

    @abstractmethod
    def ghosts(self, namespace: str) -> list[str]:
        """Returns what is left of locks in the namespace though nobody should have or want one.

        To be asked when all workers have ended and all leases have run out. Counters of tokens, records
        of audits and the like, which a store keeps on purpose, are no ghosts.
        """

    @abstractmethod
    def stop(self) -> None:
        """Ends all processes, and removes all that was put on the disk."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # What can be done to a worker is the same on every store.

    def _delay(self, fault: Fault, chance: Chance) -> Injury:
        """Names the worker whose writes arrive late; the conductor, at the registers, delays them."""
        worker = chance.victim
        return Injury(fault.name, [worker.name], f"what {worker.name} writes arrives late")

    def _kill_at_call(self, fault: Fault, chance: Chance) -> Injury:
        worker = chance.victim
        moment = chance.random.randint(1, 12)
        calls = self.calls
        try:
            trace = Trace([worker.pid], f"{calls}:signal=SIGKILL:when={moment}+")
        except ServerError as error:
            raise CannotBreak(str(error)) from None
        text = f"{worker.name} is killed at its {moment}. system call of a kind"

        pid = worker.pid

        def count() -> int:
            return trace.count() or int(has_ended(pid))

        def mend() -> None:
            trace.stop()
            if not trace.count():  # but it may have been hit at this very moment
                await_ended(pid, DYING)

        return Injury(fault.name, [worker.name], text, mend, [worker.name], count)

    def _pause(self, fault: Fault, chance: Chance) -> Injury:
        worker = chance.victim
        pid = worker.pid
        try:
            freeze(pid)
        except ProcessLookupError:
            raise _gone(pid) from None
        text = f"{worker.name} stands still"
        return Injury(fault.name, [worker.name], text, partial(thaw, pid))

    def _holder_crash(self, fault: Fault, chance: Chance) -> Injury:
        worker = chance.victim
        try:
            os.kill(worker.pid, signal.SIGKILL)
        except ProcessLookupError:
            raise _gone(worker.pid) from None
        text = f"{worker.name} was killed"
        return Injury(fault.name, [worker.name], text, killed=[worker.name])


def _gone(pid: int) -> CannotBreak:
    return CannotBreak(f"the worker with process id {pid} has ended")
