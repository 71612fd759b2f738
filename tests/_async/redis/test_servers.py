"""A server that restarts, stands still, forgets: on real servers."""

from __future__ import annotations

import time

import pytest

from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast._async import session
from holdfast.chaos.servers.redis import RedisServer
from worlds.aio import Job, eventually, pause
from worlds.stalls import Stalls


async def test_scripts_that_the_server_forgot_are_brought_again(server: RedisServer) -> None:
    async with holdfast.connect(server.url) as locks:
        server("SCRIPT", "FLUSH")
        lease = await locks.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await until_waiting(locks)
        server("SCRIPT", "FLUSH")
        await lease.renew()
        server("SCRIPT", "FLUSH")
        assert (await locks.inspect("x")).held
        server("SCRIPT", "FLUSH")
        assert await lease.release() is True
        second = await waiter.result()
        server("SCRIPT", "FLUSH")
        assert await locks.force_release("x") is True
        assert second.token > lease.token


async def test_a_restart_without_data_ends_the_lease_and_tokens_go_on(server: RedisServer) -> None:
    async with holdfast.connect(server.url) as locks:
        lease = await locks.lock("x", ttl=1.5).acquire()
        server.kill()
        server.start()
        assert await lease.wait_lost(timeout=10.0) is True
        with pytest.raises(holdfast.LeaseLost):
            lease.ensure()
        second = await locks.lock("x").acquire(timeout=5.0)
        assert second.token > lease.token


async def test_a_lease_outlives_a_restart_with_data(durable: RedisServer) -> None:
    async with holdfast.connect(durable.url) as locks:
        lease = await locks.lock("x", ttl=20.0).acquire()
        durable.kill()
        durable.start()
        await lease.renew()
        assert lease.held
        assert await lease.release() is True


async def test_a_release_after_a_restart_without_data_says_that_it_had_ended(
    server: RedisServer,
) -> None:
    async with holdfast.connect(server.url) as locks:
        lease = await locks.lock("x", ttl=60.0).acquire()
        server.kill()
        server.start()

        # What was sent on the broken connection is in doubt; what is sent later is not.
        async def noticed() -> bool:
            try:
                await locks.inspect("x")
            except holdfast.BackendUnavailable:
                return False
            return True

        await eventually(noticed)
        assert await lease.release() is False


@pytest.mark.parametrize("renewed_by", ["itself", "the keeper"])
@pytest.mark.parametrize("again", [False, True])
async def test_a_holder_whose_grant_was_forgotten_is_told_at_its_next_renewal(
    server: RedisServer, again: bool, renewed_by: str
) -> None:
    """Restarts from a snapshot in which the holder was still waiting."""
    async with (
        holdfast.connect(server.url) as others,
        holdfast.connect(server.url, heartbeat=30.0) as locks,
    ):
        first = await others.lock("x", ttl=90.0).acquire()
        waiter = Job(locks.lock("x", ttl=90.0).acquire)
        await until_waiting(others)
        server("SAVE")
        await first.release()
        lease = await waiter.result()
        await lease.renew()
        server.kill()
        server.start()
        if again:  # as if it had its turn there, too: that would be another grant
            assert server("DEL", "holdfast:{x}") == 1
        if renewed_by == "itself":
            with pytest.raises(holdfast.LeaseLost):
                await lease.renew()
            assert not lease.held
        else:
            assert locks._live is not None
            locks._live.look_at([lease.owner])
            await eventually(lambda: not lease.held)

        async def left() -> bool:
            state = await others.inspect("x")
            owners = [one.owner for one in (*state.holders, *state.waiters)]
            return lease.owner not in owners

        await eventually(left)


async def test_waiters_outlive_a_restart_without_data(server: RedisServer) -> None:
    async with holdfast.connect(server.url, heartbeat=0.1) as locks:
        lease = await locks.lock("x").acquire()
        waiters = [Job(locks.lock("x").acquire) for _ in range(3)]
        await until_waiting(locks, 3)
        server.kill()
        server.start()
        tokens = [lease.token]
        for _ in waiters:
            await eventually(lambda: any(job.done() for job in waiters))
            done = [job for job in waiters if job.done()]
            assert [await job.error() for job in done] == [None]
            waiters.remove(done[0])
            granted = await done[0].result()
            tokens.append(granted.token)
            await granted.release()
        assert tokens == sorted(tokens)


async def test_a_request_under_way_outlives_a_restart(durable: RedisServer) -> None:
    async with holdfast.connect(durable.url) as locks:
        lease = await locks.lock("x", ttl=60.0).acquire()
        durable.pause()  # the request arrives, and its answer does not
        asking = Job(locks.lock("x").acquire)
        await pause(0.05)
        durable.kill()
        durable.start()
        await until_waiting(locks)
        assert await lease.release() is True
        assert (await asking.result()).token > lease.token


