"""Told before freed: however a lease ends, its holder is told first, and its body has ended."""

from __future__ import annotations

import pytest

from holdfast import aio as holdfast
from worlds.aio import Job, eventually, pause


class Scene:
    """A body that takes a while to end, and a rival; `order` is what happened."""

    def __init__(self, locks: holdfast.Locks, others: holdfast.Locks) -> None:
        self.locks = locks
        self.others = others
        self.order: list[str] = []

    async def body(self, lock: holdfast.Lock) -> None:
        async with lock as lease:
            self.order.append("in")
            try:
                await lease.wait_lost(20.0)  # blocking code looks; in asyncio it is cancelled here,
                await pause(0.3)  # or here
            finally:
                await pause(0.3)
                self.order.append("out")

    async def rival(self) -> None:
        await self.others.lock("x").acquire()
        self.order.append("rival")

    async def start(self, lock: holdfast.Lock) -> tuple[Job[None], Job[None]]:
        body = Job(self.body, lock)
        await eventually(lambda: self.order)
        rival = Job(self.rival)

        async def waits() -> bool:
            return len((await self.others.inspect("x")).waiters) == 1

        await eventually(waits)
        return body, rival


async def test_close_tells_a_body_and_waits_for_its_end(url: str) -> None:
    async with holdfast.connect(url) as others:
        locks = holdfast.connect(url)
        scene = Scene(locks, others)
        body, rival = await scene.start(locks.lock("x", ttl=30.0))
        await locks.close()
        error = await body.error()
        assert isinstance(error, holdfast.LeaseLost)
        assert "closed" in str(error)
        await rival.result()
        assert scene.order == ["in", "out", "rival"]


async def test_max_hold_tells_a_body_and_waits_for_its_end(url: str) -> None:
    async with holdfast.connect(url) as others, holdfast.connect(url) as locks:
        scene = Scene(locks, others)
        body, rival = await scene.start(locks.lock("x", ttl=30.0, max_hold=1.5))
        error = await body.error()
        assert isinstance(error, holdfast.LeaseLost)
        assert "max_hold" in str(error)
        await rival.result()
        assert scene.order == ["in", "out", "rival"]


async def test_close_calls_back_before_it_frees(url: str) -> None:
    async with holdfast.connect(url) as others:
        locks = holdfast.connect(url)
        lease = await locks.lock("x", ttl=30.0).acquire()
        told: list[object] = []
        lease.on_lost(told.append)
        quiet = await locks.lock("y", ttl=30.0).acquire()
        await locks.close()
        assert told == [lease]
        assert (lease.state, quiet.state) == ("lost", "released")
        for name in ("x", "y"):
            assert await others.lock(name).try_acquire() is not None


async def test_close_inside_a_body_does_not_wait_for_itself(url: str) -> None:
    locks = holdfast.connect(url)

    async def body() -> None:
        async with locks.lock("x", ttl=30.0) as lease:
            await locks.close()
            assert not lease.held

    error = await Job(body).error()
    assert isinstance(error, holdfast.LeaseLost)
    async with holdfast.connect(url) as others:
        assert await others.lock("x").try_acquire() is not None


async def test_a_re_entrant_lock_is_told_of_once(url: str) -> None:
    async with holdfast.connect(url) as others:
        locks = holdfast.connect(url)
        lock = locks.rlock("x", ttl=30.0)
        inside: list[bool] = []

        async def body() -> None:
            async with lock, lock as lease:
                inside.append(True)
                await lease.wait_lost(20.0)

        job = Job(body)
        await eventually(lambda: inside)
        await locks.close()
        assert isinstance(await job.error(), holdfast.LeaseLost)
        assert await others.lock("x").try_acquire() is not None


