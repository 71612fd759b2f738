"""A lock that goes by the interface of redis-py's `Lock`, on any store.

What differs from redis-py, because a lease is more than a key:

- `timeout` is the lease's TTL, and it ends then, as there. Without one the lease is renewed until it is
  released or its process has ended; in redis-py it would stay for ever.
- `token` is the owner id of this one acquisition: it may be used once.
- `extend` and `reacquire` never shorten. How long a lease lasts is counted on our own clock, which errs
  on the early side.
- `sleep` is taken and not used: a waiter is woken.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from types import SimpleNamespace, TracebackType
from typing import Any, Literal, Self

from holdfast import aio as holdfast

from ..redis_errors import is_refusal, not_owned, refusal

logger = logging.getLogger("holdfast.adapters")


class RedisLock:
    """A lock as redis-py's `Lock` is. Takes a manager of locks in place of the client."""

    def __init__(
        self,
        locks: holdfast.Locks,
        name: str,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
    ) -> None:
        self.name = name
        self.timeout = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self.local: Any = threading.local() if self.thread_local else SimpleNamespace()
        """`token`, the owner id as bytes, and `lease`: of each thread, if `thread_local`."""
        self._locks = locks
        self._lock = (
            locks.lock(name) if timeout is None else locks.lock(name, ttl=timeout, renew=False)
        )

    def __repr__(self) -> str:
        return f"<RedisLock {self.name!r}>"

    @property
    def lease(self) -> holdfast.Lease | None:
        """The lease behind it, with its fencing token; None if it is not acquired."""
        lease: holdfast.Lease | None = getattr(self.local, "lease", None)
        return lease

    async def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Returns True once it is acquired; False if it is not to be had within `blocking_timeout`.

        `blocking=False` tries once. What is None is as the lock was made.
        """
        if blocking is None:
            blocking = self.blocking
        if blocking_timeout is None:
            blocking_timeout = self.blocking_timeout
        owner = token.decode() if isinstance(token, bytes) else token
        lease: holdfast.Lease | None
        if not blocking:
            lease = await self._lock.try_acquire(owner=owner)
        elif blocking_timeout is None:
            lease = await self._lock.acquire(None, owner=owner)
        else:
            lease = await self._lock.try_acquire(max(blocking_timeout, 0.0), owner=owner)
        if lease is None:
            return False
        try:
            self.local.lease = lease
            self.local.token = lease.owner.encode()
        except BaseException:  # by a signal's handler: nobody would release it
            if self.lease is lease:
                self._forget()
            with suppress(holdfast.LockError):
                await lease.release()
            raise
        return True

    async def locked(self) -> bool:
        """Returns whether anybody holds it."""
        return (await self._locks.inspect(self.name)).held

    async def owned(self) -> bool:
        """Returns whether it is held by this object, as the store sees it."""
        lease = self.lease
        if lease is None or not lease.held:
            return False
        state = await self._locks.inspect(self.name)
        return any(holder.owner == lease.owner for holder in state.holders)

    async def release(self) -> None:
        """Releases it; raises `LockNotOwnedError` if it has ended before."""
        lease = self.lease
        if lease is None:
            raise refusal(
                "Cannot release a lock that's not owned or is already unlocked.", self.name
            )
        if not await lease.release():  # if the store does not answer, it may be tried again
            self._forget()
            raise not_owned("Cannot release a lock that's no longer owned", self.name)
        self._forget()

    async def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Gives it `additional_time` seconds more; from now on, if `replace_ttl`. Never shortens."""
        lease = self._with_timeout("extend")
        left = 0.0 if replace_ttl else lease.remaining()
        return await self._renew(lease, left + additional_time, "extend")

    async def reacquire(self) -> Literal[True]:
        """Gives it its whole timeout again. Never shortens."""
        lease = self._with_timeout("reacquire")
        assert self.timeout is not None
        return await self._renew(lease, self.timeout, "reacquire")

    def _with_timeout(self, verb: str) -> holdfast.Lease:
        lease = self.lease
        if lease is None:
            raise refusal(f"Cannot {verb} an unlocked lock", self.name)
        if self.timeout is None:
            raise refusal(f"Cannot {verb} a lock with no timeout", self.name)
        return lease

    async def _renew(self, lease: holdfast.Lease, ttl: float, verb: str) -> Literal[True]:
        try:
            await lease.renew(ttl)
        except holdfast.LeaseLost as error:
            raise not_owned(f"Cannot {verb} a lock that's no longer owned", self.name) from error
        return True

    def _forget(self) -> None:
        self.local.lease = self.local.token = None

    async def __aenter__(self) -> Self:
        if await self.acquire():
            return self
        raise refusal("Unable to acquire lock within the time specified", self.name)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.release()
        except Exception as failure:
            if self.raise_on_release_error or not is_refusal(failure):
                raise
            logger.warning("Lock was unlocked or no longer owned when exiting context manager.")
