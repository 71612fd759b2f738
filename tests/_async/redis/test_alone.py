"""A lock that several may hold, while one holds it: it is one key, until another comes."""

from __future__ import annotations

import pytest

from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.redis import RedisServer
from worlds.aio import Job

LOCK, HOLDERS, ENDS = "holdfast:{x}", "holdfast:{x}:h", "holdfast:{x}:e"


def keys(server: RedisServer) -> set[str]:
    """Returns the keys of the lock, without the last token, which is kept for a millisecond."""
    return {key.decode() for key in server("KEYS", "holdfast:{x}*")} - {"holdfast:{x}:f"}


@pytest.mark.parametrize("first", [0, 1])
async def test_it_is_one_key_until_another_comes(server: RedisServer, first: int) -> None:
    async with holdfast.connect(server.url) as locks:
        pool = locks.semaphore("x", permits=3)
        permits = [await pool.acquire()]
        assert keys(server) == {LOCK}
        await permits[0].renew()
        assert keys(server) == {LOCK}
        permits.append(await pool.acquire())
        assert keys(server) == {LOCK, HOLDERS, ENDS}
        assert {permit.slot for permit in permits} < {0, 1, 2}
        state = await locks.inspect("x")
        assert {(holder.owner, holder.token) for holder in state.holders} == {
            (permit.owner, permit.token) for permit in permits
        }
        await permits.pop(first).release()
        await permits[0].renew()
        await permits[0].release()
        assert keys(server) == set()


async def test_whoever_was_alone_keeps_its_end_and_its_slot(server: RedisServer) -> None:
    async with holdfast.connect(server.url) as locks:
        long = await locks.semaphore("x", permits=2, ttl=600.0).acquire()
        short = await locks.semaphore("x", permits=2, ttl=30.0).acquire()
        assert {long.slot, short.slot} == {0, 1}
        assert await locks.semaphore("x", permits=2).try_acquire() is None
        ends = {holder.owner: holder.remaining for holder in (await locks.inspect("x")).holders}
        assert 400.0 < ends[long.owner] < 600.1
        await short.release()
        for key in (LOCK, HOLDERS, ENDS):
            assert 400_000 < server("PTTL", key) < 600_100
        await long.release()


async def test_its_weight_counts(server: RedisServer) -> None:
    async with holdfast.connect(server.url) as locks:
        book = locks.rwlock("x")
        writer = await book.write().acquire()
        assert keys(server) == {LOCK}
        assert await book.read().try_acquire() is None
        await writer.release()
        reader = await book.read().acquire()
        assert keys(server) == {LOCK}
        assert await book.write().try_acquire() is None
        second = await book.read().acquire()
        waiting = Job(book.write().acquire)
        await until_waiting(locks)
        await reader.release()
        await second.release()
        assert (await waiting.result()).token > second.token


async def test_a_writer_alone_becomes_a_reader(server: RedisServer) -> None:
    async with holdfast.connect(server.url) as locks:
        book = locks.rwlock("x")
        writer = await book.write().acquire()
        await writer.downgrade()
        assert keys(server) == {LOCK}
        reader = await book.read().acquire()
        assert await book.write().try_acquire() is None
        assert await writer.release() is True
        assert await reader.release() is True
        assert keys(server) == set()


async def test_another_capacity_is_refused_and_a_stranger_is_no_holder(server: RedisServer) -> None:
    async with holdfast.connect(server.url) as locks:
        permit = await locks.semaphore("x", permits=2).acquire()
        with pytest.raises(holdfast.ConfigError, match="semaphore"):
            await locks.semaphore("x", permits=3).acquire()
        with pytest.raises(holdfast.ConfigError, match="semaphore"):
            await locks.lock("x").acquire()
        assert await permit.release() is True
        server("SET", LOCK, "hf3\x1fme\x1f7\x1f\x1f1\x1f2", "PX", 600_000)
        assert await locks.semaphore("x", permits=2).try_acquire() is None
        assert keys(server) == {LOCK}


async def test_what_was_left_of_others_does_not_count(server: RedisServer) -> None:
    async with holdfast.connect(server.url) as locks:
        pool = locks.semaphore("x", permits=2)
        lost = [await pool.acquire() for _ in range(2)]
        server("DEL", LOCK)
        permits = [await pool.acquire() for _ in range(2)]
        assert await pool.try_acquire() is None
        for permit in lost:
            assert await permit.release() is False
        for permit in permits:
            assert await permit.release() is True
        assert keys(server) == set()


async def test_a_lock_without_an_end_gets_one(server: RedisServer) -> None:
    async with holdfast.connect(server.url) as locks:
        pool = locks.semaphore("x", permits=2)
        await pool.acquire()
        server("PERSIST", LOCK)
        second = await pool.acquire()
        assert server("PTTL", LOCK) > 0
        await second.release()
