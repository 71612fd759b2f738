"""Getting the lock, ready to start a command under it, while signals are heard."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from .. import Lease, LockError, Locks, LockState
from .background import BackgroundCall
from .wakeups import ENDING, Wakeups, now

if TYPE_CHECKING:
    from .progress import Progress
    from .several import SeveralLeases

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

    def __init__(
        self,
        locks: Locks,
        name: str,
        obtain: Callable[[], Lease | SeveralLeases | None],
        wakeups: Wakeups,
    ) -> None:
        self.lease: Lease | SeveralLeases | None = None
        self.tethers: tuple[int, ...] = ()
        """The descriptors that the command inherits, so that the lease outlives us with it."""
        self.waited = 0.0
        self._locks = locks
        self._name = name
        """The lock whose holder is named while it waits."""
        self._get = obtain
        self._wakeups = wakeups

    def run(self) -> None:
        """Waits for the lock. When it raises, nothing is left on the store."""
        started = now()
        call = BackgroundCall(self._obtain, self._wakeups.nudge)
        progress: Progress | None = None
        try:
            while not call.ended():
                self._hear(_QUIET)
                if os.isatty(2) and now() - started >= _QUIET and not call.ended():
                    if progress is None:
                        progress = self._progress(started)
                    progress.tick()
            self._hear(0.0)
            if call.error is not None:
                raise call.error
        except BaseException:
            leaving = BackgroundCall(self._locks.close, self._wakeups.nudge)
            self._wakeups.wait_for(leaving.ended, _LEAVING)
            raise
        finally:
            if progress is not None:
                progress.clear()
        self.waited = now() - started

    def _obtain(self) -> None:
        lease = self._get()
        if lease is not None:
            # One that was handed over is ours for a moment only, until it is confirmed.
            lease.renew()
            self.tethers = _tethers(lease)
            self.lease = lease

    def _hear(self, seconds: float) -> None:
        for number in self._wakeups.wait(seconds):
            if number in ENDING:
                raise Interrupted(number)

    def _progress(self, started: float) -> Progress:
        from .progress import Progress  # not needed where nobody waits

        return Progress(self._locks, self._name, self._wakeups.nudge, started)


def _tethers(lease: Lease | SeveralLeases) -> tuple[int, ...]:
    if isinstance(lease, Lease):
        tether = lease.tether()
        return () if tether is None else (tether,)
    return lease.tethers()


def holders(locks: Locks, name: str) -> str:
    """Returns the lock's holders, as the end of a sentence; empty if they cannot be read."""
    try:
        return holders_of(locks.inspect(name))
    except LockError:
        return ""


def holders_of(state: LockState | None) -> str:
    """Returns the holders of a lock, as the end of a sentence; empty if there are none."""
    people = [
        f"{who} since {time.strftime('%H:%M:%S', time.localtime(since))}"
        for who, since in people_of(state)
    ]
    return f", held by {', '.join(people)}" if people else ""


def people_of(state: LockState | None) -> list[tuple[str, float]]:
    """Returns the holders of a lock in words, each with the time of its grant."""
    from .drawing import visible  # not needed where nobody waits

    holders = state.holders if state is not None else ()
    return [(visible(str(holder.label)), holder.since) for holder in holders]
