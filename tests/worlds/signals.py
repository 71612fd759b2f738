"""A signal that comes again and again, as a profiler's or an interval timer's does."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

EVERY = 0.05


@contextmanager
def signals() -> Iterator[None]:
    """Has a signal interrupt the main thread twenty times a second; its handler does nothing."""
    before = signal.signal(signal.SIGALRM, lambda number, frame: None)
    signal.setitimer(signal.ITIMER_REAL, EVERY, EVERY)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
