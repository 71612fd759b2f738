"""One timer for the deadlines of all calls on a connection, in asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf


class DeadlineTimer:
    """A timer that is set for the earliest deadline, and not touched while replies come.

    When that has passed, it lets the loop read once more before it tells: if the program stood still,
    the reply is there.
    """

    __slots__ = ("_expire", "_first", "_handle", "_has_looked", "_loop", "_now", "due")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        now: Callable[[], float],
        first: Callable[[], float],
        expire: Callable[[float], float],
    ) -> None:
        """`first` returns the earliest deadline of the calls under way; `inf` if there is none.
        `expire` ends the calls whose time is over, and returns the time at which to look next."""
        self._loop = loop
        self._now = now
        self._first = first
        self._expire = expire
        self._handle: asyncio.TimerHandle | None = None
        self._has_looked = False
        """True if a call was found overdue, and the event loop had no time yet to read its reply."""
        self.due = inf
        """The time at which it goes off. A call that has to end before that needs it to be armed."""

    def arm(self, due: float) -> None:
        """Sets the timer for `due`, in place of what it was set for."""
        if self._handle is not None:
            self._handle.cancel()
        self.due = due
        self._handle = self._loop.call_later(max(0.0, due - self._now()), self._look)

    def cancel(self) -> None:
        """Stops the timer."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._has_looked = False
        self.due = inf

    def _look(self) -> None:
        self._handle = None
        self.due = inf
        now, first = self._now(), self._first()
        if first <= now and not self._has_looked:
            self._has_looked = True
            self.due = -inf  # a call that begins meanwhile does not put it off
            self._handle = self._loop.call_later(0, self._look)
            return
        self._has_looked = False
        if first <= now:  # mostly not: the reply that it was set for has come
            first = self._expire(now)
        if first < inf:
            self.arm(first)