async def test_waiters_outlive_a_restart_with_data(durable: RedisServer) -> None:
    async with holdfast.connect(durable.url, heartbeat=0.2) as locks:
        lease = await locks.lock("x", ttl=60.0).acquire()
        waiter = Job(locks.lock("x").acquire)
        await until_waiting(locks)
        durable.kill()
        durable.start()
        await until_waiting(locks)
        assert not waiter.done()
        assert await lease.release() is True
        assert (await waiter.result()).token > lease.token


async def test_a_server_that_stands_still_is_not_waited_for_past_the_deadline(
    server: RedisServer,
) -> None:
    async with holdfast.connect(server.url) as locks:
        await (await locks.lock("x").acquire()).release()
        (await locks._session()).patience = 0.4
        server.pause()
        try:
            began = time.monotonic()
            with (
                Stalls() as stalls,
                pytest.raises(holdfast.BackendUnavailable, match="in time"),
            ):
                await locks.lock("x").acquire()
            # The request and its clean-up, each by its own deadline; not for the usual 5 s.
            assert time.monotonic() - began < 5.0 + stalls.seconds
        finally:
            server.resume()
        (await locks._session()).patience = session.IO_LIMIT

        # The request was carried out after all, and its clean-up too, or its tombstone.
        async def free() -> bool:
            return not (await locks.inspect("x")).held

        await eventually(free)
        assert await locks.lock("x").try_acquire(timeout=5.0) is not None


async def test_a_holder_is_told_while_the_server_stands_still(
    server: RedisServer,
) -> None:
    async with holdfast.connect(server.url) as locks:
        lease = await locks.lock("x", ttl=0.6).acquire(timeout=10.0)
        (await locks._session()).patience = 0.4
        lost: list[object] = []
        lease.on_lost(lost.append)
        server.pause()
        try:
            await eventually(lambda: lost)
            assert not lease.held
        finally:
            server.resume()


async def test_tokens_rise_across_flushall(server: RedisServer) -> None:
    async with holdfast.connect(server.url) as locks:
        lease = await locks.lock("x").acquire()
        server("FLUSHALL")
        with pytest.raises(holdfast.LeaseLost):
            await lease.renew()
        assert (await locks.lock("x").acquire()).token > lease.token


async def test_tokens_rise_without_a_stored_one_early_in_a_second(server: RedisServer) -> None:
    """Mints while the microseconds have fewer digits."""
    async with holdfast.connect(server.url) as locks:
        tokens = []
        lease = await locks.lock("x").acquire()
        tokens.append(lease.token)
        waiter = Job(locks.lock("x").acquire)
        await until_waiting(locks)
        (counter,) = server("KEYS", "holdfast:token:*")
        await eventually(lambda: int(server("TIME")[1]) < 50_000)
        server("DEL", counter)
        await lease.release()
        tokens.append((await waiter.result()).token)
        await (await waiter.result()).release()
        server("DEL", counter)
        tokens.append((await locks.lock("x").acquire()).token)
        assert tokens == sorted(set(tokens))


async def test_tokens_rise_while_the_stored_one_is_ahead_of_the_clock(server: RedisServer) -> None:
    async with holdfast.connect(server.url) as locks:
        first = await locks.lock("x").acquire()
        await first.release()
        (counter,) = server("KEYS", "holdfast:token:*")
        ahead = first.token + 3_600_000_000
        server("SET", counter, ahead)
        tokens = []
        for _ in range(3):
            lease = await locks.lock("x").acquire()
            tokens.append(lease.token)
            await lease.release()
        assert tokens == [ahead + 1, ahead + 2, ahead + 3]


@pytest.mark.parametrize("kind", ["normal", "pubsub"])
async def test_a_killed_connection_does_not_end_a_wait(server: RedisServer, kind: str) -> None:
    async with (
        holdfast.connect(server.url, heartbeat=0.2) as locks,
        holdfast.connect(server.url) as others,
    ):
        lease = await others.lock("x", ttl=60.0).acquire()
        waiter = Job(locks.lock("x").acquire)
        await until_waiting(others)
        server("CLIENT", "KILL", "TYPE", kind)
        await until_waiting(others)
        assert await lease.release() is True
        assert (await waiter.result()).token > lease.token


async def test_a_server_that_is_gone_is_said_to_be_and_used_when_it_is_back(
    server: RedisServer,
) -> None:
    async with holdfast.connect(server.url) as locks:
        await (await locks.lock("x").acquire()).release()
        server.kill()
        with pytest.raises(holdfast.BackendUnavailable, match="cannot reach"):
            await locks.lock("x").acquire()
        server.start()
        assert await locks.lock("x").try_acquire() is not None
