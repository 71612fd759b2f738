"""A holder that is told of a forced release: at once, also where its connection broke."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from _async.waiting import until_attentive, until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.redis import NEEDED, RedisServer
from worlds.aio import Job, eventually

LIMIT = 15.0
"""Seconds; the next renewal of these leases is much later."""


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[Proxy]:
    made = Proxy(server.port)
    yield made
    made.close()


async def test_every_victim_is_told(server: RedisServer) -> None:
    async with holdfast.connect(server.url) as locks, holdfast.connect(server.url) as others:
        pool = locks.semaphore("y", permits=100, ttl=90.0)
        leases = [await pool.acquire() for _ in range(100)]
        other = await locks.lock("z", ttl=90.0).acquire()
        assert await others.force_release("y") is True
        for lease in leases:
            assert await lease.wait_lost(timeout=LIMIT) is True
        assert other.held


async def test_one_that_was_handed_the_lock_is_told(server: RedisServer) -> None:
    async with holdfast.connect(server.url) as locks, holdfast.connect(server.url) as others:
        first = await others.lock("x", ttl=90.0).acquire()
        waiter = Job(locks.lock("x", ttl=90.0).acquire)
        await until_waiting(others)
        await first.release()
        lease = await waiter.result()
        await until_attentive(locks)
        assert await others.force_release("x") is True
        assert await lease.wait_lost(timeout=LIMIT) is True


async def test_a_holder_is_told_on_the_connection_that_replaced_another(
    server: RedisServer, proxy: Proxy
) -> None:
    async with holdfast.connect(proxy.url) as locks, holdfast.connect(server.url) as others:
        lease = await locks.lock("x", ttl=90.0).acquire()
        await until_attentive(locks)
        listening = server("PUBSUB", "NUMSUB", "holdfast:recall")[1]
        proxy.hang_up()
        await eventually(lambda: server("PUBSUB", "NUMSUB", "holdfast:recall")[1] < listening)
        await locks.inspect("x")  # asyncio connects again when it has something to ask
        await eventually(lambda: server("PUBSUB", "NUMSUB", "holdfast:recall")[1] >= listening)
        assert await others.force_release("x") is True
        assert await lease.wait_lost(timeout=LIMIT) is True


async def test_a_message_of_anybody_ends_no_lease(server: RedisServer) -> None:
    async with holdfast.connect(server.url) as locks:
        lease = await locks.lock("x", ttl=90.0).acquire()
        await until_attentive(locks)
        before = lease._hold._deadline
        for message in ("", "nonsense", "a b c", "nobody -1", f"{lease.owner} -1"):
            assert server("PUBLISH", "holdfast:recall", message) == 1
        await eventually(lambda: lease._hold._deadline > before)  # it was looked at, and renewed
        assert lease.held


async def test_a_user_who_may_not_listen_has_locks_all_the_same(server: RedisServer) -> None:
    server("ACL", "SETUSER", "app", "on", ">word", "resetchannels", "~holdfast:*", *NEEDED)
    url = f"redis://app:word@127.0.0.1:{server.port}/0"
    async with holdfast.connect(url) as locks, holdfast.connect(server.url) as others:
        lease = await locks.lock("x", ttl=3.0).acquire(timeout=LIMIT)
        await until_attentive(locks)  # as far as it may
        for _ in range(3):
            await (await locks.lock("y").acquire()).release()
        assert await others.force_release("x") is True
        assert await lease.wait_lost(timeout=LIMIT) is True  # by its next renewal


async def test_a_manager_that_is_closed_leaves_nobody_who_listens(server: RedisServer) -> None:
    def threads() -> list[str]:
        return [one.name for one in threading.enumerate() if "listener" in one.name]

    for _ in range(3):
        async with holdfast.connect(server.url) as locks:
            await locks.lock("x", ttl=90.0).acquire()
            await until_attentive(locks)
        assert threads() == []
    # Also one that is closed before it listens.
    async with holdfast.connect(server.url) as locks:
        await locks.lock("x", ttl=90.0).acquire()
    assert threads() == []
    await eventually(lambda: server("PUBSUB", "NUMSUB", "holdfast:recall")[1] == 0)


async def test_a_server_that_is_gone_for_a_while_is_listened_to_again(server: RedisServer) -> None:
    async with holdfast.connect(server.url) as locks, holdfast.connect(server.url) as others:
        await (await locks.lock("w").acquire()).release()
        await until_attentive(locks)
        server.kill()
        server.start()
        lease = await locks.lock("x", ttl=90.0).acquire()
        await until_attentive(locks)
        assert await others.force_release("x") is True
        assert await lease.wait_lost(timeout=LIMIT) is True
