"""The owners whose request may have arrived, or may still arrive, at a database."""

from __future__ import annotations

from contextlib import suppress

from ...clock import Clock

LASTING = 600.0
"""Seconds for which a request may be under way, and for which the database refuses one that was given
up."""


class Doubts:
    """A set of owners. Each is forgotten in the end, also if nobody ever learns what became of it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        """When each owner was added last; the oldest come first."""

    def add(self, owner: str) -> None:
        now = self._clock.now()
        self._since.pop(owner, None)
        self._since[owner] = now
        with suppress(RuntimeError, StopIteration, KeyError):  # another thread was quicker
            while self._since[oldest := next(iter(self._since))] <= now - LASTING:
                del self._since[oldest]

    def discard(self, owner: str) -> None:
        self._since.pop(owner, None)

    def __contains__(self, owner: str) -> bool:
        return owner in self._since

    def __len__(self) -> int:
        return len(self._since)
