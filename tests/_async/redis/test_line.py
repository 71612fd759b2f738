"""Answers that come late, are lost or cut in half, connections reset under a script: by a proxy."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from _async.waiting import until_attentive, until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.redis import RedisServer
from holdfast.stores.redis.wire.protocol import Late, Lost
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
    made.about = b"EVALSHA"  # what blocking code listens on beside it is left alone
    yield made
    made.close()


async def test_the_lease_is_counted_from_the_sending(server: RedisServer, proxy: Proxy) -> None:
    async with holdfast.connect(proxy.url) as locks:
        await (await locks.lock("x").acquire()).release()
        proxy.delay = 0.2
        lease = await locks.lock("x", ttl=10.0, renew=False).acquire()
        assert lease.held
        assert lease.remaining() <= 9.8
        proxy.delay = 0.0


async def test_a_renewal_by_the_keeper_is_counted_from_the_sending(
    server: RedisServer, proxy: Proxy
) -> None:
    async with holdfast.connect(proxy.url) as locks:
        lease = await locks.lock("x", ttl=60.0).acquire()
        before = lease._hold._deadline
        proxy.delay = 1.0
        assert locks._live is not None
        locks._live.look_at([lease.owner])  # the keeper renews it now
        await eventually(lambda: lease._hold._deadline != before)
        assert lease.remaining() < 60.0 - 0.6 - 0.5
        proxy.delay = 0.0


async def test_a_grant_whose_answer_never_comes_leaves_no_ghost(
    server: RedisServer, proxy: Proxy
) -> None:
    async with holdfast.connect(server.url) as others, holdfast.connect(proxy.url) as locks:
        await (await locks.lock("x").acquire()).release()
        proxy.swallow = True
        (await locks._session()).patience = 0.3
        with pytest.raises(holdfast.BackendUnavailable, match="in time"):
            await locks.lock("x").acquire()
        proxy.swallow = False

        async def free() -> bool:
            return not (await others.inspect("x")).held

        await eventually(free)
        assert await others.lock("x").try_acquire() is not None


async def test_a_connection_that_has_fallen_silent_is_replaced(
    server: RedisServer, proxy: Proxy
) -> None:
    async with holdfast.connect(proxy.url) as locks:
        await (await locks.lock("x").acquire()).release()
        proxy.mute()
        (await locks._session()).patience = 0.3
        with pytest.raises(holdfast.BackendUnavailable):
            await locks.lock("x").acquire()

        async def granted() -> bool:
            try:
                return await locks.lock("x").try_acquire() is not None
            except holdfast.BackendUnavailable:
                return False

        await eventually(granted)


async def test_a_renewal_that_is_not_answered_costs_no_lease_beside_it(
    server: RedisServer, proxy: Proxy
) -> None:
    """Hangs the renewal of a long TTL while a lease with a short one comes due."""
    async with holdfast.connect(proxy.url) as locks:
        long = await locks.lock("long", ttl=60.0).acquire()
        short = await locks.lock("short", ttl=4.8).acquire(timeout=10.0)
        deadline = short._hold._deadline
        proxy.mute()
        (await locks._session()).look_at([long.owner])
        await eventually(lambda: short._hold._deadline > deadline or not short.held)
        assert short.held
        assert long.held


@pytest.mark.parametrize("cut", [0, 1, 5])
async def test_an_answer_cut_in_half_is_asked_for_again(
    server: RedisServer, proxy: Proxy, cut: int
) -> None:
    async with holdfast.connect(proxy.url) as locks, holdfast.connect(server.url) as others:
        await (await locks.lock("x").acquire()).release()
        proxy.cut_once = cut
        lease = await locks.lock("x").acquire()
        state = await others.inspect("x")
        assert [(h.owner, h.token) for h in state.holders] == [(lease.owner, lease.token)]
        proxy.cut_once = cut
        assert await lease.release() is True
        assert not (await others.inspect("x")).held


async def test_a_connection_reset_under_a_script_is_asked_again(
    server: RedisServer, proxy: Proxy
) -> None:
    async with holdfast.connect(proxy.url) as locks, holdfast.connect(server.url) as others:
        await (await locks.lock("x").acquire()).release()
        proxy.reset_once = True
        lease = await locks.lock("x").acquire()
        assert (await others.inspect("x")).token == lease.token
        proxy.reset_once = True
        await lease.renew()
        assert lease.held
        proxy.reset_once = True
        assert await lease.release() is True
        proxy.reset_once = True
        assert (await locks.inspect("x")).holders == ()


@pytest.mark.parametrize("permits", [1, 2])
async def test_a_request_that_arrives_after_its_owner_has_left_is_refused(
    server: RedisServer, proxy: Proxy, permits: int
) -> None:
    async with holdfast.connect(proxy.url) as locks, holdfast.connect(server.url) as others:
        await (await locks.lock("x").acquire()).release()
        proxy.keep_once = True
        lock = locks.lock("x") if permits == 1 else locks.semaphore("x", permits=permits)
        lease = await lock.acquire()  # asked again, on another connection
        assert await lease.release() is True
        proxy.let_go()
        assert not (await others.inspect("x")).held
        assert await others.lock("x").try_acquire() is not None


async def test_a_try_that_arrives_after_it_was_answered_busy_is_refused(
    server: RedisServer, proxy: Proxy
) -> None:
    async with holdfast.connect(proxy.url) as locks, holdfast.connect(server.url) as others:
        held = await others.lock("x").acquire()
        assert await locks.lock("x").try_acquire() is None
        proxy.keep_once = True
        assert await locks.lock("x").try_acquire() is None  # asked again, on another connection
        assert await held.release() is True
        proxy.let_go()
        assert not (await others.inspect("x")).held


async def test_a_request_that_arrives_after_its_place_was_lost_is_refused(
    server: RedisServer, proxy: Proxy
) -> None:
    async with (
        holdfast.connect(server.url) as others,
        holdfast.connect(proxy.url, heartbeat=0.2) as locks,
    ):
        await (await locks.lock("x").acquire()).release()
        held = await others.lock("x", ttl=60.0).acquire()
        proxy.keep_once = True
        waiter = Job(locks.lock("x", ttl=60.0).acquire)  # asked again, on another connection

        async def place() -> str:
            return "".join([one.owner for one in (await others.inspect("x")).waiters])

        await eventually(place)
        first = await place()
        server("DEL", "holdfast:{x}:q", f"holdfast:{{x}}:q:{first}")

        async def another() -> bool:
            return await place() not in ("", first)

        await eventually(another)
        assert await held.release() is True
        assert await (await waiter.result()).release() is True
        proxy.let_go()
        assert not (await others.inspect("x")).held


async def test_a_waiter_whose_connection_is_reset_goes_on_waiting(
    server: RedisServer, proxy: Proxy
) -> None:
    async with (
        holdfast.connect(server.url) as others,
        holdfast.connect(proxy.url, heartbeat=0.2) as locks,
    ):
        lease = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)

        async def waits() -> bool:
            return len((await others.inspect("x")).waiters) == 1

        for _ in range(3):
            await eventually(waits)
            proxy.hang_up()
        await eventually(waits)
        await lease.release()
        assert (await waiter.result()).token > lease.token


async def test_a_waiter_is_woken_on_the_connection_that_replaced_another(
    server: RedisServer, proxy: Proxy
) -> None:
    known: set[bytes] = set()

    def listeners() -> set[bytes]:
        lines = server("CLIENT", "LIST", "TYPE", "pubsub").splitlines()
        return {line.split()[0] for line in lines} - known

    async with holdfast.connect(server.url) as others:
        lease = await others.lock("x", ttl=120.0).acquire()
        await until_attentive(others)
        known = listeners()
        # No heartbeat falls into this test: only the wake-up can tell it.
        async with holdfast.connect(proxy.url, heartbeat=60.0) as locks:
            waiter = Job(locks.lock("x").acquire)
            await until_waiting(others)
            before = listeners()
            assert len(before) == 1
            proxy.hang_up()
            await eventually(lambda: listeners() and not listeners() & before)
            assert len((await others.inspect("x")).waiters) == 1
            await lease.release()
            assert (await waiter.result()).token > lease.token


async def test_a_waiter_that_was_asked_for_twice_is_woken_where_it_listens(
    server: RedisServer, proxy: Proxy
) -> None:
    # No heartbeat falls into this test: only the wake-up can tell it.
    async with (
        holdfast.connect(server.url) as others,
        holdfast.connect(proxy.url, heartbeat=60.0) as locks,
    ):
        lease = await others.lock("x", ttl=90.0).acquire()
        assert await locks.lock("x").try_acquire(timeout=0.01) is None  # it has a channel now
        proxy.reset_once = True
        waiter = Job(locks.lock("x", ttl=90.0).acquire)  # enqueued, and asked again elsewhere

        async def waits() -> bool:
            if proxy.reset_once or not locks._live:
                return False
            queued = [one for one in locks._live.waiters.values() if not one.ended]
            return len(queued) == len((await others.inspect("x")).waiters) == 1

        await eventually(waits)
        assert await lease.release() is True
        assert (await waiter.result()).token > lease.token


@pytest.mark.parametrize("size", [1, 7, 8, 17, 18, 30, 70])
async def test_it_goes_round_whatever_pieces_answers_and_wake_ups_come_in(
    server: RedisServer, proxy: Proxy, size: int
) -> None:
    proxy.pieces = size
    tokens: list[int] = []

    async def take_turns() -> None:
        async with holdfast.connect(proxy.url, heartbeat=60.0) as locks:
            lock = locks.lock("x", ttl=90.0)
            for _ in range(20):
                async with await lock.acquire() as lease:
                    tokens.append(lease.token)

    jobs = [Job(take_turns) for _ in range(3)]
    for job in jobs:
        await job.result()
    assert len(tokens) == 60
    assert tokens == sorted(set(tokens))


async def test_a_place_in_the_queue_is_heard_of_without_the_wake_up(
    server: RedisServer, proxy: Proxy
) -> None:
    async with holdfast.connect(server.url) as others, holdfast.connect(proxy.url) as locks:
        first = await others.lock("x", ttl=90.0).acquire()
        assert await locks.lock("x").try_acquire(timeout=0.01) is None  # it has a channel now
        waiter = Job(locks.lock("x", ttl=90.0).acquire)
        await eventually(
            lambda: locks._live and [one for one in locks._live.waiters.values() if not one.ended]
        )
        # Others on the same connection are answered meanwhile.
        other = await locks.lock("y").acquire()
        assert await other.release() is True
        assert await first.release() is True
        assert (await waiter.result()).token > first.token


async def test_who_is_refused_until_its_time_is_over_is_told_why(server: RedisServer) -> None:
    """Raises the refusal though the last try was under way, and may still be carried out."""
    async with holdfast.connect(server.url) as locks:
        retrier: Any = (await locks._session()).backend._retrier  # type: ignore[attr-defined]
        deadline = retrier._clock.now() + 20.0

        async def broke() -> Any:
            raise Lost("its connection broke")

        with pytest.raises(Lost, match="broke"):
            await retrier.retry_refused(RuntimeError("LOADING data"), broke, deadline)

        async def late() -> Any:
            retrier._clock = SimpleNamespace(now=lambda: deadline)
            raise Late("it did not answer in time")

        with pytest.raises(Late, match="still loading its data") as raised:
            await retrier.retry_refused(RuntimeError("LOADING data"), late, deadline)
        assert not raised.value.broken
