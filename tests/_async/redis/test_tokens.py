"""Tokens of a semaphore with very many permits, and of locks beside it, also if the data is lost."""

from __future__ import annotations

from holdfast import aio as holdfast
from holdfast.chaos.servers.redis import RedisServer
from holdfast.stores.redis.keys import Naming

PERMITS = 100_000
"""So many that each grant takes the tokens 100 ms ahead: more than it takes on a busy machine."""
NAME = "pool"


def take_all_slots_but(server: RedisServer, slots: set[int]) -> None:
    """Fills the semaphore, as thousands of holders would."""
    holders = f"holdfast:{{{NAME}}}:h"
    for start in range(0, PERMITS, 1000):
        some = [slot for slot in range(start, start + 1000) if slot not in slots]
        words = [word for slot in some for word in (f"\x1f{slot}", "")]
        server("HSET", holders, *words)


def clock(server: RedisServer) -> int:
    seconds, micros = server("TIME")
    return int(seconds) * 1_000_000 + int(micros)


def neighbour() -> str:
    """Returns the name of a lock whose tokens come from the same counter."""
    naming = Naming("holdfast", None)
    wanted = naming.of(NAME).counter
    return next(f"n{i}" for i in range(10_000) if naming.of(f"n{i}").counter == wanted)


async def churn(locks: holdfast.Locks, server: RedisServer) -> int:
    """Takes the last free slot of a full semaphore again and again; returns the last token."""
    pool = locks.semaphore(NAME, permits=PERMITS, ttl=60.0)
    stays, goes = await pool.acquire(), await pool.acquire()
    take_all_slots_but(server, {stays.token % PERMITS, goes.token % PERMITS})
    slot, last = goes.token % PERMITS, goes.token
    await goes.release()
    for _ in range(30):
        lease = await pool.acquire()
        assert lease.token > last
        assert lease.token % PERMITS == slot
        last = lease.token
        assert (await locks.inspect(NAME)).token == last
        assert await lease.release() is True
    await stays.release()
    return last


async def test_a_full_semaphore_takes_no_other_lock_ahead_of_the_clock(server: RedisServer) -> None:
    async with holdfast.connect(server.url) as locks:
        last = await churn(locks, server)
        assert last > clock(server)
        async with locks.lock(neighbour()) as lease:
            before = lease.token
        assert before <= clock(server)
    server("FLUSHALL")  # all data is lost
    async with holdfast.connect(server.url) as locks, locks.lock(neighbour()) as lease:
        assert lease.token > before


async def test_a_lock_that_was_a_semaphore_goes_on_above_its_tokens(server: RedisServer) -> None:
    async with holdfast.connect(server.url) as locks:
        last = await churn(locks, server)
        server("DEL", *[f"holdfast:{{{NAME}}}{end}" for end in ("", ":h", ":e")])
        for _ in range(3):
            async with locks.lock(NAME) as lease:
                assert lease.token > last
                last = lease.token
