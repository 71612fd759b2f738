"""The lock that goes by the interface of `asyncio.Lock`: each test is run on the original as well."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast import aio as holdfast
from holdfast.adapters.aio import AsyncioLock
from worlds.aio import eventually

KINDS = ["original", "adapter"]
_numbers = itertools.count(1)


@asynccontextmanager
async def made(kind: str) -> AsyncIterator[Any]:
    if kind == "original":
        yield asyncio.Lock()
        return
    async with holdfast.connect(f"memory://asyncio-{next(_numbers)}") as locks:
        yield AsyncioLock(locks, "x")


@pytest.mark.parametrize("kind", KINDS)
async def test_acquire_and_release(kind: str) -> None:
    async with made(kind) as lock:
        assert not lock.locked()
        assert "unlocked" in repr(lock)
        assert await lock.acquire() is True
        assert lock.locked()
        assert lock.release() is None
        assert not lock.locked()
        assert await lock.acquire() is True
        lock.release()
        with pytest.raises(RuntimeError, match="not acquired"):
            lock.release()


@pytest.mark.parametrize("kind", KINDS)
async def test_tasks_are_kept_apart(kind: str) -> None:
    async with made(kind) as lock:
        inside: list[int] = []

        async def work(by_hand: bool) -> None:
            for _ in range(10):
                if by_hand:
                    await lock.acquire()
                    try:
                        await turn()
                    finally:
                        lock.release()
                else:
                    async with lock as entered:
                        assert entered is None
                        await turn()

        async def turn() -> None:
            inside.append(1)
            assert len(inside) == 1
            await asyncio.sleep(0)
            inside.pop()

        await asyncio.gather(*(work(number % 2 == 0) for number in range(8)))
        assert not lock.locked()


@pytest.mark.parametrize("kind", KINDS)
async def test_another_task_may_release(kind: str) -> None:
    async with made(kind) as lock:
        await asyncio.create_task(lock.acquire())
        assert lock.locked()
        lock.release()
        assert not lock.locked()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_waiter_that_is_cancelled_leaves_it_to_the_next(kind: str) -> None:
    async with made(kind) as lock:
        await lock.acquire()
        first, second = (asyncio.create_task(lock.acquire()) for _ in range(2))
        await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.wait({first})
        lock.release()
        assert await asyncio.wait_for(second, 20.0) is True
        lock.release()


@pytest.mark.parametrize("kind", KINDS)
async def test_what_the_body_raises_comes_out(kind: str) -> None:
    async with made(kind) as lock:
        with pytest.raises(KeyError):
            async with lock:
                raise KeyError("its own")
        assert not lock.locked()


# What differs from the original.


async def test_others_are_kept_apart_too_and_a_release_reaches_the_store() -> None:
    async with (
        holdfast.connect("memory://apart") as locks,
        holdfast.connect("memory://apart") as others,
    ):
        lock = AsyncioLock(locks, "x")
        await lock.acquire()
        assert lock.lease is not None
        assert lock.lease.token > 0
        assert await others.lock("x").try_acquire() is None
        lock.release()

        async def free() -> bool:
            return not (await others.inspect("x")).held

        await eventually(free)
        async with lock:
            assert await others.lock("x").try_acquire() is None
        assert not (await others.inspect("x")).held


async def test_a_body_whose_lease_is_lost_is_stopped() -> None:
    async with holdfast.connect("memory://stopped") as locks:
        with pytest.raises(holdfast.LeaseLost):
            async with AsyncioLock(locks, "x", ttl=0.3, renew=False):
                await asyncio.sleep(30.0)


async def test_a_timeout_of_the_lock_raises() -> None:
    async with holdfast.connect("memory://timeout") as locks, AsyncioLock(locks, "x"):
        with pytest.raises(holdfast.LockTimeout):
            await AsyncioLock(locks, "x", timeout=0.05).acquire()


async def test_a_release_that_fails_is_quiet_and_close_gives_back_the_rest() -> None:
    async with holdfast.connect("memory://quiet") as others:
        locks = holdfast.connect("memory://quiet")
        lock = AsyncioLock(locks, "x")
        await lock.acquire()
        lock.release()
        await locks.close()
        assert not (await others.inspect("x")).held


async def test_a_release_that_the_store_does_not_answer_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with holdfast.connect("memory://told") as locks:
        events: list[Any] = []
        locks.on_event(events.append)
        lock = AsyncioLock(locks, "x")
        await lock.acquire()
        lease = lock.lease
        assert lease is not None
        backend = lease._hold._session.backend
        with monkeypatch.context() as patch:
            patch.setattr(type(backend), "release", unanswered)
            lock.release()
            assert not lock.locked()
            await eventually(lambda: any(event.kind == "release_failed" for event in events))
        assert lock.lease is None


async def unanswered(*words: object) -> bool:
    raise holdfast.BackendUnavailable("no answer")


async def test_an_exception_at_the_door_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with holdfast.connect("memory://door") as locks:
        lock = AsyncioLock(locks, "x")

        def interrupted(lease: object) -> None:
            raise KeyError("at the door")

        with monkeypatch.context() as patch:
            patch.setattr(holdfast.Lease, "_begin", interrupted)
            with pytest.raises(KeyError, match="at the door"):
                async with lock:
                    pytest.fail("it was entered")
        assert not (await locks.inspect("x")).held
        assert lock.lease is None
        async with lock:
            assert lock.locked()


async def test_an_exception_while_the_lease_is_noted_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with holdfast.connect("memory://noted") as locks:
        lock = AsyncioLock(locks, "x")
        monkeypatch.setattr(lock, "_leases", Interrupted())
        with pytest.raises(KeyError, match="by a signal"):
            await lock.acquire()
        assert not (await locks.inspect("x")).held
        assert lock.lease is None
        assert await lock.acquire() is True


class Interrupted(list[Any]):
    """A list at whose next end an exception comes from a signal's handler."""

    def append(self, entry: Any) -> None:
        super().append(entry)
        raise KeyError("by a signal")
