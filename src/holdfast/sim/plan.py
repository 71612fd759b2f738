"""The plan of a run: all that a store brings along to be simulated. See docs/simulator.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from .connection import Server

if TYPE_CHECKING:
    from .world import World


class SimServer(Server, Protocol):
    """A simulated server that can crash."""

    @property
    def connections(self) -> Iterable[Any]:
        """The open connections; each has a `client`, which is a process, and a `close`."""
        ...

    def crash(self) -> None: ...
    def save(self) -> None: ...
    def restart(self, memory: str) -> None: ...


class Plan(Protocol):
    """A plan: the servers, the clients and the faults of a run, and what the store promises."""

    calm: bool
    """Whether this is the plan of a calm run; most of what follows does not matter then."""
    url: str
    options: dict[str, Any]
    faults: Sequence[str]
    all_at_once: bool
    """Whether each run has all of these faults, and not some of them."""
    memories: Sequence[str]
    """The data with which a crashed server may come back: all, snapshot, nothing."""
    crashes: int
    breaks_exclusion: frozenset[str]
    """Faults after which exclusion is not promised: clock, snapshot, nothing."""
    breaks_tokens: frozenset[str]
    """Faults after which the order of tokens is not promised."""
    recovery: float
    """Seconds in which every client gets the lock again after everything has healed. The seconds by
    which a server's clock was set back come on top: its keys live for so much longer."""
    settle: float
    """Seconds after which nothing may be left of a lock that nobody holds, with the same addition."""
    trouble: float
    """Seconds in which faults happen."""
    clients: Sequence[int]
    """Numbers of clients, of which one is drawn."""
    turns: int
    """Times that each client takes a lock."""
    pace: float
    """A factor for how long clients hold a lock, and rest."""
    unsettled: int
    """Times that `unsettle` is called."""
    ttls: tuple[float, float]
    """TTLs of the locks that are taken, from and to."""
    heedless: bool
    """Whether clients write without checking that they still hold the lock, to a resource without a
    fence."""

    # A plan may have `mixed`, the part of its runs in which clients take locks of all kinds.

    def start(self, world: World) -> list[SimServer]:
        """Makes the servers, lets them listen, and returns them."""
        ...

    def unsettle(self, world: World) -> None:
        """Makes trouble that only this store can have; called at a few moments."""
        ...

    def may_crash(self, servers: Sequence[Any], server: Any) -> bool:
        """Returns whether `server` may crash now, given the state of all `servers`."""
        ...

    def altered(self) -> AbstractContextManager[object]:
        """Returns a context in which the code under test is changed, for a variant."""
        ...

    def residue(self, servers: Sequence[Any]) -> list[str]:
        """Returns what is left on the servers, though nobody holds a lock or waits for one."""
        ...

    def describe(self, data: bytes) -> object:
        """Returns a request as the trace shows it."""
        ...


PlanMaker = Callable[[int], Plan]
"""A function that returns the plan for a seed."""
