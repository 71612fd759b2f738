"""A turnstile before the store: a few attempts of one manager ask at a time, whatever the crowd."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from math import inf
from typing import TypeVar

from ..._runtime.aio import Turn
from ...clock import Clock

Result = TypeVar("Result")


class Turnstile:
    """The turns at asking the store, of which there are a few for all attempts of one manager.

    The time for which an attempt stands behind others of its own manager is not the store's: as long
    as the store answers them, the deadline of the attempt moves, up to the end of what the attempt's
    caller has given.
    """

    def __init__(self, number: int, clock: Clock) -> None:
        self._clock = clock
        self._turns = [Turn() for _ in range(number)]
        self._asked = count()
        self._answered = 0.0
        """The time at which the store last answered an attempt that had a turn."""

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
        patience, latest = deadline - now(), until or inf
        turn = self._turns[next(self._asked) % len(self._turns)]
        # The turn is ended twice, as a signal handler may raise at its very entry.
        try:
            while not await turn.take(deadline - now()):
                deadline = max(deadline, min(self._answered + patience, latest))
                if deadline <= now():
                    raise too_late()
            deadline = max(deadline, min(now() + patience, latest))
            return await question(deadline), deadline
        finally:
            try:
                turn.end()
            except BaseException:
                turn.end()
                raise

    def answered(self) -> None:
        """Notes that the store has answered an attempt just now."""
        self._answered = self._clock.now()
