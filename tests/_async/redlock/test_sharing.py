"""Semaphores and read/write locks on real nodes, some of which are dead or have forgotten."""

from __future__ import annotations

import pytest

from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.redlock import RedlockNodes
from worlds.aio import Job, eventually, pause

from .scenes import connect

LARGE = 20_000


async def test_a_dead_node_costs_no_permit(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks:
        semaphore = locks.semaphore("x", permits=3, ttl=10.0)
        first = await semaphore.acquire()
        nodes.nodes[0].kill()
        others = [await semaphore.acquire(timeout=10.0) for _ in range(2)]
        assert {first.slot, *(lease.slot for lease in others)} == {0, 1, 2}
        assert await semaphore.try_acquire() is None
        await first.renew()
        for lease in (first, *others):
            assert await lease.release() is True


async def test_of_many_permits_each_is_found_whoever_has_the_others(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks, connect(nodes) as others:
        sides = [
            side.semaphore("x", permits=LARGE, ttl=10.0, renew=False) for side in (locks, others)
        ]
        leases = [await sides[number % 2].acquire(timeout=20.0) for number in range(100)]
        assert len({lease.slot for lease in leases}) == 100
        state = await locks.inspect("x")
        assert (state.kind, state.capacity, len(state.holders)) == ("semaphore", LARGE, 100)
        for lease in leases:
            assert await lease.release() is True
        assert not any(b"{x}" in key for key in nodes.nodes[0]("KEYS", "*"))


async def test_a_crowd_never_has_more_than_the_permits(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks, connect(nodes) as others:
        inside: set[int | None] = set()
        last: dict[int | None, int] = {}

        async def work(side: holdfast.Locks) -> None:
            for _ in range(15):
                async with side.semaphore("x", permits=4, ttl=10.0, timeout=60.0) as lease:
                    assert lease.slot not in inside
                    inside.add(lease.slot)
                    assert last.get(lease.slot, 0) < lease.token
                    last[lease.slot] = lease.token
                    await pause(0.001)
                    inside.discard(lease.slot)

        jobs = [Job(work, side) for side in (locks, others) for _ in range(5)]
        for job in jobs:
            await job.result()
        assert not inside


async def test_a_node_that_comes_back_empty_gives_no_slot_twice(nodes: RedlockNodes) -> None:
    async with connect(nodes, max_ttl=2.0) as locks:
        semaphore = locks.semaphore("x", permits=2, ttl=2.0)
        leases = [await semaphore.acquire() for _ in range(2)]
        nodes.nodes[1].kill()
        nodes.nodes[1].start()

        async def voting() -> bool:
            return not (await locks.inspect("x")).out

        await eventually(voting)
        assert all(lease.held for lease in leases)
        assert await semaphore.try_acquire() is None
        await leases[0].release()
        assert (await semaphore.acquire(timeout=10.0)).slot == leases[0].slot


async def test_a_writer_gets_through_a_stream_of_readers(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks, connect(nodes) as others:
        stopped = False

        async def read(side: holdfast.Locks) -> int:
            turns = 0
            while not stopped:
                async with side.rwlock("x", ttl=10.0).read():
                    turns += 1
                    await pause(0.02)
            return turns

        readers = [Job(read, side) for side in (locks, others) for _ in range(3)]
        for _ in range(3):
            async with await others.rwlock("x", ttl=10.0).write().acquire(timeout=30.0) as lease:
                holders = (await locks.inspect("x")).holders
                assert [holder.owner for holder in holders] == [lease.owner]
        stopped = True
        for reader in readers:
            assert await reader.result() > 0


async def test_a_dead_writer_that_waited_is_forgotten_soon(nodes: RedlockNodes) -> None:
    async with connect(nodes, heartbeat=0.3) as locks:
        book = locks.rwlock("x", ttl=10.0)
        first = await book.read().acquire()
        for node in nodes.nodes:
            node("SET", "holdfast:{x}:i", "somebody", "PX", "700")
        assert await book.read().try_acquire() is None
        second = await book.read().acquire(timeout=20.0)
        assert first.held
        assert second.held


async def test_a_writer_that_was_cancelled_lets_readers_in_at_once(nodes: RedlockNodes) -> None:
    async with connect(nodes, heartbeat=5.0) as locks, connect(nodes) as others:
        book = locks.rwlock("x", ttl=10.0)
        await book.read().acquire()
        writer = Job(book.write().try_acquire, 0.3)
        await until_waiting(others)
        assert await others.rwlock("x", ttl=10.0).read().try_acquire() is None
        assert await writer.result() is None

        async def free() -> bool:
            return not any(node("EXISTS", "holdfast:{x}:i") for node in nodes.nodes)

        await eventually(free)
        assert await others.rwlock("x", ttl=10.0).read().try_acquire() is not None


async def test_a_lock_and_an_election_do_not_share_a_name(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks:
        async with locks.lock("x", ttl=10.0):
            with pytest.raises(holdfast.ConfigError, match="in use as a lock"):
                await locks.semaphore("x", permits=1, ttl=10.0).acquire()
        async with locks.semaphore("x", permits=1, ttl=10.0) as lease:
            assert lease.slot == 0
            with pytest.raises(holdfast.ConfigError, match="semaphore of 1"):
                await locks.lock("x", ttl=10.0).acquire()


async def test_the_rest_of_a_round_of_another_kind_refuses_nobody(nodes: RedlockNodes) -> None:
    """One node has a hold that no majority knows of: that is not a lock in use."""
    async with connect(nodes) as locks:
        async with locks.semaphore("x", permits=2, ttl=10.0):
            text = nodes.nodes[0]("GET", "holdfast:{x}")
            holds = nodes.nodes[0]("HGETALL", "holdfast:{x}:h")
        nodes.nodes[0]("SET", "holdfast:{x}", text, "PX", "60000")
        nodes.nodes[0]("HSET", "holdfast:{x}:h", *holds)
        nodes.nodes[0]("ZADD", "holdfast:{x}:e", "99999999999999", holds[0])
        async with await locks.lock("x", ttl=10.0).acquire(timeout=10.0) as lease:
            assert lease.held
