"""Locks that their holder may take again."""

from __future__ import annotations

import pytest

from holdfast import aio as holdfast
from worlds.aio import Job, eventually


async def test_the_holder_takes_it_again_and_keeps_its_token(url: str) -> None:
    async with holdfast.connect(url) as locks:
        async with locks.rlock("x") as outer:
            async with locks.rlock("x", ttl=5.0) as inner:  # another object, the same lock
                assert inner.token == outer.token
                assert inner.owner == outer.owner
            assert outer.held
            again = await locks.rlock("x").try_acquire()
            assert again is not None
            assert again.token == outer.token
            assert await again.release() is True
            state = await locks.inspect("x")
            assert [holder.token for holder in state.holders] == [outer.token]
        assert not outer.held
        assert not (await locks.inspect("x")).held


async def test_it_is_free_after_as_many_releases(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lock = locks.rlock("x")
        lease = await lock.acquire()
        assert await lock.acquire() is lease
        assert await lock.acquire() is lease
        for _ in range(2):
            assert await lease.release() is True
            assert lease.held
            assert (await locks.inspect("x")).held
        assert await lease.release() is True
        assert not (await locks.inspect("x")).held
        assert await lease.release() is False
        assert (await lock.acquire()).token > lease.token


async def test_others_do_not_get_in(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as elsewhere:
        lock = locks.rlock("x")
        lease = await lock.acquire()
        assert await Job(lock.try_acquire).result() is None  # another task, or thread
        assert await locks.lock("x").try_acquire() is None  # the plain one
        assert await elsewhere.rlock("x").try_acquire() is None
        await lock.acquire()
        await lease.release()
        assert await Job(lock.try_acquire).result() is None
        await lease.release()
        other = await Job(lock.try_acquire).result()
        assert other is not None
        assert other.token > lease.token


async def test_a_stale_holder_never_sees_the_next_ones_token(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as elsewhere:
        lock = locks.rlock("x", ttl=3.0)
        lease = await lock.acquire()
        token = lease.token
        await elsewhere.force_release("x")
        rival = await elsewhere.rlock("x").acquire(timeout=20.0)
        await eventually(lambda: not lease.held)
        assert lease.token == token < rival.token
        assert await lock.try_acquire() is None  # it is not theirs to take again
        assert await lease.release() is False
        assert rival.held


async def test_a_loss_inside_is_told_at_the_end_of_both(url: str) -> None:
    async with holdfast.connect(url) as locks:
        told: list[holdfast.Lease] = []

        async def nested() -> None:
            async with locks.rlock("x") as lease:
                lease.on_lost(told.append)
                with pytest.raises(holdfast.LeaseLost):
                    await inner(lease)
                assert not lease.held

        async def inner(outer: holdfast.Lease) -> None:
            async with locks.rlock("x") as lease:
                assert lease is outer
                await locks.force_release("x")
                await lease.renew()

        with pytest.raises(holdfast.LeaseLost):
            await nested()
        (lost,) = told
        assert (await locks.rlock("x").acquire()).token > lost.token


async def test_a_body_that_raises_gives_back_its_own_part_only(url: str) -> None:
    async with holdfast.connect(url) as locks:
        async with locks.rlock("x") as outer:
            with pytest.raises(KeyError):
                async with locks.rlock("x"):
                    raise KeyError("mine")
            assert outer.held
        assert not (await locks.inspect("x")).held


async def test_closing_frees_it_however_often_it_was_taken(url: str) -> None:
    async with holdfast.connect(url) as others:
        async with holdfast.connect(url) as locks:
            leases = [await locks.rlock("x").acquire() for _ in range(3)]
        assert not leases[0].held
        assert not (await others.inspect("x")).held
