"""Calls at set times, whatever the network does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from typing import Any

from ...clock import Clock
from ...events import report
from ...timer_wheel import TimerWheel
from .signal import LONGEST_SLEEP


class Alarm:
    """A timer that calls back at set times: one for any number of callbacks.

    It may be set and cancelled from any thread; whoever is called back is called in its loop.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._wheel: TimerWheel[Callable[[], None]] = TimerWheel()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._unsubscribe = clock.subscribe(self._moved)

    def at(self, due: float, callback: Callable[[], None]) -> None:
        """Has `callback` called at `due`, or a little earlier; it looks at the clock, and may set the
        alarm again."""
        if get_ident() != self._thread:
            return self._in_loop(self.at, due, callback)
        slot = self._wheel.add(callback, due, self._clock.now())
        if self._timer is None or slot < self._timer_due:
            self._arm(slot)

    def cancel(self, callback: Callable[[], None]) -> None:
        """Forgets `callback`, if it has not been called yet."""
        if get_ident() != self._thread:
            return self._in_loop(self.cancel, callback)
        self._wheel.remove(callback)

    def _in_loop(self, function: Callable[..., None], *args: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed, and calls nobody back
            self._loop.call_soon_threadsafe(function, *args)

    def close(self) -> None:
        """Forgets all callbacks, and stops the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._unsubscribe is not None:
            self._unsubscribe()
        self._wheel = TimerWheel()

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        if self._unsubscribe is None:
            delay = min(max(due - self._clock.now(), 0.0), LONGEST_SLEEP)
            self._timer = self._loop.call_later(delay, self._call_due)
        elif due <= self._clock.now():
            self._timer = self._loop.call_later(0.0, self._call_due)

    def _moved(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._call_due)

    def _call_due(self) -> None:
        self._timer = None
        for callback in self._wheel.pop_due(self._clock.now()):
            try:
                callback()
            except Exception as error:  # the others are to be called all the same
                report("an alarm failed", error)
        if len(self._wheel) and self._timer is None:
            self._arm(self._wheel.next_due())
