"""The errors of redis-py's `Lock`, where redis-py is installed; else our own."""

from __future__ import annotations

from ..errors import LockError, LockNotOwned


def refusal(message: str, name: str) -> Exception:
    """Returns the error for a lock that is not held, or was not to be had."""
    try:
        from redis.exceptions import LockError as RedisLockError
    except ImportError:
        return LockError(message, name=name)
    return RedisLockError(message, lock_name=name)


def not_owned(message: str, name: str) -> Exception:
    """Returns the error for a lock that is not held any more."""
    try:
        from redis.exceptions import LockNotOwnedError
    except ImportError:
        return LockNotOwned(message, name=name)
    return LockNotOwnedError(message, lock_name=name)


def is_refusal(error: BaseException) -> bool:
    """Tells whether the error is one of these."""
    try:
        from redis.exceptions import LockError as RedisLockError
    except ImportError:
        return isinstance(error, LockError)
    return isinstance(error, RedisLockError)
