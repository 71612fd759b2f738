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
from .lease import Lease
from .waiting import obtain

if TYPE_CHECKING:
    from .opening import Opening
    from .request import Request


class Unset:
    def __repr__(self) -> str:
        return "the lock's own timeout"


UNSET = Unset()


class Lock:
    """Made by `locks.lock(name)`, `locks.semaphore(…)` or `locks.rwlock(…).read()` and `.write()`."""

    __slots__ = ("_entered", "_opening", "_request", "name")

    def __init__(self, opening: Opening, request: Request) -> None:
        self.name = request.name
        self._opening = opening
        self._request = request
        self._entered: dict[object, list[Lease]] = {}
        """The leases that were entered by `with`, by task or thread."""

    def __repr__(self) -> str:
        return f"<{self._request.kind} {self.name!r}>"

    async def acquire(
        self, timeout: float | Unset | None = UNSET, *, owner: str | None = None
    ) -> Lease:
        """Returns a lease; raises `LockTimeout` if it was not granted within `timeout` seconds.

        None waits for ever, 0 tries once; without one the lock's own `timeout` counts. `owner` is
        for those who pass on somebody else's request: an id that was never used before.
        """
        limit = self._request.options.timeout if timeout is UNSET else checks.timeout(timeout)
        lease = await obtain(self._opening, self._request, limit, owner)
        if lease is None:
            raise LockTimeout(
                f"{self.name!r} was not granted within {limit:g} s, because others hold it or "
                "were first; wait longer, or see who with inspect()",
                name=self.name,
            )
        return lease

    async def try_acquire(self, timeout: float = 0.0, *, owner: str | None = None) -> Lease | None:
        """Returns a lease; or None if the lock is not to be had at once, or within `timeout`."""
        return await obtain(self._opening, self._request, checks.timeout(timeout), owner)

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
        """Returns the lease that this task or thread entered last, or else the only one there is."""
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
        """Returns the lock that readers share. Their tokens are unique, not in any order."""
        return self._read

    def write(self) -> Lock:
        """Returns the lock that a writer holds alone."""
        return self._write
