"""A server whose clock is stepped, either way: tokens rise, and nobody holds for ever."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast import aio as holdfast
from holdfast.chaos.servers.postgres import PostgresServer
from holdfast.chaos.servers.stepped import SteppedClock

YEAR = 366 * 86400


@pytest.fixture
def clock() -> Iterator[SteppedClock]:
    made = SteppedClock()
    yield made
    made.remove()


@pytest.fixture
def server(clock: SteppedClock) -> Iterator[PostgresServer]:
    made = PostgresServer("fsync=off", environment=clock.environment)
    yield made
    made.stop()


@pytest.mark.parametrize("seconds", [YEAR, -YEAR])
async def test_tokens_rise_whichever_way_the_clock_is_stepped(
    server: PostgresServer, clock: SteppedClock, seconds: int
) -> None:
    async with holdfast.connect(server.url) as locks:
        tokens = []
        for offset in (0, seconds, 0):
            clock.step(offset)
            for _ in range(2):
                lease = await locks.lock("x").acquire(timeout=10.0)
                tokens.append(lease.token)
                await lease.release()
        assert tokens == sorted(set(tokens))


async def test_a_step_forward_ends_leases_and_the_holder_is_told(
    server: PostgresServer, clock: SteppedClock
) -> None:
    async with holdfast.connect(server.url) as locks, holdfast.connect(server.url) as others:
        lease = await locks.lock("x", ttl=6.0).acquire()
        clock.step(YEAR)
        rival = await others.lock("x").acquire(timeout=10.0)
        assert rival.token > lease.token
        assert await lease.wait_lost(timeout=20.0) is True


async def test_a_step_back_leaves_the_lease_to_its_holder(
    server: PostgresServer, clock: SteppedClock
) -> None:
    async with holdfast.connect(server.url) as locks, holdfast.connect(server.url) as others:
        lease = await locks.lock("x", ttl=20.0).acquire()
        clock.step(-YEAR)
        assert await others.lock("x").try_acquire() is None
        await lease.renew()
        assert await lease.release() is True
        after = await others.lock("x").acquire(timeout=10.0)
        assert after.token > lease.token
