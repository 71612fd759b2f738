"""Holders watch their own keys: one whose key is taken away is told at once, not at its next renewal.

A lock that is held for a moment only is not worth a watch, by which etcd would tell us of our own
release. So the watch starts a little after the grant, from the grant's revision on: nothing is missed.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock

from ...._runtime.aio import Alarm
from ....clock import Clock
from ..wire.messages import after
from .attempt import Attempt
from .queue import Queue
from .watches import Heard, Watch, Watches

SOON = 0.1
"""Seconds between two looks for holders without a watch; who has held for half of that gets one."""
LATEST = 0.8
"""The longest pause between two looks. Each look that finds that all were released doubles it: a lock
that goes from hand to hand would cost two switches of threads each time."""


class HolderWatch:
    """The watches of all queues in which this manager has held a lock for more than a moment."""

    def __init__(
        self,
        clock: Clock,
        mutex: RLock,
        watches: Watches,
        heard: Heard,
        started: Callable[[Queue], None],
    ) -> None:
        self._clock = clock
        self._mutex = mutex
        """The mutex of all attempts, since a queue is watched only while a key in it is in use."""
        self._watches = watches
        self._heard = heard
        self._started = started
        self._alarm = Alarm(clock)
        self._new: dict[Attempt, float] = {}
        """Holders whose keys may not be watched yet, and when they were granted the lock."""
        self._queues: dict[Queue, Watch] = {}
        self._armed = False
        """True if the alarm is set."""
        self._pause = SOON

    def add(self, attempt: Attempt) -> None:
        """Begins to count how long `attempt` holds the lock. Called from any thread."""
        now = self._new[attempt] = self._clock.now()
        if not self._armed:
            self._armed = True
            self._alarm.at(now + self._pause, self._ring)

    def drop(self, attempt: Attempt) -> None:
        """Forgets an attempt that holds nothing any more."""
        self._new.pop(attempt, None)

    def is_recent(self, attempt: Attempt, within: float) -> bool:
        """Returns True if the lock was granted less than `within` seconds ago."""
        granted = self._new.get(attempt)
        return granted is not None and self._clock.now() < granted + within

    def watch(self, queue: Queue, revision: int) -> None:
        """Watches this manager's keys in `queue`, from `revision` on, if any is in use."""
        with self._mutex:
            if queue not in self._queues and queue.in_use:
                self._queues[queue] = self._watches.add(
                    queue.own,
                    after(queue.own),
                    revision,
                    self._heard,
                    lambda started: self._started(queue),
                    deletions_only=True,
                )

    def unwatch(self, queue: Queue) -> None:
        """Stops to watch a queue in which this manager has no key any more."""
        with self._mutex:
            watch = self._queues.pop(queue, None)
            if watch is not None:
                self._watches.drop(watch)

    def _ring(self) -> None:
        now = self._clock.now()
        self._armed = (
            False  # before the look: an attempt that is added after it sets the alarm again
        )
        since: dict[Queue, int] = {}
        waiting = False
        for attempt, granted in list(self._new.items()):
            if granted > now - SOON / 2:
                waiting = True
            elif self._new.pop(attempt, None) is not None and not attempt.released:
                queue, revision = attempt.queue, attempt.changed + 1
                since[queue] = min(since.get(queue, revision), revision)
        self._pause = SOON if since or waiting else min(2 * self._pause, LATEST)
        for queue, revision in since.items():
            self.watch(queue, revision)
        if waiting and not self._armed:
            self._armed = True
            self._alarm.at(now + SOON, self._ring)

    def close(self) -> None:
        """Stops the alarm."""
        self._alarm.close()
