"""Locks by the interfaces of others, for blocking code that takes one: thin, on the public face.

- `ThreadingLock` and `ThreadingRLock` go by `threading.Lock` and `threading.RLock`;
- `RedisLock` goes by redis-py's `Lock`.

For asyncio: `holdfast.adapters.aio`.
"""

from .redis_lock import RedisLock
from .threading_lock import ThreadingLock, ThreadingRLock

__all__ = ["RedisLock", "ThreadingLock", "ThreadingRLock"]
