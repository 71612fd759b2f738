"""A turnstile before the store: a few attempts of one manager ask at a time, whatever the crowd."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from math import inf
from typing import TypeVar

from ..._runtime.aio import Turn
from ...clock import Clock
from ...errors import BackendUnavailable

Result = TypeVar("Result")

LOOK_AGAIN = 0.5
"""Seconds after which whoever stands in line for long looks again whether the store is silent."""


class Turnstile:
    """The turns at asking the store, of which there are a few for all attempts of one manager.

    The time for which an attempt stands behind others of its own manager is not the store's, nor is
    that in which this process gets on slowly. Whether the store is silent is found out by those who ask
    it: unless one of them had no answer, the deadline of those behind them moves, up to the end of what
    their callers have given.
    """

    def __init__(self, number: int, clock: Clock) -> None:
        self._clock = clock
        self._turns = [Turn() for _ in range(number)]
        self._asked = count()
        self._answered = 0.0
        """The time at which the store last answered an attempt that had a turn."""
        self._failed = 0.0
        """The time at which it was last found not to answer one."""

    async def ask(
        self,
        question: Callable[[float], Awaitable[Result]],
        deadline: float,
        until: float | None,
        too_late: Callable[[], Exception],
    ) -> tuple[Result, float]:
        """Asks `question` when few others ask; returns its answer, and the deadline that it was given.

        `until` is the end of what the caller has given. Raises what `too_late` returns if the time is
        over before the store could be asked.
        """
        now = self._clock.now
        began = now()
        patience, latest = deadline - began, until or inf
        turn = self._turns[next(self._asked) % len(self._turns)]
        # The turn is ended twice, as a signal handler may raise at its very entry.
        try:
            while not await turn.take(deadline - now()):
                if patience <= 0 or latest <= now() or self.is_silent(began):
                    raise too_late()
                deadline = min(now() + min(patience, LOOK_AGAIN), latest)
            deadline = max(deadline, min(now() + patience, latest))
            try:
                return await question(deadline), deadline
            except BackendUnavailable:
                self.failed()
                raise
        finally:
            try:
                turn.end()
            except BaseException:
                turn.end()
                raise

    def answered(self) -> None:
        """Notes that the store has answered an attempt just now."""
        self._answered = self._clock.now()

    def failed(self) -> None:
        """Notes that the store has not answered an attempt, in all of its time."""
        self._failed = self._clock.now()

    def is_silent(self, since: float) -> bool:
        """Returns True if the store has left an attempt unanswered `since` then, and answered none."""
        return self._failed >= max(since, self._answered)
