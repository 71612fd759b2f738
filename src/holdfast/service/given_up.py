"""Owners whose attempt was given up though its request may still arrive: it is refused then.

A client whose acquire was not answered releases that owner, on another connection perhaps, and says
that it is doubtful whether the acquire has arrived.
"""

from __future__ import annotations

from time import monotonic

REMEMBERED_FOR = 300.0
"""Seconds after which a request that is still under way has ended with its connection."""
MOST = 100_000


class GivenUp:
    """The owners that were given up lately, through this process."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, str], float] = {}
        """By lock and owner, the oldest first: until when it is remembered."""

    def add(self, name: str, owner: str) -> None:
        """Refuses this owner from now on, at this lock: others may not speak for it elsewhere."""
        now = monotonic()
        self._owners.pop((name, owner), None)
        self._owners[name, owner] = now + REMEMBERED_FOR
        while self._owners:
            oldest = next(iter(self._owners))
            if self._owners[oldest] > now and len(self._owners) <= MOST:
                break
            del self._owners[oldest]

    def has(self, name: str, owner: str) -> bool:
        """Tells whether a request of this owner comes too late."""
        return bool(self._owners) and (name, owner) in self._owners
