"""Calls at set times, whatever the network does."""

from __future__ import annotations

from _thread import start_new_thread
from collections.abc import Callable

from ... import forks
from ...clock import Clock
from ...events import report
from ...timer_wheel import TimerWheel
from .signal import Signal


class Alarm:
    """A thread that calls back at set times: one for any number of callbacks.

    The thread starts with the first call to `at`: an alarm that nobody sets has none.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wheel: TimerWheel[Callable[[], None]] = TimerWheel()
        self._mutex = forks.mutex()
        self._signal = Signal(clock)
        self._due = 0.0
        self._has_thread = False
        self._closed = False

    def at(self, due: float, callback: Callable[[], None]) -> None:
        """Has `callback` called at `due`, or a little earlier; it looks at the clock, and may set the
        alarm again."""
        with self._mutex:
            if self._closed:
                return
            slot = self._wheel.add(callback, due, self._clock.now())
            if not self._has_thread:
                self._has_thread = True  # and nothing in between that could be interrupted
                try:
                    start_new_thread(self._run, ())
                except RuntimeError:  # no more threads
                    self._has_thread = False
                    raise
            elif slot < self._due:
                self._signal.set()

    def cancel(self, callback: Callable[[], None]) -> None:
        """Forgets `callback`, if it has not been called yet."""
        with self._mutex:
            self._wheel.remove(callback)

    def close(self) -> None:
        """Forgets all callbacks, and ends the thread."""
        with self._mutex:
            self._closed = True
            self._wheel = TimerWheel()
        self._signal.set()

    def _run(self) -> None:
        while True:
            with self._mutex:
                if self._closed:
                    return
                due = self._wheel.pop_due(self._clock.now())
            for callback in due:
                try:
                    callback()
                except BaseException as error:  # the others are to be called all the same
                    report("an alarm failed", error)
            with self._mutex:
                self._due = self._wheel.next_due()
            self._signal.wait(self._due if self._due != float("inf") else None)
