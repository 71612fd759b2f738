"""The changes of locks as lines of JSON, one object each, for programs."""

from __future__ import annotations

import select
import time
from collections import deque
from threading import BoundedSemaphore
from typing import Any

from .. import Locks, Sighting
from . import encoding, statuses
from .background import BackgroundCall
from .report import write_patiently
from .wakeups import ENDING, Wakeups

GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL
"""The events of poll by which a reader, or a terminal, shows that it has gone."""
_AHEAD = 1000
"""Lines that are kept for a reader who is slow, before the store is left alone."""


class ChangeLines:
    """Lines on stdout. A reader that does not read is waited for, but signals are heard meanwhile."""

    def __init__(self, wakeups: Wakeups, locks: Locks, prefix: str, every: float) -> None:
        self._wakeups = wakeups
        self._locks = locks
        self._prefix = prefix
        self._every = every
        self._lines: deque[bytes] = deque()
        self._room = BoundedSemaphore(_AHEAD)
        self._unwritten = b""

    def run(self) -> int:
        """Writes until a signal comes, and returns the exit status; raises if nobody reads."""
        call = BackgroundCall(self._follow, self._wakeups.nudge)
        while True:
            if self._wakeups.ready.get(1, 0) & GONE:
                raise BrokenPipeError
            self._write()
            if call.error is not None:
                raise call.error
            # To be woken when the reader can take more, or has gone.
            self._wakeups.watched[1] = select.POLLOUT if self._unwritten else 0
            for number in self._wakeups.wait(60.0):
                if number in ENDING:
                    return statuses.ended_by(number)

    def _follow(self) -> None:
        """Hears of the changes, on a thread of its own."""
        for sighting in self._locks.watch(self._prefix, every=self._every):
            line = encoding.dumps(record(sighting, time.time())).encode() + b"\n"
            self._room.acquire()
            self._lines.append(line)
            self._wakeups.nudge()

    def _write(self) -> None:
        while self._unwritten or self._lines:
            if not self._unwritten:
                self._unwritten = self._lines.popleft()
                self._room.release()
            self._unwritten = write_patiently(1, self._unwritten, 0.0)
            if self._unwritten:
                return


def record(sighting: Sighting, at: float) -> dict[str, Any]:
    """Returns what was seen as an object."""
    found: dict[str, Any] = {"at": round(at, 3), "change": sighting.kind}
    if sighting.detail:
        found["error"] = sighting.detail
    state, one = sighting.state, sighting.participant
    if state is not None and one is not None:
        found |= {"name": sighting.name, "kind": state.kind}
        found |= encoding.participant(one, state.kind)
        found["waiting"] = len(state.waiters)
    return found
