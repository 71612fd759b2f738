"""How long this process stood still lately, by no fault of the library's.

A holder that did not run could not be told anything. On a busy machine that happens without any fault
of ours, so that a worker measures it.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from .history import now

PERIOD = 0.02


class Pulse:
    """A thread that wakes up often, and knows how late it was."""

    def __init__(self, memory: float) -> None:
        self._stops: deque[tuple[float, float]] = deque()
        self._memory = memory
        """Seconds for which a stop is remembered."""
        self._last = now()
        threading.Thread(target=self._beat, name="pulse", daemon=True).start()

    def longest(self) -> float:
        """Returns the seconds of the longest stop of late, up to now."""
        present = now()
        stops = [length for at, length in list(self._stops) if at > present - self._memory]
        return round(max([present - self._last - PERIOD, 0.0, *stops]), 6)

    def _beat(self) -> None:
        while True:
            time.sleep(PERIOD)
            present = now()
            late = present - self._last - PERIOD
            self._last = present
            if late > PERIOD:
                self._stops.append((present, late))
            while self._stops and self._stops[0][0] < present - self._memory:
                self._stops.popleft()
