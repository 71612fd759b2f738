"""The lock by redis-py's interface, for blocking code: there `acquire` takes one argument more."""

from __future__ import annotations

from ._sync import redis_lock


class RedisLock(redis_lock.RedisLock):
    """A lock as redis-py's `Lock` is. Takes a manager of locks in place of the client."""

    def acquire(  # type: ignore[override]
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Returns True once it is acquired; False if it is not to be had within `blocking_timeout`.

        `blocking=False` tries once. What is None is as the lock was made; `sleep` is not used.
        """
        return super().acquire(blocking, blocking_timeout, token)
