"""The clock of one simulated machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .loop import VirtualLoop

START = 1_000.0
"""The boot clock's time at the start of a run."""
WALL = 1_700_000_000.0
"""The wall clock's time when the boot clock is at zero."""


class SimClock:
    """A clock that may run fast or slow, and whose wall clock may be stepped."""

    __slots__ = ("_base", "_loop", "_offset", "_rate", "_since", "set_back", "stepped")

    def __init__(self, loop: VirtualLoop, rate: float = 1.0) -> None:
        self._loop = loop
        self._rate = rate
        self._since = loop.now
        self._offset = 0.0
        self._base = START
        self.stepped = 0.0
        self.set_back = 0.0
        """Seconds by which the wall clock was set back, in all."""

    def now(self) -> float:
        """Returns the boot clock's time, in seconds."""
        return self._base + (self._loop.now - self._since) * self._rate

    def wall(self) -> float:
        """Returns the wall clock's time, in seconds."""
        now = self._base + (self._loop.now - self._since) * self._rate
        return WALL + now + self.stepped

    def micros(self) -> int:
        """Returns the wall clock's time, in whole microseconds."""
        now = self._base + (self._loop.now - self._since) * self._rate
        return int((WALL + now + self.stepped) * 1_000_000)

    def step(self, seconds: float) -> None:
        """Sets the wall clock forward, or back if `seconds` is negative."""
        self.stepped += seconds
        self.set_back += max(0.0, -seconds)

    def run_at(self, rate: float) -> None:
        """Makes both clocks run at `rate` from now on; 1.0 is the true rate."""
        self._offset += (self._loop.now - self._since) * self._rate
        self._base = START + self._offset
        self._since = self._loop.now
        self._rate = rate

    def subscribe(self, moved: Callable[[], None]) -> None:
        """Does nothing: the simulation moves no clock behind the engine's back."""
