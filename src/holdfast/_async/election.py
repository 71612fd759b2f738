"""An election: one leader at a time, until it resigns, dies or is lost."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from .._runtime.aio import Signal
from ..model import LockState
from .lease import Lease
from .lock import Lock

if TYPE_CHECKING:
    from .opening import Opening
    from .request import Request


class Term(Lease):
    """The lease of a leader. Work that only the leader may do stops before it is released."""

    async def resign(self) -> bool:
        """Lets the next candidate lead: True if this one still did."""
        return await self.release()


class Election:
    """Made by `locks.election(name)`. Candidates are elected in the order in which they came."""

    __slots__ = ("_lock", "_opening", "name")

    def __init__(self, opening: Opening, request: Request) -> None:
        self.name = request.name
        self._opening = opening
        self._lock = Lock(opening, request)

    def __repr__(self) -> str:
        return f"<election {self.name!r}>"

    async def campaign(self, timeout: float | None = None) -> Term:
        """Waits to be elected; raises `LockTimeout` if that took longer than `timeout` seconds."""
        term = await self._lock.acquire(timeout)
        assert isinstance(term, Term)
        return term

    async def leader(self) -> LockState | None:
        """Returns the leader, with its value in `holders[0].label.text`; None if there is none."""
        state = await self._opening.ask(
            f"asked about {self.name!r}",
            self.name,
            lambda session, deadline: session.backend.inspect(self.name, deadline),
        )
        return state if state.held else None

    async def observe(self) -> AsyncGenerator[LockState | None, None]:
        """Yields the leader, or None, and then each new one. It looks at every heartbeat.

        Two changes between two looks are seen as one.
        """
        session = await self._opening.session()
        pause = Signal(session.clock)
        seen: int | None = None
        while True:
            state = await self.leader()
            token = 0 if state is None else state.token
            if token != seen:
                seen = token
                yield state
            await pause.wait(session.clock.now() + session.heartbeat)
