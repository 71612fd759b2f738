"""Traps that other lock libraries fell into, where no other test here sets them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from _async.waiting import until_attentive, until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.redis import RedisServer
from holdfast.stores.redis._async import retry
from stores import redis_server
from worlds.aio import Job, eventually, pause
from worlds.descriptors import running_threads


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


def scripts_run(server: RedisServer) -> int:
    stats = server("INFO", "commandstats").decode()
    (line,) = [line for line in stats.splitlines() if line.startswith("cmdstat_evalsha:")]
    return int(line.partition("calls=")[2].partition(",")[0])


async def test_a_release_that_fails_does_not_hide_what_the_body_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retry, "RESTART_LIMIT", 0.1)
    own = RedisServer()

    async def body(locks: holdfast.Locks) -> None:
        async with locks.lock("x"):
            own.kill()
            raise ZeroDivisionError

    try:
        async with holdfast.connect(own.url) as locks:
            with pytest.raises(ZeroDivisionError):
                await body(locks)
            own.start()
    finally:
        own.stop()


async def test_a_renewal_that_arrives_after_the_release_keeps_nothing_alive(
    server: RedisServer, proxy: Proxy
) -> None:
    async with holdfast.connect(proxy.url) as locks, holdfast.connect(server.url) as others:
        lease = await locks.lock("x", ttl=60.0).acquire()
        proxy.keep_once = True
        await lease.renew()  # asked again, on another connection; the first is still under way
        assert await lease.release() is True
        rival = await others.lock("x", ttl=5.0, renew=False).acquire()
        proxy.let_go()
        assert server("PTTL", "holdfast:{x}") <= 5000
        assert (await others.inspect("x")).holders[0].owner == rival.owner
        assert await rival.release() is True
        assert server("EXISTS", "holdfast:{x}") == 0


async def test_a_release_that_arrives_late_does_not_free_the_next_holder(
    server: RedisServer, proxy: Proxy
) -> None:
    async with holdfast.connect(proxy.url) as locks, holdfast.connect(server.url) as others:
        lease = await locks.lock("x").acquire()
        proxy.keep_once = True
        assert await lease.release() is True  # asked again; the first is still under way
        rival = await others.lock("x").acquire()
        proxy.let_go()
        await rival.renew()
        assert await rival.release() is True


async def test_a_try_that_fails_burns_no_token(server: RedisServer) -> None:
    async with holdfast.connect(server.url) as locks:
        lease = await locks.lock("x").acquire()
        (counter,) = server("KEYS", "holdfast:token:*")
        for _ in range(3):
            assert await locks.lock("x").try_acquire() is None
            assert await locks.lock("x").try_acquire(timeout=0.01) is None
        assert int(server("GET", counter)) == lease.token


async def test_nobody_polls(server: RedisServer) -> None:
    async with holdfast.connect(server.url, heartbeat=30.0) as locks:
        await (await locks.lock("w").acquire()).release()
        await until_attentive(locks)  # else the first leases are looked at when it is
        lease = await locks.lock("x", ttl=90.0).acquire()
        waiters = [Job(locks.lock("x", ttl=90.0).acquire) for _ in range(3)]

        async def wait() -> bool:
            return len((await locks.inspect("x")).waiters) == 3

        await eventually(wait)
        before = scripts_run(server)
        await pause(0.4)
        assert scripts_run(server) == before
        await lease.release()
        while waiters:
            await eventually(lambda: any(job.done() for job in waiters))
            (done,) = [job for job in waiters if job.done()]
            waiters.remove(done)
            await (await done.result()).release()
        # A release for each; a hand-over has to be asked for by nobody.
        assert scripts_run(server) <= before + 8


async def test_nobody_polls_a_lock_that_a_stranger_took_for_ever(server: RedisServer) -> None:
    async with holdfast.connect(server.url, heartbeat=30.0) as locks:
        server("SET", "holdfast:{x}", "theirs")
        waiter = Job(locks.lock("x", ttl=90.0).acquire)

        await until_waiting(locks)
        before = scripts_run(server)
        await pause(0.4)
        assert scripts_run(server) == before
        assert await locks.force_release("x") is True
        assert (await waiter.result()).held


async def test_many_leases_are_renewed_by_a_few_commands_and_one_thread(
    server: RedisServer,
) -> None:
    """Counts threads, too: blocking code has one that renews, and one that hears of forced releases."""
    async with holdfast.connect(server.url) as locks:
        threads = running_threads()
        leases = [await locks.lock(f"n{number}", ttl=3.0).acquire() for number in range(250)]
        before = scripts_run(server)
        ends = [lease._hold._deadline for lease in leases]
        await eventually(
            lambda: all(
                lease._hold._deadline > end for lease, end in zip(leases, ends, strict=True)
            )
        )
        assert all(lease.held for lease in leases)
        assert 2 <= scripts_run(server) - before <= 60  # in batches
        await eventually(lambda: running_threads() <= threads + 2)


async def test_a_lost_answer_is_no_refusal_also_where_a_client_was_given(
    server: RedisServer, proxy: Proxy
) -> None:
    """Loses a reply: redis-py would repeat the command, and take its own lock for another's."""
    import redis
    import redis.asyncio

    from holdfast.stores.redis.wire.aio import ASYNCHRONOUS

    client = (redis.asyncio.Redis if ASYNCHRONOUS else redis.Redis)(port=proxy.port)
    async with holdfast.connect(client) as locks:
        await (await locks.lock("x").acquire()).release()
        proxy.reset_once = True
        lease = await locks.lock("x").try_acquire()
        assert lease is not None
        assert (await locks.inspect("x")).holders[0].owner == lease.owner
