"""Holders watch their own keys: one that is taken away is told at once, not at its next renewal.

A lock that is held for a moment only is not worth a watch, by which etcd would tell us of our own
release. So the watch starts a little after the grant, from the grant's revision on: nothing is missed.
"""

from __future__ import annotations

from collections.abc import Callable

from ...._runtime.aio import Alarm
from ....clock import Clock
from .attempt import Attempt
from .queue import Line

SOON = 0.1
"""Seconds between the looks at who holds a lock by now; who has had it for half of that is watched."""
LATEST = 0.8
"""Where each look finds that all have given theirs back, the next is later, up to this: a lock that
goes from hand to hand would cost two switches of threads each time."""


class Guard:
    def __init__(self, clock: Clock, watch: Callable[[Line, int], None]) -> None:
        self._clock = clock
        self._watch = watch
        self._alarm = Alarm(clock)
        self._new: dict[Attempt, float] = {}
        """Holders whose keys may not be watched yet, and since when."""
        self._armed = False
        """They will be looked at."""
        self._pause = SOON

    def add(self, attempt: Attempt) -> None:
        """It is held. From any thread."""
        now = self._new[attempt] = self._clock.now()
        if not self._armed:
            self._armed = True
            self._alarm.at(now + self._pause, self._ring)

    def drop(self, attempt: Attempt) -> None:
        self._new.pop(attempt, None)

    def _ring(self) -> None:
        now = self._clock.now()
        self._armed = False  # before the look: whoever comes after it asks for another
        since: dict[Line, int] = {}
        waiting = False
        for attempt, held in list(self._new.items()):
            if held > now - SOON / 2:
                waiting = True
            elif self._new.pop(attempt, None) is not None and not attempt.owed:
                line, revision = attempt.line, attempt.changed + 1
                since[line] = min(since.get(line, revision), revision)
        self._pause = SOON if since or waiting else min(2 * self._pause, LATEST)
        for line, revision in since.items():
            self._watch(line, revision)
        if waiting and not self._armed:
            self._armed = True
            self._alarm.at(now + SOON, self._ring)

    def close(self) -> None:
        self._alarm.close()
