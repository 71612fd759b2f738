"""Sends releases in the background, and again until the store has answered.

An attempt that fails leaves the store, so that no ghost of it stays there. If just then the store does
not answer, its caller should not have to wait for that: it has a deadline of its own. The routine here
goes on trying until the store has answered, or what is left there has ended by itself.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from .. import forks
from .._runtime.aio import Routine, Signal, call_all
from ..errors import LockError

if TYPE_CHECKING:
    from ..stores._async.contract import Ticket
    from .session import Session

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0
AT_ONCE = 100
"""The number of releases that are sent at a time, all at once in asyncio: they share what they read."""
JOIN_REST = 0.1
"""Seconds that `close` waits beyond its last deadline for the routine to tell of failures."""
CLOSED = "the manager was closed"


class PendingReleases:
    """The releases of one session that are still to be answered."""

    __slots__ = ("_last_deadline", "_mutex", "_pending", "_routine", "_session", "_signal")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._pending: dict[str, tuple[Ticket, float]] = {}
        """By owner: what to release, and when it has ended by itself."""
        self._mutex = forks.mutex()
        self._signal = Signal(session.clock)
        self._routine: Routine | None = None
        self._last_deadline = 0.0
        """Set by `close`: when the last try has to have ended."""

    def add(self, ticket: Ticket, error: Exception | None = None) -> None:
        """Releases this at the store; `error` is what came of the first try, if there was one."""
        if self._session.generation != forks.current():
            return  # it is the parent's
        with self._mutex:
            if not self._last_deadline:
                self._pending[ticket.owner] = (ticket, self._session.clock.now() + ticket.ttl)
                if self._routine is None:
                    self._routine = Routine(self._run, "holdfast-releases")
                return
        self._tell_failed(ticket, error or LockError(CLOSED))

    def __bool__(self) -> bool:
        """Whether there are any: the store has failed to answer lately."""
        return bool(self._pending)

    async def close(self) -> bool:
        """Tries once more, all of it within one limit; then lets it be.

        Returns whether it came to its end: a call that was sent before may have longer than that.
        """
        with self._mutex:
            self._last_deadline = self._session.deadline()
            routine = self._routine
        self._signal.set()
        return routine is None or await routine.join(self._session.patience + JOIN_REST)

    async def end(self) -> None:
        """Waits for the end of the routine, whose calls the backend has ended by now."""
        routine = self._routine
        if routine is not None:
            await routine.join(max(self._session.patience, JOIN_REST))

    # unasync: aio-only
    def strand(self) -> None:
        """Lets it all be, because the event loop has ended."""
        with self._mutex:
            self._last_deadline = self._session.clock.now()

    # unasync: end
    async def _run(self) -> None:
        session = self._session
        pause = FIRST_PAUSE
        while True:
            with self._mutex:
                pending = list(self._pending.values())
                if not pending:
                    self._routine = None
                    return
            for start in range(0, len(pending), AT_ONCE):
                if self._is_over():
                    break
                some = pending[start : start + AT_ONCE]
                if any(await call_all([partial(self._release, *one) for one in some])):
                    pause = FIRST_PAUSE
            if self._is_over():
                self._let_be()
            elif self._pending:
                await self._signal.wait(session.clock.now() + pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _release(self, ticket: Ticket, ended_at: float) -> bool:
        """Tries to release this at the store; returns whether it is not pending any more."""
        session = self._session
        if self._is_over():
            return False
        last_deadline = self._last_deadline  # `close` may have come meanwhile
        try:
            deadline = last_deadline or session.deadline()
            await session.backend.release(ticket.name, ticket.owner, deadline)
        except Exception as error:  # whatever it was: the routine has to go on
            if not last_deadline and session.clock.now() < ended_at:
                return False
            self._tell_failed(ticket, error)
        with self._mutex:
            self._pending.pop(ticket.owner, None)
        return True

    def _is_over(self) -> bool:
        """Tells whether the time of `close` is over, so that nothing more is sent."""
        last_deadline = self._last_deadline
        return last_deadline > 0 and self._session.clock.now() >= last_deadline

    def _let_be(self) -> None:
        """Tells of all that could not be released before the end of `close`, and asks no more."""
        with self._mutex:
            left = [ticket for ticket, _ in self._pending.values()]
            self._pending.clear()
        for ticket in left:
            self._tell_failed(ticket, LockError(CLOSED))

    def _tell_failed(self, ticket: Ticket, error: Exception) -> None:
        self._session.tell("release_failed", ticket.name, ticket.owner, 0, 0.0, str(error))
