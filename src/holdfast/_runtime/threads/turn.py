"""Turns at what one caller at a time may do.

For a while this process may stand still. Whoever waits for a turn could not have been given it then,
and that time does not count: it is counted by ticks, however late each of them is.
"""

from __future__ import annotations

from threading import RLock

TICK = 0.1
"""Seconds for which a tick counts at the most."""


class Turn:
    """A turn that one thread has at a time, across calls to the store.

    A signal handler may raise an exception just as the turn was taken: `end` gives it back if the
    caller has it, and does nothing otherwise. So call both inside the same `try`.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = RLock()

    def take(self, within: float) -> bool:
        """Takes the turn; returns False if others have had it for all of `within` seconds.

        Seconds in which this process did not run do not count.
        """
        while not self._lock.acquire(timeout=max(min(within, TICK), 0.0)):
            within -= TICK
            if within <= 0:
                return False
        return True

    def end(self) -> None:
        """Gives the turn back, if the caller has it."""
        try:
            self._lock.release()
        except RuntimeError:
            return
