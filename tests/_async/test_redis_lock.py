"""The lock that goes by redis-py's interface: each test is run on redis-py's own as well."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis.exceptions import LockError, LockNotOwnedError

from holdfast import aio as holdfast
from holdfast.adapters._async.redis_lock import RedisLock
from stores import redis_server
from worlds.aio import Job, eventually, pause, redis_client

KINDS = ["redis-py", "redis", "memory"]
Make = Callable[..., Any]


@asynccontextmanager
async def maker(kind: str) -> AsyncIterator[Make]:
    """Yields a function that makes locks: those of redis-py, or ours on one of two stores."""
    server = redis_server()
    server("FLUSHALL")
    if kind == "redis-py":
        client = redis_client(server.port)
        yield client.lock
        await client.aclose()
        return
    url = server.url if kind == "redis" else "memory://redis-lock"
    async with holdfast.connect(url) as locks:

        def make(name: str, **options: Any) -> RedisLock:
            return RedisLock(locks, name, **options)

        yield make


@pytest.mark.parametrize("kind", KINDS)
async def test_acquire_and_release(kind: str) -> None:
    async with maker(kind) as make:
        lock = make("x")
        assert await lock.acquire(blocking=False) is True
        assert await lock.locked() is True
        assert await lock.owned() is True
        assert isinstance(lock.local.token, bytes)
        other = make("x")
        assert await other.acquire(blocking=False) is False
        assert await other.locked() is True
        assert await other.owned() is False
        assert await lock.release() is None
        assert lock.local.token is None
        assert await lock.locked() is False
        assert await other.acquire(blocking=False) is True
        await other.release()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_token_of_ones_own(kind: str) -> None:
    async with maker(kind) as make:
        lock = make("x")
        assert await lock.acquire(blocking=False, token="mine") is True
        assert lock.local.token == b"mine"
        await lock.release()
        assert await lock.acquire(blocking=False, token=b"mine-too") is True
        assert lock.local.token == b"mine-too"
        await lock.release()


@pytest.mark.parametrize("kind", KINDS)
async def test_how_long_it_waits(kind: str) -> None:
    async with maker(kind) as make:
        held = make("x")
        await held.acquire()
        assert await make("x", blocking=False).acquire() is False
        assert await make("x", blocking_timeout=0.2, sleep=0.05).acquire() is False
        assert await make("x").acquire(blocking_timeout=0.2) is False
        assert await make("x", blocking_timeout=0).acquire() is False
        assert await make("x").acquire(blocking=False, blocking_timeout=30) is False
        waiting = Job(make("x", sleep=0.05, thread_local=False).acquire)
        await pause(0.1)
        assert not waiting.done()
        await held.release()
        assert await waiting.result() is True


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_not_acquired_is_refused(kind: str) -> None:
    async with maker(kind) as make:
        lock = make("x", timeout=10)
        for call in (lock.release, lock.reacquire):
            with pytest.raises(LockError) as caught:
                await call()
            assert not isinstance(caught.value, LockNotOwnedError)
            assert kind == "redis-py" or caught.value.lock_name == "x"
        with pytest.raises(LockError):
            await lock.extend(10)
        await lock.acquire()
        await lock.release()
        with pytest.raises(LockError):
            await lock.release()


@pytest.mark.parametrize("kind", KINDS)
async def test_without_a_timeout_it_cannot_be_extended(kind: str) -> None:
    async with maker(kind) as make:
        lock = make("x")
        await lock.acquire()
        with pytest.raises(LockError, match="no timeout"):
            await lock.extend(10)
        with pytest.raises(LockError, match="no timeout"):
            await lock.reacquire()
        await lock.release()


@pytest.mark.parametrize("kind", KINDS)
async def test_it_ends_with_its_timeout(kind: str) -> None:
    async with maker(kind) as make:
        lock, other = make("x", timeout=0.3), make("x", timeout=30)
        await lock.acquire()
        assert await other.acquire(blocking_timeout=20) is True
        assert await lock.owned() is False
        with pytest.raises(LockNotOwnedError):
            await lock.extend(10)
        with pytest.raises(LockNotOwnedError):
            await lock.reacquire()
        with pytest.raises(LockNotOwnedError):
            await lock.release()
        assert await other.owned() is True
        await other.release()


@pytest.mark.parametrize("kind", KINDS)
async def test_it_is_extended_and_reacquired(kind: str) -> None:
    async with maker(kind) as make:
        lock = make("x", timeout=2.0)
        await lock.acquire()
        assert await lock.extend(28) is True
        assert await lock.extend(60, replace_ttl=True) is True
        assert await lock.reacquire() is True
        await pause(0.1)
        assert await lock.owned() is True
        await lock.release()


async def test_how_long_an_extended_one_lasts() -> None:
    """What differs from redis-py: it is never shortened."""
    async with maker("memory") as make:
        lock = make("x", timeout=10.0)
        await lock.acquire()
        assert lock.lease.remaining() <= 10.0
        await lock.extend(10)
        assert 15.0 < lock.lease.remaining() <= 20.0
        await lock.extend(50, replace_ttl=True)
        assert 45.0 < lock.lease.remaining() <= 50.0
        await lock.reacquire()
        assert 45.0 < lock.lease.remaining() <= 50.0
        await lock.release()


@pytest.mark.parametrize("kind", KINDS)
async def test_with(kind: str) -> None:
    async with maker(kind) as make:
        async with make("x") as lock:
            assert await lock.owned() is True
            with pytest.raises(LockError, match="Unable to acquire"):
                async with make("x", blocking_timeout=0.1, sleep=0.05):
                    pytest.fail("it was entered")
        assert await lock.locked() is False
        with pytest.raises(LockNotOwnedError):
            async with make("x", timeout=0.1):
                await pause(0.3)
        with pytest.raises(LockError):
            async with make("x") as lock:
                await lock.release()
        async with make("x", raise_on_release_error=False) as lock:
            await lock.release()
        with pytest.raises(KeyError):
            async with make("x"):
                raise KeyError("its own")
        assert await lock.locked() is False


@pytest.mark.parametrize("kind", ["redis", "memory"])
async def test_the_fencing_token_is_at_hand(kind: str) -> None:
    async with maker(kind) as make:
        lock: Any = make("x")
        assert make("x").lease is None
        await lock.acquire()
        first = lock.lease.token
        await lock.release()
        await lock.acquire()
        assert lock.lease.token > first
        await lock.release()


async def test_a_token_serves_once() -> None:
    async with maker("memory") as make:
        lock = make("x")
        await lock.acquire(token="mine")
        await lock.release()
        with pytest.raises(holdfast.ConfigError, match="used before"):
            await lock.acquire(token="mine")


async def test_without_redis_py_the_errors_are_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async with maker("memory") as make:
        monkeypatch.setitem(__import__("sys").modules, "redis.exceptions", None)
        lock = make("x", timeout=0.1)
        with pytest.raises(holdfast.LockError, match="not owned"):
            await lock.release()
        await lock.acquire()
        await eventually(lambda: not lock.lease.held)
        with pytest.raises(holdfast.LockNotOwned, match="no longer owned"):
            await lock.release()


class Interrupted:
    """Takes the values of a lock; as the first token is noted, an exception comes from a signal."""

    lease: Any = None

    def __init__(self) -> None:
        self._token: bytes | None = None
        self._told = False

    @property
    def token(self) -> bytes | None:
        return self._token

    @token.setter
    def token(self, token: bytes | None) -> None:
        self._token = token
        if not self._told:
            self._told = True
            raise KeyError("by a signal")


async def test_an_exception_while_the_lease_is_noted_leaves_nothing() -> None:
    async with maker("memory") as make:
        lock = make("x")
        lock.local = Interrupted()
        with pytest.raises(KeyError, match="by a signal"):
            await lock.acquire()
        assert lock.lease is None
        assert lock.local.token is None
        assert await lock.locked() is False
        assert await lock.acquire(blocking=False) is True
        await lock.release()
