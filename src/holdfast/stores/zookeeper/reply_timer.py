"""A timer for the replies to a session's writes: a server that does not answer is left for another.

A server answers the requests of a session in their order. So a write whose reply stands behind those to
a crowd of reads is late without any fault of the server's; to leave it would only have the crowd ask
again. What counts is the time without any reply: behind an unanswered write there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from ...clock import Clock
from .requests import Unanswered

PATIENCE = 2.0
"""Seconds, or a fifth of its TTL, for which a session waits for a server's reply to a write."""
SECOND_CHECK = 0.25
"""Seconds that a late reply has to be read after all: perhaps it was we who were paused."""


class Timers(Protocol):
    """The table of attempts, as far as a timer needs it."""

    clock: Clock

    @property
    def mutex(self) -> AbstractContextManager[Any]: ...
    def call_at(self, due: float, function: Callable[[], None], /) -> None: ...


class ReplyTimer:
    """The time for which the oldest unanswered write of a session has waited."""

    def __init__(
        self,
        timers: Timers,
        drop_connection: Callable[[], None],
        replied_at: Callable[[], float],
    ) -> None:
        self._timers = timers
        self._drop_connection = drop_connection
        self._replied_at = replied_at
        """Returns the time at which the latest reply to any request was read."""
        self._sent_at = 0.0
        """The time at which the oldest unanswered write was sent; 0 if there is none."""
        self.patience = PATIENCE
        self._found_late = 0.0
        """The time since which there was no reply, when one was found to be late."""
        self._second_check = 0.0
        self._closed = False

    def close(self) -> None:
        self._closed = True

    def expect_reply(self, now: float) -> None:
        """Starts the timer for a write that is sent now."""
        self._sent_at = now
        self._timers.call_at(now + self.patience, self._check)

    def expect_another(self, now: float, ttl: float) -> None:
        """Starts the timer, or drops the connection if an earlier write has waited for too long.

        The server may be paused, or have lost the others. kazoo would wait for most of the session's
        time; another server may answer at once.
        """
        if self._sent_at and now - self._silent_since() > min(ttl / 5, PATIENCE):
            self._sent_at = 0.0
            self._drop_connection()
        elif not self._sent_at:
            self.expect_reply(now)

    def note_reply(self, error: Exception | None) -> None:
        """Stops the timer."""
        self._sent_at = 0.0
        if not isinstance(error, Unanswered):
            self.patience = PATIENCE

    def _silent_since(self) -> float:
        """Returns the time since which the oldest unanswered write waits without any reply."""
        return max(self._sent_at, self._replied_at())

    def _check(self) -> None:
        """Drops the connection if a write has not been answered for long, and has more patience then.

        The server is paused, or has lost the others, or the request is stuck in it (ZOOKEEPER-4537).
        """
        with self._timers.mutex:
            if not self._sent_at or self._closed:
                return
            now, since = self._timers.clock.now(), self._silent_since()
            found_late = self._found_late == since
            due = self._second_check if found_late else since + self.patience
            if now < due:
                self._timers.call_at(due, self._check)
            elif not found_late:
                self._found_late = since
                self._second_check = now + SECOND_CHECK  # from now: it may have been due for long
                self._timers.call_at(self._second_check, self._check)
            else:
                self._sent_at = 0.0
                self.patience *= 2
                self._drop_connection()
