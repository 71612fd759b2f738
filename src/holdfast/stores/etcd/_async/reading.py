"""The queue of a lock as it was read for its waiters, of whom one manager may have thousands.

Each of them would otherwise read and go through the whole queue, which costs the square of their
number: so one read at a time is under way for a queue, and serves all waiters that it is not too old
for. An older one is safe, too: a waiter watches what blocks it from the revision of the read on.
"""

from __future__ import annotations

from ....admission import admitted
from ..keys import StoredEntry
from .acquire import longest_hold
from .attempt import Attempt

RECENT = 1.0
"""Seconds for which a read serves those waiters that have heard of no change since."""


class Reading:
    """A queue as it was read, with all that its waiters have in common."""

    __slots__ = ("_positions", "admitted", "began", "entries", "longest_hold", "places", "revision")

    def __init__(self, began: float, revision: int, entries: list[StoredEntry]) -> None:
        self.began = began
        """The time at which the request was sent."""
        self.revision = revision
        self.entries = entries
        self.places = [one.place for one in entries]
        self.admitted = admitted(self.places)
        """The number of entries, from the first on, that may hold the lock."""
        self.longest_hold = longest_hold(entries)
        self._positions = {
            (one.kv.key, one.entry.owner): number for number, one in enumerate(entries)
        }

    def serves(self, attempt: Attempt, arrived: float, now: float) -> bool:
        """Returns True if a waiter that asks since `arrived` need not read the queue again.

        Once the holders that were seen may have ended, only a read that began since then will do.
        """
        lasts = min(RECENT, self.longest_hold)
        return (
            (self.began >= arrived or now < self.began + lasts)
            and attempt.stirred < self.began
            and attempt.created <= self.revision
        )

    def position(self, attempt: Attempt) -> int | None:
        """Returns the index of the entry of `attempt`; None if it has none."""
        return self._positions.get((attempt.key, attempt.owner))
