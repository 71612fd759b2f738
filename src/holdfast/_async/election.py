"""An election: one leader at a time, until it resigns, dies or is lost."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from .._runtime.aio import Signal
from ..model import LockState
from .lease import Lease
from .lock import Lock

if TYPE_CHECKING:
    from .manager import Locks


class Term(Lease):
    """To be the leader: a lease. Work that only the leader may do stops before it is given back."""

    __slots__ = ()

    async def resign(self) -> bool:
        """Let the next candidate lead: True if this one still did."""
        return await self.release()


class Candidacy(Lock):
    """The lock behind an election."""

    __slots__ = ()

    lease_type = Term


class Election:
    """Made by `locks.election(name)`. Candidates are elected in the order in which they came."""

    __slots__ = ("_locks", "_seat", "name")

    def __init__(self, locks: Locks, seat: Candidacy) -> None:
        self.name = seat.name
        self._locks = locks
        self._seat = seat

    def __repr__(self) -> str:
        return f"<election {self.name!r}>"

    async def campaign(self, timeout: float | None = None) -> Term:
        """Wait to be elected; raises `LockTimeout` if that took longer than `timeout` seconds."""
        term = await self._seat.acquire(timeout)
        assert isinstance(term, Term)
        return term

    async def leader(self) -> LockState | None:
        """Who leads now, with its value in `holders[0].label.text`; None if nobody does."""
        state = await self._locks.inspect(self.name)
        return state if state.held else None

    async def observe(self) -> AsyncGenerator[LockState | None, None]:
        """The leader, or None, and then each time that it is another one. It looks at every heartbeat.

        Two changes between two looks are seen as one.
        """
        session = await self._locks._session()
        pause = Signal(session.clock)
        seen: int | None = None
        while True:
            state = await self.leader()
            token = 0 if state is None else state.token
            if token != seen:
                seen = token
                yield state
            await pause.wait(session.clock.now() + session.heartbeat)
