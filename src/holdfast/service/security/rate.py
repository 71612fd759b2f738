"""Token buckets: a key may spend `burst` at once, and gets `rate` back each second."""

from __future__ import annotations

import time
from collections.abc import Callable

MOST = 10_000
"""Keys that are remembered; of the rest, those are forgotten first that were used longest ago."""


class Buckets:
    """One bucket for each key. What is forgotten is full again, so a flood of keys gains nothing it
    would not have had with its first request."""

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = max(burst, 1.0)
        self._clock = clock
        self._levels: dict[str, tuple[float, float]] = {}
        """The rest of each bucket, and the time of that count; the bucket used last stands last."""

    def take(self, key: str) -> float:
        """Takes one out of the bucket; returns 0, or the seconds until there will be one."""
        now = self._clock()
        level, then = self._levels.pop(key, (self._burst, now))
        level = min(level + max(now - then, 0.0) * self._rate, self._burst)
        missing = 1.0 - level
        self._levels[key] = (level if missing > 0 else level - 1.0, now)
        if len(self._levels) > MOST:
            del self._levels[next(iter(self._levels))]
        return missing / self._rate if missing > 0 else 0.0
