"""A lock that goes by the interface of `asyncio.Lock`, on any store.

`release()` is no coroutine there, so here it only begins the release, which goes on in the background;
`async with` waits for it. What differs: a lease may be lost. That cancels the body of `async with`,
which then raises `LeaseLost`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Literal, Unpack

from holdfast import aio

from ..errors import LockError, LockNotOwned
from ..options import LockKeywords


class AsyncioLock:
    """A lock as `asyncio.Lock` is: any task may release what another has acquired."""

    def __init__(self, locks: aio.Locks, name: str, **options: Unpack[LockKeywords]) -> None:
        self.name = name
        self._lock = locks.lock(name, **options)
        self._leases: list[tuple[object, aio.Lease]] = []
        """The leases that are acquired, and by which task: one, unless an earlier one was lost."""
        self._releases: set[asyncio.Task[bool]] = set()
        """The releases under way."""

    def __repr__(self) -> str:
        return f"<AsyncioLock {self.name!r} {'locked' if self.locked() else 'unlocked'}>"

    @property
    def lease(self) -> aio.Lease | None:
        """The lease that this task, or else another one, has acquired; with its fencing token."""
        entry = self._entry()
        return None if entry is None else entry[1]

    async def acquire(self) -> Literal[True]:
        """Returns True once it is acquired; raises `LockTimeout` if the lock has a `timeout`."""
        await self._take()
        return True

    async def _take(self) -> aio.Lease:
        """Returns a lease that this task has acquired, and that is noted."""
        lease = await self._lock.acquire()
        try:
            self._leases.append((asyncio.current_task(), lease))
        except BaseException:  # by a signal's handler: nobody would release it
            await self._give_back(lease)
            raise
        return lease

    async def _give_back(self, lease: aio.Lease) -> None:
        """Releases a lease that nobody will use."""
        self._leases = [entry for entry in self._leases if entry[1] is not lease]
        with suppress(LockError):
            await lease.release()

    def release(self) -> None:
        """Begins to release it; raises `RuntimeError` if it is not acquired.

        A release that fails is told by an event, as at the end of `with`; the TTL frees the lock then.
        """
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._pop()._hold._release_quietly())
        self._releases.add(task)
        task.add_done_callback(self._released)

    def _released(self, task: asyncio.Task[bool]) -> None:
        self._releases.discard(task)
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                task.get_loop().call_exception_handler(
                    {"message": f"the release of {self.name!r} failed", "exception": error}
                )

    def locked(self) -> bool:
        """Returns whether it is acquired by this object. Who else holds it, only the store knows."""
        return any(lease.held for _, lease in self._leases)

    async def __aenter__(self) -> None:
        lease = await self._take()
        try:
            await lease.__aenter__()
        except BaseException:
            await self._give_back(lease)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._pop().__aexit__(kind, error, trace)

    def _entry(self) -> tuple[object, aio.Lease] | None:
        """Returns the lease that this task has acquired last; else that of another task."""
        me = asyncio.current_task()
        mine = [entry for entry in self._leases if entry[0] is me]
        entries = mine or self._leases
        return entries[-1] if entries else None

    def _pop(self) -> aio.Lease:
        entry = self._entry()
        if entry is None:
            raise LockNotOwned("Lock is not acquired.", name=self.name)
        self._leases.remove(entry)
        return entry[1]
