"""The smallest of the values that were noted lately."""

from __future__ import annotations

from math import inf


class RecentMinimum:
    """The smallest value noted within the last `span` seconds; some that are older may still count.

    Values are kept for two spans, the present one and the one before: the smallest of each is all that
    has to be remembered.
    """

    __slots__ = ("_before", "_present", "_since", "_span")

    def __init__(self, span: float) -> None:
        self._span = span
        self._present = self._before = inf
        self._since = -inf

    def note(self, value: float, now: float) -> None:
        """Counts `value` from `now` on."""
        self._turn(now)
        if value < self._present:
            self._present = value

    def value(self, now: float) -> float:
        """Returns the smallest value; infinity if none was noted for two spans."""
        self._turn(now)
        return min(self._present, self._before)

    def _turn(self, now: float) -> None:
        passed = now - self._since
        if passed >= self._span:
            self._before = self._present if passed < 2 * self._span else inf
            self._present = inf
            self._since = now
