"""Other libraries that lock on Redis, each in the way its own documentation shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Take = Callable[[], Callable[[], object]]
"""A function that acquires the lock and returns the function that releases it."""

TTL = 30


def _given_back(lock: Any) -> Callable[[], object]:
    release: Callable[[], object] = lock.release
    return release


def redis_py(port: int, name: str) -> Take:
    import redis

    client = redis.Redis("127.0.0.1", port)

    def take() -> Callable[[], object]:
        lock = client.lock(name, timeout=TTL)
        assert lock.acquire()
        return _given_back(lock)

    return take


def python_redis_lock(port: int, name: str) -> Take:
    import redis
    import redis_lock

    client = redis.Redis("127.0.0.1", port)

    def take() -> Callable[[], object]:
        lock: Any = redis_lock.Lock(client, name, expire=TTL)
        assert lock.acquire()
        return _given_back(lock)

    return take


def sherlock(port: int, name: str) -> Take:
    import redis
    import sherlock

    client = redis.Redis("127.0.0.1", port)

    def take() -> Callable[[], object]:
        lock: Any = sherlock.RedisLock(name, client=client, expire=TTL)
        assert lock.acquire()
        return _given_back(lock)

    return take


def pottery(port: int, name: str) -> Take:
    import pottery
    import redis

    client = redis.Redis("127.0.0.1", port)

    def take() -> Callable[[], object]:
        lock: Any = pottery.Redlock(key=name, masters={client}, auto_release_time=TTL)
        assert lock.acquire()
        return _given_back(lock)

    return take


PEERS: dict[str, Callable[[int, str], Take]] = {
    "sherlock": sherlock,
    "redis-py Lock": redis_py,
    "python-redis-lock": python_redis_lock,
    "pottery, one node": pottery,
}
QUEUING = "python-redis-lock"
"""The only one of these libraries whose waiters are woken."""


def turn(take: Take) -> Callable[[], None]:
    """Returns a function that acquires and releases once."""

    def once() -> None:
        take()()

    return once