async def test_an_inner_body_that_ends_frees_nothing(url: str) -> None:
    """Of a re-entrant lock: the outer body still runs."""
    async with holdfast.connect(url) as others:
        locks = holdfast.connect(url)
        lock = locks.rlock("x", ttl=30.0)
        order: list[str] = []

        async def body() -> None:
            async with lock as lease:
                try:
                    async with lock:
                        order.append("in")
                        await lease.wait_lost(20.0)
                finally:
                    try:
                        await pause(0.3)  # in asyncio it is cancelled here, or before
                    finally:
                        await pause(0.3)
                        order.append("out")

        async def rival() -> None:
            await others.lock("x").acquire()
            order.append("rival")

        job = Job(body)
        await eventually(lambda: order)
        waiting = Job(rival)
        await locks.close()
        assert isinstance(await job.error(), holdfast.LeaseLost)
        await waiting.result()
        assert order == ["in", "out", "rival"]


async def test_a_keeper_that_comes_at_the_same_moment_frees_nothing_early() -> None:
    """It had taken the lease from its wheel when another thread found its time over."""
    async with holdfast.connect("memory://moment") as others:
        locks = holdfast.connect("memory://moment")
        keeper = (await locks._session()).keeper

        async def body() -> None:
            async with locks.lock("x", ttl=30.0) as lease:
                hold = lease._hold
                hold._freeing = True  # `_recall` has begun
                await keeper._renew([hold])
                assert lease.held
                hold._recall("a test wants it")
                await keeper._renew([hold])
                assert (await others.inspect("x")).held

        assert isinstance(await Job(body).error(), holdfast.LeaseLost)
        assert not (await others.inspect("x")).held
        await locks.close()


async def test_a_keeper_that_comes_at_the_same_moment_leaves_nobody_untold() -> None:
    async with holdfast.connect("memory://untold") as locks:
        lease = await locks.lock("x", ttl=30.0).acquire()
        told: list[object] = []
        lease.on_lost(told.append)
        hold = lease._hold
        hold._freeing = True  # `_recall` has begun
        await (await locks._session()).keeper._renew([hold])
        assert lease.held
        hold._recall("a test wants it")
        assert told == [lease]

        async def free() -> bool:
            return not (await locks.inspect("x")).held

        await eventually(free)


async def test_nothing_begins_while_close_waits_for_a_body(url: str) -> None:
    """Leases without a body are freed after that."""
    leave: list[bool] = []
    inside: list[bool] = []

    async def body(lock: holdfast.Lock) -> None:
        async with lock as lease:
            inside.append(True)
            try:
                await lease.wait_lost(20.0)
                await pause(0.1)
            finally:
                await eventually(lambda: leave)

    async with holdfast.connect(url) as others:
        locks = holdfast.connect(url)
        session = await locks._session()
        one, other = await locks.lock("a").acquire(), await locks.lock("b").acquire()
        several = await locks.multi(["c", "d"]).acquire()
        job = Job(body, locks.lock("x", ttl=30.0))
        await eventually(lambda: inside)
        closing = Job(locks.close)
        await eventually(lambda: session.closed)
        told: list[str] = []
        with pytest.raises(holdfast.LeaseLost, match="it is being released"):
            async with one:
                told.append("it began")
        one.on_lost(lambda lease: told.append(lease.name))
        assert told == ["a"]
        assert await other.wait_lost(20.0) is True
        assert await several.wait_lost(20.0) is True
        leave.append(True)
        assert isinstance(await job.error(), holdfast.LeaseLost)
        await closing.result()
        for name in "abcdx":
            assert await others.lock(name).try_acquire(5.0) is not None


# unasync: aio-only
async def test_a_close_that_was_cancelled_is_finished_by_the_next(url: str) -> None:
    import asyncio

    locks = holdfast.connect(url)
    told: list[object] = []
    for number in range(40):
        lease = await locks.lock(f"x{number}", ttl=30.0).acquire()
        lease.on_lost(told.append)
    for _ in range(3):
        task = asyncio.create_task(locks.close())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
    await locks.close()
    assert len(told) == 40
    async with holdfast.connect(url) as others:
        assert await others.list() == []


# unasync: end
