"""The clocks that leases are counted on.

A lease is counted on the boot-time clock: it goes on while the machine is suspended, which
`CLOCK_MONOTONIC` does not, and it never steps, which the wall clock does. The wall clock is used
for two things only: to show people when something happened, and as the floor of a fencing token.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Protocol

_boot_now: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic
)


class Clock(Protocol):
    """A clock, as the engine needs it. Times are float seconds on a scale of the clock's own."""

    @property
    def now(self) -> Callable[[], float]:
        """Function that returns the present time."""
        ...

    @property
    def wall(self) -> Callable[[], float]:
        """Function that returns the seconds since the epoch."""
        ...

    def subscribe(self, moved: Callable[[], None]) -> Callable[[], None] | None:
        """Calls `moved` whenever the clock is moved by hand; returns a function that stops that.

        Returns None if this clock is never moved: a sleeper may simply sleep.
        """
        ...


class BootClock:
    """The machine's own clock, suspended time included where the system can tell it."""

    __slots__ = ("now", "wall")

    def __init__(self) -> None:
        # Attributes rather than methods: they are called a dozen times in each acquisition.
        self.now: Callable[[], float] = _boot_now
        self.wall: Callable[[], float] = time.time

    def subscribe(self, moved: Callable[[], None]) -> None:
        return None


source: Callable[[], Clock] = BootClock
"""Function behind `system_clock`. The simulator, which has machines of its own, puts another here."""


def system_clock() -> Clock:
    """Returns the clock of the machine that this process runs on."""
    return source()


class ManualClock:
    """A clock that stands still until a test moves it. Safe to move from any thread.

    >>> clock = ManualClock()
    >>> clock.advance(31.0)
    >>> clock.now()
    1031.0
    """

    def __init__(self, now: float = 1000.0, wall: float = 1_700_000_000.0) -> None:
        self._now = now
        self._wall = wall
        self._mutex = Lock()
        self._subscribers: dict[object, Callable[[], None]] = {}

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._wall

    def advance(self, seconds: float) -> None:
        """Moves both scales forward, and wakes every sleeper on this clock."""
        if seconds < 0:
            raise ValueError("a clock of leases never goes back; use step_wall for the wall clock")
        with self._mutex:
            self._now += seconds
            self._wall += seconds
            subscribers = list(self._subscribers.values())
        for moved in subscribers:
            moved()

    def step_wall(self, seconds: float) -> None:
        """Steps the wall clock alone, either way, as an operator or NTP would."""
        with self._mutex:
            self._wall += seconds

    def subscribe(self, moved: Callable[[], None]) -> Callable[[], None]:
        key = object()
        with self._mutex:
            self._subscribers[key] = moved

        def unsubscribe() -> None:
            with self._mutex:
                self._subscribers.pop(key, None)

        return unsubscribe
