"""A lock that its holder may take again: the same lease, with the same token.

Acquisitions are counted here, not at the store: by name, for each task or thread of one manager. The
store sees one grant, which is released by as many releases as there were acquisitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

from .. import checks, forks
from .._runtime.aio import current
from .hold import HOLDING, Hold
from .lease import Lease
from .lock import UNSET, Lock, Unset
from .waiting import obtain

if TYPE_CHECKING:
    from .opening import Opening


class ReentrantHold(Hold):
    """The engine's side of a re-entrant lock's lease: it counts the acquisitions."""

    _taker: tuple[str, object] | None = None
    _lease: ref[Lease] | None = None

    def _remember(self, taker: tuple[str, object], lease: Lease) -> None:
        with self._session.mutex:
            if self._state in HOLDING:
                self._taker = taker
                self._lease = ref(lease)
                self._session.reentrant[taker] = self

    def _lease_again(self, opening: Opening) -> Lease | None:
        """Returns the lease, which its holder has taken again; None if it has ended."""
        if self._expire_if_due(self._session.now()) or self._usage.dropped:
            return None
        lease = self._lease() if self._lease is not None else None
        if lease is None:
            lease = Lease(self, opening)
            self._lease = ref(lease)
        return lease if self._take_again() else None

    def _take_again(self) -> bool:
        """Counts one acquisition more; returns False if the lease is being released."""
        taken = False
        try:
            with self._session.mutex:
                if self._taker is not None and not self._usage.dropped:
                    self._usage.depth += 1
                    taken = True
        except BaseException:
            if taken:  # its taker is never told of it
                self._usage.depth -= 1
            raise
        return taken

    async def release(self) -> bool:
        self._refuse_fork()
        self._expire_if_due(self._session.now())
        with self._session.mutex:
            if self._state in HOLDING and self._usage.give_one_back():
                return True
            self._forgotten()  # in the same step, and before it can be granted to another
        return await super().release()

    def _end(self, reason: str, recalled: bool = False) -> None:
        self._forgotten()
        super()._end(reason, recalled)

    def _freed(self, freed: bool) -> bool:
        ended = super()._freed(freed)
        if ended:  # also where it was given away
            self._forgotten()
        return ended

    def _forgotten(self) -> None:
        with self._session.mutex:
            taker = self._taker
            if taker is not None and self._session.reentrant.get(taker) is self:
                del self._session.reentrant[taker]
            self._taker = None  # behind that: whoever was interrupted does it again

    def _free_later(self) -> None:
        self._forgotten()
        super()._free_later()

    async def _give_all_back(self) -> bool:
        self._usage.depth = 1
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
        limit = self._request.options.timeout if timeout is UNSET else checks.timeout(timeout)
        lease = await obtain(self._opening, self._request, limit, owner)
        if lease is None:
            raise self._timed_out(limit)
        self._remember(lease)
        lease._hold._usage.given = True
        return lease

    async def try_acquire(self, timeout: float = 0.0, *, owner: str | None = None) -> Lease | None:
        again = self._again()
        if again is not None:
            return again
        lease = await obtain(self._opening, self._request, checks.timeout(timeout), owner)
        if lease is not None:
            self._remember(lease)
            lease._hold._usage.given = True
        return lease

    def _again(self) -> Lease | None:
        """Returns the lease that the caller has already, taken once more; None if it has none."""
        session = self._opening.live
        if session is None or session.closed or session.generation != forks.current():
            return None
        hold = session.reentrant.get((self.name, current()))
        return hold._lease_again(self._opening) if isinstance(hold, ReentrantHold) else None

    def _remember(self, lease: Lease) -> None:
        assert isinstance(lease._hold, ReentrantHold)
        lease._hold._remember((self.name, current()), lease)
