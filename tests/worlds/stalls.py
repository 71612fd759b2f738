"""Stalls: those of this machine, for tests that limit how long something may take; and made ones."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Self

STEP = 0.05
"""Seconds that the watch sleeps; it sleeps for longer where nothing gets on."""


class Stalls:
    """Counts, inside `with`, the `seconds` that a thread which only sleeps was late."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._over.wait(STEP):
            now = time.monotonic()
            self.seconds += max(now - before - 2 * STEP, 0.0)
            before = now


def stand_still(seconds: float) -> None:
    """Has this process stand still: no other thread of it runs meanwhile, nor does the loop."""
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))  # which keeps the interpreter's lock
