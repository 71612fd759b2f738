"""The locks that a manager makes: they hold settings, not state, so one may be used by many at once.

Each acquisition has a lease of its own. `with` remembers, for each task or thread, which leases it
entered; entering implies held, and leaving never hides what the body raised.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from .. import checks
from .._runtime.aio import current
from ..errors import LockNotOwned, LockTimeout
from ..stores._async.contract import Terms, Ticket
from .lease import Lease
from .waiting import obtain

if TYPE_CHECKING:
    from .manager import Locks
    from .session import Session


class Unset:
    def __repr__(self) -> str:
        return "the lock's own timeout"


UNSET = Unset()


class Lock:
    """Made by `locks.lock(name)`, `locks.semaphore(…)` or `locks.rwlock(…).read()` and `.write()`."""

    __slots__ = (
        "_barge",
        "_capacity",
        "_entered",
        "_kind",
        "_locks",
        "_max_hold",
        "_protects",
        "_renew",
        "_terms",
        "_text",
        "_timeout",
        "_ttl",
        "_weight",
        "name",
    )

    lease_type = Lease

    def __init__(
        self,
        locks: Locks,
        name: str,
        *,
        ttl: float,
        timeout: float | None = None,
        fair: bool | None = None,
        renew: bool = True,
        max_hold: float | None = None,
        protects: object = None,
        kind: str = "lock",
        weight: int = 1,
        capacity: int = 1,
        text: str | None = None,
    ) -> None:
        self.name = checks.lock_name(name)
        self._ttl = checks.ttl(ttl)
        self._timeout = checks.timeout(timeout)
        checks.flag("fair", fair, (True, False, None))
        checks.flag("renew", renew, (True, False))
        self._barge = fair is False
        self._renew = renew
        self._max_hold = None if max_hold is None else checks.ttl(max_hold, "max_hold")
        self._protects = protects
        self._locks = locks
        self._kind = kind
        self._weight = weight
        self._capacity = capacity
        self._text = text
        """Shown in place of the connection's label: an election's value."""
        self._terms: Terms | None = None
        self._entered: dict[object, list[Lease]] = {}

    def __repr__(self) -> str:
        return f"<{self._kind} {self.name!r}>"

    async def acquire(
        self, timeout: float | Unset | None = UNSET, *, owner: str | None = None
    ) -> Lease:
        """A lease that is held; raises `LockTimeout` if it was not granted within `timeout` seconds.

        None waits for ever, 0 tries once; without one the lock's own `timeout` counts. `owner` is
        for those who pass on somebody else's request: an id that was never used before.
        """
        limit = self._timeout if timeout is UNSET else checks.timeout(timeout)
        lease = await obtain(self, limit, owner)
        if lease is None:
            raise LockTimeout(
                f"{self.name!r} was not granted within {limit:g} s, because others hold it or "
                "were first; wait longer, or see who with inspect()",
                name=self.name,
            )
        return lease

    async def try_acquire(self, timeout: float = 0.0, *, owner: str | None = None) -> Lease | None:
        """A lease that is held; or None if it is not to be had at once, or within `timeout`."""
        return await obtain(self, checks.timeout(timeout), owner)

    def _attempt(self, session: Session, owner: str, queue: bool) -> Lease:
        """A new attempt, known to the session before anything is sent."""
        terms = self._terms
        if terms is None or terms.home is not session:
            terms = self._terms = self._new_terms(session)
        lease = self.lease_type(session, Ticket(terms, owner, queue), self._renew, self._max_hold)
        if self._protects is not None:
            lease._protects = self._protects
        # No mutex: this first writes and then looks; `close` first says so, and then looks.
        session.leases[owner] = lease
        if session.closed:
            session.leave(owner)
            session.check_open()
        if len(session.leases) >= session.full:
            session.sweep()
        return lease

    def _new_terms(self, session: Session) -> Terms:
        label = session.label
        terms = Terms(
            self.name,
            self._ttl,
            label if self._text is None else label._replace(text=self._text),
            self._weight,
            self._capacity,
            self._kind,
            self._barge,
            self._renew,
        )
        terms.home = session
        return terms

    async def __aenter__(self) -> Lease:
        lease = await self.acquire()
        try:
            lease._enter()
            self._entered.setdefault(current(), []).append(lease)
        except BaseException:  # interrupted on the threshold
            await lease._release_quietly()
            raise
        return lease

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._entered_here()._leave(error)

    def _entered_here(self) -> Lease:
        """The lease that this task or thread entered last, or else the only one there is."""
        # No mutex: each task or thread has a list of its own.
        me: object = current()
        if me not in self._entered and len(self._entered) == 1:
            # Entered by one task and left by another, as some frameworks do with fixtures.
            (me,) = self._entered
        leases = self._entered.get(me)
        if not leases:
            raise LockNotOwned(
                f"{self.name!r} was not entered by this task or thread, so it cannot leave it",
                name=self.name,
            )
        lease = leases.pop()
        if not leases:
            del self._entered[me]
        return lease


class ReadWriteLock:
    """Many readers or one writer, in the order in which they asked. Made by `locks.rwlock(name)`."""

    __slots__ = ("_read", "_write", "name")

    def __init__(self, name: str, read: Lock, write: Lock) -> None:
        self.name = name
        self._read = read
        self._write = write

    def __repr__(self) -> str:
        return f"<rwlock {self.name!r}>"

    def read(self) -> Lock:
        """Shared with other readers. Concurrent readers' tokens are unique, not in any order."""
        return self._read

    def write(self) -> Lock:
        """Alone."""
        return self._write
