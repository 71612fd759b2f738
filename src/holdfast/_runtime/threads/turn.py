"""Turns at what one caller at a time may do."""

from __future__ import annotations

from threading import RLock


class Turn:
    """A turn that one thread has at a time, across calls to the store.

    A signal handler may raise an exception just as the turn was taken: `end` gives it back if the
    caller has it, and does nothing otherwise. So call both inside the same `try`.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = RLock()

    def take(self, within: float) -> bool:
        """Takes the turn; returns False if others have had it for all of `within` seconds."""
        return self._lock.acquire(timeout=max(within, 0.0))

    def end(self) -> None:
        """Gives the turn back, if the caller has it."""
        try:
            self._lock.release()
        except RuntimeError:
            return
