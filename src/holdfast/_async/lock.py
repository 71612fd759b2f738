"""The locks that a manager makes: they hold settings, not state, so one may be used by many at once.

Each acquisition has a lease of its own. Entering by `with` implies held, and leaving never hides what
the body raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import checks
from ..errors import LockTimeout
from .lease import Lease
from .lock_object import LockObject
from .waiting import obtain

if TYPE_CHECKING:
    from .opening import Opening
    from .request import Request


class Unset:
    def __repr__(self) -> str:
        return "the lock's own timeout"


UNSET = Unset()


class Lock(LockObject[Lease]):
    """Made by `locks.lock(name)`, `locks.semaphore(…)` or `locks.rwlock(…).read()` and `.write()`."""

    __slots__ = ("_opening", "_request", "name")

    def __init__(self, opening: Opening, request: Request) -> None:
        super().__init__()
        self.name = request.name
        self._opening = opening
        self._request = request

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
            raise self._timed_out(limit)
        lease._hold._usage.given = True
        return lease

    async def try_acquire(self, timeout: float = 0.0, *, owner: str | None = None) -> Lease | None:
        """Returns a lease; or None if the lock is not to be had at once, or within `timeout`."""
        lease = await obtain(self._opening, self._request, checks.timeout(timeout), owner)
        if lease is not None:
            lease._hold._usage.given = True
        return lease

    def _timed_out(self, limit: float | None) -> LockTimeout:
        return LockTimeout(
            f"{self.name!r} was not granted within {limit:g} s, because others hold it or "
            "were first; wait longer, or see who with inspect()",
            name=self.name,
        )

    # For `with`.

    async def _to_enter(self) -> Lease:
        return await self.acquire()

    def _title(self) -> str:
        return repr(self.name)

    def _shared(self) -> bool:
        return self._request.weight < self._request.capacity


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
