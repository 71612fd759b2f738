"""What could not be given back in time is given back behind the caller's back.

An attempt that fails leaves the store, so that no ghost of it stays there. If just then the store does
not answer, nobody should have to wait for that: the caller has a deadline of its own. The routine here
goes on trying until the store has answered, or what is left there has ended by itself.
"""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING

from .._runtime.aio import Routine, Signal

if TYPE_CHECKING:
    from ..stores._async.contract import Ticket
    from .session import Session

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0


class Debts:
    __slots__ = ("_last_deadline", "_mutex", "_owed", "_routine", "_session", "_signal")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._owed: dict[str, tuple[Ticket, float]] = {}
        """By owner: what to give back, and when it has ended by itself."""
        self._mutex = RLock()
        self._signal = Signal(session.clock)
        self._routine: Routine | None = None
        self._last_deadline = 0.0
        """Set by `close`: when the last try has to have ended."""

    def owe(self, ticket: Ticket, error: Exception) -> None:
        """The store did not answer when this was to be given back."""
        with self._mutex:
            if not self._last_deadline:
                self._owed[ticket.owner] = (ticket, self._session.clock.now() + ticket.ttl)
                if self._routine is None:
                    self._routine = Routine(self._run, "holdfast-debts")
                return
        self._failed(ticket, error)

    async def close(self) -> None:
        """Try once more, all of it within one limit; then let it be."""
        with self._mutex:
            self._last_deadline = self._session.deadline()
            routine = self._routine
        self._signal.set()
        if routine is not None:
            await routine.join()

    async def _run(self) -> None:
        session = self._session
        pause = FIRST_PAUSE
        while True:
            with self._mutex:
                last_by = self._last_deadline
                owed = list(self._owed.values())
                if not owed:
                    self._routine = None
                    return
            for ticket, ended_at in owed:
                try:
                    await session.backend.release(
                        ticket.name, ticket.owner, last_by or session.deadline()
                    )
                except Exception as error:  # whatever it was: the routine has to go on
                    if not last_by and session.clock.now() < ended_at:
                        continue
                    self._failed(ticket, error)
                with self._mutex:
                    del self._owed[ticket.owner]
                pause = FIRST_PAUSE
            if self._owed:
                await self._signal.wait(session.clock.now() + pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _failed(self, ticket: Ticket, error: Exception) -> None:
        self._session.tell("release_failed", ticket.name, ticket.owner, 0, 0.0, str(error))
