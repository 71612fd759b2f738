"""The keys that the server keeps, and for how long; those of locks that several share, too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast import aio as holdfast
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.redis import RedisServer
from stores import redis_server
from worlds.aio import Job, eventually


@pytest.fixture
def server() -> RedisServer:
    made = redis_server()
    made("FLUSHALL")
    return made


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[Proxy]:
    made = Proxy(server.port)
    yield made
    made.close()


def kept(server: RedisServer) -> list[bytes]:
    """Returns all keys but the counters."""
    return [key for key in server("KEYS", "*") if b":token:" not in key]


async def test_everything_but_the_counters_ends_by_itself(server: RedisServer) -> None:
    # No heartbeat falls into this test: what is seen is what enqueueing wrote.
    async with holdfast.connect(server.url, heartbeat=60.0) as locks:
        held = [
            await locks.lock("lock").acquire(),
            await locks.lock("mixed").acquire(),
            await locks.semaphore("semaphore", permits=2).acquire(),
            await locks.semaphore("semaphore", permits=2).acquire(),
            await locks.rwlock("book").read().acquire(),
        ]
        waiters = [
            Job(locks.lock("lock").acquire),
            Job(locks.lock("mixed").acquire),
            Job(locks.lock("mixed", fair=False).acquire),
            Job(locks.semaphore("semaphore", permits=2).acquire),
            Job(locks.rwlock("book").write().acquire),
        ]

        async def waiting() -> bool:
            return sum([len(state.waiters) for state in await locks.list()]) == len(waiters)

        await eventually(waiting)
        keys = [key for key in kept(server) if not key.endswith(b":f")]  # soon gone
        assert len(keys) == 4 + 2 * 2 + 4 + len(waiters)  # locks, :h and :e, queues, waiters
        assert [key for key in keys if server("PTTL", key) < 0] == []
        for lease in held:
            await lease.release()
        while waiters:
            await eventually(lambda: any(waiter.done() for waiter in waiters))
            (done, *_) = [waiter for waiter in waiters if waiter.done()]
            waiters.remove(done)
            await (await done.result()).release()
        await eventually(lambda: not kept(server))


@pytest.mark.parametrize("how", ["semaphore", "readers", "forced", "expired"])
async def test_who_is_handed_a_lock_and_does_not_answer_has_it_for_the_claim_window(
    server: RedisServer, proxy: Proxy, how: str
) -> None:
    async with (
        holdfast.connect(server.url) as others,
        holdfast.connect(proxy.url, claim_window=4.0, heartbeat=5.0) as locks,
    ):

        def lock(of: holdfast.Locks) -> holdfast.Lock:
            if how == "semaphore":
                return of.semaphore("x", permits=2, ttl=60.0)
            if how == "readers":
                return of.rwlock("x", ttl=60.0).read() if of is locks else rw.write()
            return of.lock("x", ttl=60.0, renew=False)

        rw = others.rwlock("x", ttl=60.0)
        held = [await lock(others).acquire() for _ in range(2 if how == "semaphore" else 1)]
        waiter = Job(lock(locks).acquire)

        async def waiting() -> bool:
            return len((await others.inspect("x")).waiters) == 1

        await eventually(waiting)
        proxy.stalled = True
        if how == "forced":
            await others.force_release("x")
        elif how == "expired":
            assert server("PEXPIRE", "holdfast:{x}", 1) == 1
            await eventually(lambda: not server("EXISTS", "holdfast:{x}"))
            assert (
                await others.lock("x").try_acquire() is None
            )  # finds it free, and admits the first
        else:
            await held[0].release()
        state = await others.inspect("x")
        (handed,) = [one for one in state.holders if one.owner not in [it.owner for it in held]]
        assert handed.remaining < 5.0
        proxy.stalled = False
        proxy.hang_up()
        await (await waiter.result()).release()


async def test_those_who_shared_a_lock_that_was_deleted_have_lost_it(server: RedisServer) -> None:
    async with holdfast.connect(server.url) as locks:
        pool = locks.semaphore("x", permits=2)
        lost = [await pool.acquire(), await pool.acquire()]
        assert server("DEL", "holdfast:{x}") == 1
        held = [await pool.try_acquire(), await pool.try_acquire()]
        assert None not in held
        for lease in lost:
            with pytest.raises(holdfast.LeaseLost):
                await lease.renew()
        assert await pool.try_acquire() is None


@pytest.mark.parametrize("fair", [None, False])
async def test_who_gives_up_leaves_no_trace_in_the_queue(
    server: RedisServer, fair: bool | None
) -> None:
    async with holdfast.connect(server.url) as locks:
        held = await locks.lock("x").acquire()
        lock = locks.lock("x", fair=fair)
        assert await lock.try_acquire(timeout=0.05) is None
        assert server("EXISTS", "holdfast:{x}:q") == 0
        first = Job(locks.lock("x").acquire)
        await eventually(lambda: server("LLEN", "holdfast:{x}:q") == 1)
        assert await lock.try_acquire(timeout=0.05) is None
        assert server("LLEN", "holdfast:{x}:q") == 1
        assert len(server("KEYS", "holdfast:*:q:*")) == 1
        await held.release()
        await (await first.result()).release()


async def test_many_holders_of_a_semaphore_have_slots_of_their_own_and_leave_nothing(
    server: RedisServer,
) -> None:
    many = 300
    async with holdfast.connect(server.url) as locks:
        pool = locks.semaphore("pool", permits=many, ttl=60.0)
        permits = [await pool.acquire() for _ in range(many)]
        for step in (1, many // 2, 7, 3, 2):  # one after the other, and many at once
            assert {permit.slot for permit in permits} == set(range(many))
            assert await pool.try_acquire() is None
            for number in range(0, many, step if step > 1 else many):
                assert await permits[number].release() is True
            permits = [permit if permit.held else await pool.acquire() for permit in permits]
        assert len((await locks.inspect("pool")).holders) == many
        for permit in permits:
            await permit.release()
        left = [key for key in server("KEYS", "*") if b":token:" not in key]
        assert left == []
