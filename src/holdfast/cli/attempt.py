"""Getting the lock, ready to start a command under it, while signals are heard."""

from __future__ import annotations

import os
import time

from .. import Lease, Lock, LockError, Locks
from .background import BackgroundCall
from .report import say
from .wakeups import ENDING, Wakeups, now

_QUIET = 1.0
"""Seconds after which a person at a terminal is told what is being waited for."""
_LEAVING = 2.0
"""Seconds to leave the queue in. If that is too little, the store finds out by our silence."""


class Interrupted(Exception):
    """Raised when a signal ended the wait."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Attempt:
    """One request for the lock; `lease` is None if it was not granted in time."""

    def __init__(self, locks: Locks, lock: Lock, wait: float | None, wakeups: Wakeups) -> None:
        self.lease: Lease | None = None
        self.tether: int | None = None
        """The descriptor that the command inherits, so that the lease outlives us with it."""
        self.waited = 0.0
        self._locks = locks
        self._lock = lock
        self._wait = wait
        self._wakeups = wakeups

    def run(self) -> None:
        """Waits for the lock. When it raises, nothing is left on the store."""
        started = now()
        call = BackgroundCall(self._obtain, self._wakeups.nudge)
        told = not os.isatty(2)
        try:
            while not call.ended():
                self._hear(_QUIET)
                if not told and now() - started >= _QUIET and not call.ended():
                    told = True
                    BackgroundCall(self._tell, self._wakeups.nudge)
            self._hear(0.0)
            if call.error is not None:
                raise call.error
        except BaseException:
            leaving = BackgroundCall(self._locks.close, self._wakeups.nudge)
            self._wakeups.wait_for(leaving.ended, _LEAVING)
            raise
        self.waited = now() - started

    def _obtain(self) -> None:
        if self._wait is None:
            lease: Lease | None = self._lock.acquire(timeout=None)
        else:
            lease = self._lock.try_acquire(timeout=self._wait)
        if lease is not None:
            # One that was handed over is ours for a moment only, until it is confirmed.
            lease.renew()
            self.tether = lease.tether()
            self.lease = lease

    def _hear(self, seconds: float) -> None:
        for number in self._wakeups.wait(seconds):
            if number in ENDING:
                raise Interrupted(number)

    def _tell(self) -> None:
        say(f"waiting for {self._lock.name!r}{holders(self._locks, self._lock.name)}")


def holders(locks: Locks, name: str) -> str:
    """Returns the lock's holders, as the end of a sentence; empty if they cannot be read."""
    try:
        state = locks.inspect(name)
    except LockError:
        return ""
    people = [
        f"{holder.label} since {time.strftime('%H:%M:%S', time.localtime(holder.since))}"
        for holder in state.holders
    ]
    return f", held by {', '.join(people)}" if people else ""
