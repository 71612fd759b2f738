"""Locks by the interfaces of others, for asyncio code that takes one: thin, on the public face.

- `AsyncioLock` goes by `asyncio.Lock`;
- `RedisLock` goes by the `Lock` of `redis.asyncio`.

For blocking code: `holdfast.adapters`.
"""

from ._async.redis_lock import RedisLock
from .asyncio_lock import AsyncioLock

__all__ = ["AsyncioLock", "RedisLock"]
