"""A server that refuses: a replica, one that loads, one out of memory, one with access lists; and one
that says why it lets nobody in, and hangs up."""

from __future__ import annotations

import pytest

from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.redis import NEEDED, RedisServer
from servers.refusing import RefusingServer, full
from worlds.aio import Job, eventually


async def test_a_replica_is_refused_in_words_until_it_is_the_primary(server: RedisServer) -> None:
    async with holdfast.connect(server.url) as locks:
        lease = await locks.lock("held", ttl=60.0).acquire()
        server("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(holdfast.BackendUnavailable, match="read-only replica"):
            await locks.lock("x").acquire()
        with pytest.raises(holdfast.BackendUnavailable, match="read-only replica"):
            await lease.release()
        server("REPLICAOF", "NO", "ONE")
        assert await lease.release() is True
        assert await locks.lock("x").try_acquire() is not None


async def test_a_loading_server_is_waited_for(durable: RedisServer) -> None:
    for number in range(40):
        durable("SET", f"filler:{number}", "x" * 100)
    async with holdfast.connect(durable.url) as locks:
        lease = await locks.lock("held", ttl=60.0).acquire()
        durable.kill()
        slow = ("--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024")
        durable.options = (*durable.options, *slow)
        durable.start(wait="LOADING")
        second = await locks.lock("x").acquire()
        assert second.token > lease.token
        assert await lease.release() is True


async def test_a_server_out_of_memory_refuses_in_words_and_keeps_what_is_held(
    server: RedisServer,
) -> None:
    async with holdfast.connect(server.url) as locks:
        lease = await locks.lock("x").acquire()
        server("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(holdfast.BackendUnavailable, match="out of memory"):
            await locks.lock("y").acquire()
        await lease.renew()
        assert await lease.release() is True
        server("CONFIG", "SET", "maxmemory", "0")
        assert await locks.lock("y").try_acquire() is not None


async def test_a_release_out_of_memory_still_hands_on(server: RedisServer) -> None:
    async with holdfast.connect(server.url) as locks:
        lease = await locks.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await until_waiting(locks)
        server("CONFIG", "SET", "maxmemory", "1")
        assert await lease.release() is True
        assert (await waiter.result()).token > lease.token
        server("CONFIG", "SET", "maxmemory", "0")


async def test_out_of_memory_those_who_share_a_lock_and_those_who_wait_stay(
    server: RedisServer,
) -> None:
    async with holdfast.connect(server.url) as locks:
        leases = [
            await locks.semaphore("semaphore", permits=2).acquire(),
            await locks.rwlock("rwlock").read().acquire(),
        ]
        await locks.lock("x", ttl=60.0).acquire()
        waiter = Job(locks.lock("x").acquire, 30.0)
        await until_waiting(locks)
        (seat,) = server("KEYS", "holdfast:{x}:q:*")
        server("CONFIG", "SET", "maxmemory", "1")
        for lease in leases:
            await lease.renew()
        assert server("PEXPIRE", seat, 2500) == 1
        await eventually(lambda: server("PTTL", seat) > 2500)  # its heartbeat has been taken
        server("CONFIG", "SET", "maxmemory", "0")
        assert await locks.force_release("x") is True
        assert (await waiter.result()).held


async def test_a_user_who_may_not_listen_cannot_wait_but_try(server: RedisServer) -> None:
    server("ACL", "SETUSER", "app", "on", ">word", "resetchannels", "~holdfast:*", *NEEDED)
    async with holdfast.connect(f"redis://app:word@127.0.0.1:{server.port}/0") as locks:
        lease = await locks.lock("x").acquire()
        with pytest.raises(holdfast.ConfigError, match="needs &holdfast:"):
            await locks.lock("x").acquire(timeout=20.0)
        server("CLIENT", "KILL", "USER", "app")
        assert await locks.lock("x").try_acquire() is None
        assert await lease.release() is True


async def test_a_user_who_may_listen_no_more_keeps_what_it_holds(server: RedisServer) -> None:
    """A server hangs up when it takes such a right away."""
    rights = ("on", ">word", "resetchannels", "~holdfast:*", "&holdfast:*", *NEEDED)
    server("ACL", "SETUSER", "app", *rights)
    async with holdfast.connect(f"redis://app:word@127.0.0.1:{server.port}/0") as locks:
        lease = await locks.lock("x", ttl=20.0).acquire()
        waiter = Job(locks.lock("x").try_acquire, 60.0)
        await until_waiting(locks)
        server("ACL", "SETUSER", "app", "resetchannels")
        await lease.renew()
        other = await locks.lock("y").try_acquire()
        assert other is not None
        assert await other.release() is True
        assert await lease.release() is True
        assert await waiter.result() is not None  # it asks from time to time


async def test_nobody_is_let_in_without_the_password_and_it_is_never_shown() -> None:
    server = RedisServer()
    try:
        server(
            "ACL",
            "SETUSER",
            "app",
            "on",
            ">s3cr:t/@",
            "resetchannels",
            "~holdfast:*",
            "&holdfast:*",
            *NEEDED,
        )
        good = f"redis://app:s3cr%3At%2F%40@127.0.0.1:{server.port}/0"
        async with holdfast.connect(good) as locks:
            assert "s3cr" not in repr(locks) + locks.url
            lease = await locks.lock("x").acquire()
            waiter = Job(locks.lock("x").acquire)
            await until_waiting(locks)
            await lease.release()
            await (await waiter.result()).release()
        with pytest.raises(holdfast.ConfigError, match="does not let us in") as raised:
            await holdfast.connect(good.replace("s3cr", "wr0ng")).lock("x").acquire()
        assert "wr0ng" not in str(raised.value)
        assert "s3cr" not in str(raised.value)
    finally:
        server.stop()


@pytest.mark.parametrize("db", [0, 1])
async def test_a_server_with_too_many_clients_is_quoted(server: RedisServer, db: int) -> None:
    url = f"redis://127.0.0.1:{server.port}/{db}"
    with (
        full(server),
        pytest.raises(holdfast.BackendUnavailable, match="max number of clients"),
    ):
        await holdfast.connect(url).lock("x").acquire()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    "url",
    ["redis://{}/0", "redis://{}/1", "redis+sentinel://{}/main", "redis+cluster://{}"],
    ids=["plain", "database", "sentinel", "cluster"],
)
async def test_a_server_in_protected_mode_is_quoted(url: str, late: bool) -> None:
    with (
        RefusingServer(late=late) as refusing,
        pytest.raises(holdfast.BackendUnavailable, match="protected mode"),
    ):
        await holdfast.connect(url.format(f"127.0.0.1:{refusing.port}")).lock("x").acquire()


@pytest.mark.parametrize("late", [False, True])
async def test_a_server_that_lets_nobody_in_any_more_is_quoted(
    server: RedisServer, late: bool
) -> None:
    async with holdfast.connect(server.url) as locks:
        lease = await locks.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await until_waiting(locks)
        await lease.release()
        assert (await waiter.result()).held
        server.kill()
        with (
            RefusingServer(late=late, port=server.port),
            pytest.raises(holdfast.BackendUnavailable, match="protected mode"),
        ):
            await locks.lock("y").acquire(timeout=5.0)
