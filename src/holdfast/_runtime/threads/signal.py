"""Signals: one thread waits, and another sets."""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable
from contextlib import suppress
from threading import RLock

from ... import forks
from ...clock import Clock

LONGEST_SLEEP = 1.0
"""Seconds after which a sleeper looks at the clock again: a sleep stands still while the machine is
suspended, and the boot clock does not."""

_sleepers: set[Signal] = set()
"""The signals whose waiters sleep until they are woken, and do not look at the clock."""


class Signal:
    """An event that is set once for each `wait`, from any thread, and remembered until then.

    In a forked child nobody is left who would set it: to wait for one of the parent's is refused there,
    also if the wait began before the fork.
    """

    # A bare lock that is taken while nothing has happened: `set` lets it go, `wait` takes it again.

    __slots__ = ("_clock", "_lock", "_made_in", "_mutex", "is_set", "on_set")

    def __init__(self, clock: Clock, made_in: int | None = None) -> None:
        self._clock = clock
        self._made_in = forks.generation if made_in is None else made_in
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
        if self._made_in != forks.generation:
            return  # nobody waits here; and a thread of the parent may have been inside the mutex
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
            self.refuse_inherited()
            left = None if until is None else until - self._clock.now()
            if left is not None and left <= 0:
                return False
            if left is None or unsubscribe is not None:
                self._sleep()
            else:
                self._lock.acquire(True, min(left, LONGEST_SLEEP))
            return True if self.clear() else None
        finally:
            if unsubscribe is not None:
                unsubscribe()

    def _sleep(self) -> None:
        try:
            _sleepers.add(self)
            if self._made_in == forks.generation:  # else it was not yet one of them at the fork
                self._lock.acquire()
        finally:
            _sleepers.discard(self)

    def refuse_inherited(self) -> None:
        """Raises `Inherited` in a child of the process that made this."""
        if self._made_in != forks.generation:
            forks.refuse_inherited(self._made_in)

    def left(self, until: float | None) -> float:
        """Returns the seconds until `until`, or until it is time to look at the clock again."""
        if until is None:
            return LONGEST_SLEEP
        return min(until - self._clock.now(), LONGEST_SLEEP)


def _after_fork_in_child() -> None:
    for signal in _sleepers:
        if signal._lock.locked():
            signal._lock.release()  # and no mutex: it may be that of another thread of the parent
    _sleepers.clear()


forks.in_child(_after_fork_in_child)
