"""A lock that its holder may take again: the same lease, with the same token.

Acquisitions are counted here, not at the store: by name, for each task or thread of one manager. The
store sees one grant, which is released by as many releases as there were acquisitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import forks
from .._runtime.aio import current
from .hold import HOLDING
from .lease import Lease
from .lock import UNSET, Lock, Unset

if TYPE_CHECKING:
    from ..stores._async.contract import Ticket
    from .request import Request
    from .session import Session


class ReentrantLease(Lease):
    """The lease of a re-entrant lock: the same one at each acquisition, until the lock is free."""

    def __init__(self, session: Session, request: Request, ticket: Ticket) -> None:
        super().__init__(session, request, ticket)
        self._depth = 1
        self._fresh: list[bool] = []
        """For each `with` that was entered: whether it is the one that a loss interrupts."""
        self._taker: tuple[str, object] | None = None

    def _remember(self, taker: tuple[str, object]) -> None:
        with self._session.mutex:
            if self._state in HOLDING:
                self._taker = taker
                self._session.reentrant[taker] = self

    def _taken_again(self) -> bool:
        """Counts one more acquisition by its holder; False if the lease has ended."""
        if not self.held:
            return False
        with self._session.mutex:
            if self._state in HOLDING:
                self._depth += 1
                return True
        return False

    async def release(self) -> bool:
        """Releases one acquisition, and the lock with the last. True if it was still ours."""
        self._refuse_fork()
        if self.held:
            with self._session.mutex:
                if self._depth > 1 and self._state in HOLDING:
                    self._depth -= 1
                    return True
        self._forgotten()  # before it can be granted to another
        return await super().release()

    def _end(self, reason: str) -> None:
        self._forgotten()
        super()._end(reason)

    def _forgotten(self) -> None:
        with self._session.mutex:
            taker, self._taker = self._taker, None
            if taker is not None and self._session.reentrant.get(taker) is self:
                del self._session.reentrant[taker]

    def _enter(self) -> None:
        fresh = self._interrupt is None
        if fresh:
            super()._enter()
        else:
            self.ensure()
        self._fresh.append(fresh)

    async def _leave(self, error: BaseException | None) -> None:
        if self._fresh.pop():
            await super()._leave(error)
            return
        # The outer one settles what its interrupt did.
        body, interrupt, self._interrupt = self._body, self._interrupt, None
        try:
            await super()._leave(error)
        finally:
            self._body, self._interrupt = body, interrupt

    async def _give_all_back(self) -> bool:
        self._depth = 1
        return await super()._give_all_back()


class ReentrantLock(Lock):
    """Made by `locks.rlock(name)`."""

    __slots__ = ()

    async def acquire(
        self, timeout: float | Unset | None = UNSET, *, owner: str | None = None
    ) -> Lease:
        again = self._again()
        if again is not None:
            return again
        return self._first(await super().acquire(timeout, owner=owner))

    async def try_acquire(self, timeout: float = 0.0, *, owner: str | None = None) -> Lease | None:
        again = self._again()
        if again is not None:
            return again
        lease = await super().try_acquire(timeout, owner=owner)
        return None if lease is None else self._first(lease)

    def _again(self) -> Lease | None:
        session = self._opening.live
        if session is None or session.closed or session.generation != forks.generation:
            return None
        lease = session.reentrant.get((self.name, current()))
        if isinstance(lease, ReentrantLease) and lease._taken_again():
            return lease
        return None

    def _first(self, lease: Lease) -> Lease:
        assert isinstance(lease, ReentrantLease)
        lease._remember((self.name, current()))
        return lease
