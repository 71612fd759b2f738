"""The arguments of the lock by redis-py's interface; in blocking code, `sleep` comes first."""

from __future__ import annotations

import inspect

import redis.asyncio.lock
import redis.lock

import holdfast
from holdfast import adapters
from holdfast.adapters import aio


def test_sleep_comes_first() -> None:
    with holdfast.connect("memory://") as locks:
        lock = adapters.RedisLock(locks, "x")
        assert lock.acquire(0.1, False) is True
        assert adapters.RedisLock(locks, "x").acquire(0.1, True, 0.05) is False
        lock.release()


def test_all_calls_take_the_arguments_of_redis_py() -> None:
    for ours, theirs in (
        (adapters.RedisLock, redis.lock.Lock),
        (aio.RedisLock, redis.asyncio.lock.Lock),
    ):
        for name in ("acquire", "release", "extend", "reacquire", "locked", "owned"):
            mine = list(inspect.signature(getattr(ours, name)).parameters)
            assert mine == list(inspect.signature(getattr(theirs, name)).parameters), name
        mine, original = (list(inspect.signature(kind).parameters) for kind in (ours, theirs))
        assert mine[1:] == original[1:]
