"""The setup of a run: one library on one store under one kind of fault, as it was asked for."""

from __future__ import annotations

from typing import NamedTuple

from .faults import FAULTS

OURS = "holdfast"
"""The name of our own library, beside those of `peers`."""
TTL = 1.5


class Setup(NamedTuple):
    """A run as it was asked for."""

    store: str
    fault: str
    seed: int
    library: str = OURS
    control: str = ""
    """The rule that this run must break, for a lock that is known to be bad; empty: none."""
    duration: float = 8.0
    workers: int = 4
    ttl: float = TTL
    hold: float = 0.12
    rest: float = 0.04
    long: float = 0.2
    least: float = 0.0
    """The seconds for which each hold lasts at least."""
    between: bool = False
    """Whether faults happen while nobody holds the lock or wants it; otherwise to a holder."""
    locks: int = 1

    @property
    def id(self) -> str:
        words = [self.store, self.fault] if self.library == OURS else [self.library, self.store]
        words += [] if self.library == OURS else [self.fault]
        return "-".join([*(["control"] if self.control else []), *words])

    @property
    def title(self) -> str:
        where = self.store if self.library == OURS else f"{self.library} on {self.store}"
        return f"{where}: {FAULTS[self.fault].title}"
