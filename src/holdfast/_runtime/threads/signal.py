"""Signals: one thread waits, and another sets."""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable
from contextlib import suppress
from threading import RLock

from ...clock import Clock

LONGEST_SLEEP = 1.0
"""Seconds after which a sleeper looks at the clock again: a sleep stands still while the machine is
suspended, and the boot clock does not."""


class Signal:
    """An event that is set once for each `wait`, from any thread, and remembered until then."""

    # A bare lock that is taken while nothing has happened: `set` lets it go, `wait` takes it again.

    __slots__ = ("_clock", "_lock", "_mutex", "is_set", "on_set")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.is_set = False
        self._lock = allocate_lock()
        self._lock.acquire()
        self._mutex = RLock()  # a signal's handler may come back here
        self.on_set: Callable[[], None] | None = None
        """Function that `set` calls in place of `wake`, while the waiter sleeps somewhere else."""

    def set(self) -> None:
        """Sets the signal, and wakes its waiter."""
        self.is_set = True
        on_set = self.on_set
        if on_set is None:
            self.wake()
        else:
            on_set()

    def wake(self) -> None:
        """Wakes the waiter without setting the signal."""
        with self._mutex:
            if self._lock.locked():
                with suppress(RuntimeError):
                    self._lock.release()

    def clear(self) -> bool:
        """Clears the signal; returns whether it was set."""
        was_set, self.is_set = self.is_set, False
        return was_set

    def wait(self, until: float | None) -> bool:
        """Waits until the signal is set, and clears it: True. Returns False once `until` has come."""
        while True:
            done = self.wait_a_while(until)
            if done is not None:
                return done

    def wait_a_while(self, until: float | None) -> bool | None:
        """Does as `wait`, but returns None after a `wake` or `LONGEST_SLEEP`."""
        unsubscribe = self._clock.subscribe(self.wake)
        try:
            if self.clear():
                return True
            left = None if until is None else until - self._clock.now()
            if left is not None and left <= 0:
                return False
            if left is None or unsubscribe is not None:
                self._lock.acquire()
            else:
                self._lock.acquire(True, min(left, LONGEST_SLEEP))
            return True if self.clear() else None
        finally:
            if unsubscribe is not None:
                unsubscribe()

    def left(self, until: float | None) -> float:
        """Returns the seconds until `until`, or until it is time to look at the clock again."""
        if until is None:
            return LONGEST_SLEEP
        return min(until - self._clock.now(), LONGEST_SLEEP)
