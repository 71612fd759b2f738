"""The server's wall clock is stepped: what is declared of that, and what holds all the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from _async.sql_scenes import waits
from holdfast import aio as holdfast
from holdfast.chaos.servers.mariadb import MariaServer
from holdfast.chaos.servers.stepped import SteppedClock
from worlds.aio import Job

HOUR = 3600


class SteppedMaria(MariaServer):
    def __init__(self) -> None:
        self._clock = SteppedClock()
        super().__init__(environment=self._clock.environment)

    def step(self, seconds: int) -> None:
        """Steps its clock so many seconds off the real time."""
        before = self._clock.offset
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT UNIX_TIMESTAMP()")
            ((start,),) = cursor.fetchall()
            self._clock.step(seconds)
            cursor.execute("SELECT UNIX_TIMESTAMP()")
            ((now,),) = cursor.fetchall()
        assert abs(now - start - (seconds - before)) < 30

    def stop(self) -> None:
        super().stop()
        self._clock.remove()


@pytest.fixture
def stepped() -> Iterator[SteppedMaria]:
    made = SteppedMaria()
    yield made
    made.stop()


async def test_tokens_rise_whichever_way_it_is_stepped(stepped: SteppedMaria) -> None:
    async with holdfast.connect(stepped.url) as locks:
        tokens: list[int] = []
        for step in (0, HOUR, -HOUR, 24 * HOUR, 0, -24 * HOUR, 0):
            stepped.step(step)
            for _ in range(2):
                lease = await locks.lock("y").acquire()
                tokens.append(lease.token)
                assert await lease.release() is True
            waited = await locks.lock("x").acquire()
            waiter = Job(locks.lock("x").acquire)
            await waits(locks)
            await waited.release()
            handed = await waiter.result()
            assert handed.token > waited.token
            assert await handed.release() is True
        assert tokens == sorted(set(tokens))
        permit = await locks.semaphore("pool", permits=2).acquire()
        stepped.step(-HOUR)
        assert (await locks.semaphore("pool", permits=2).acquire()).token > permit.token


async def test_a_step_forwards_ends_a_lease_early_and_its_holder_is_told(
    stepped: SteppedMaria,
) -> None:
    async with holdfast.connect(stepped.url) as locks, holdfast.connect(stepped.url) as others:
        assert "ends leases early" in locks.guarantees.clock_dependence
        lease = await locks.lock("x", ttl=3.0).acquire()
        stepped.step(HOUR)
        second = await others.lock("x").acquire(timeout=10.0)
        assert second.token > lease.token
        assert await lease.wait_lost(timeout=10.0) is True


async def test_summer_time_ends_no_lease(stepped: SteppedMaria) -> None:
    """The server's zone is one in which an hour comes twice; the clock of leases knows no zones."""
    with stepped.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET GLOBAL time_zone = '-03:00'")
        async with holdfast.connect(stepped.url) as locks:
            lease = await locks.lock("x", ttl=60.0).acquire()
            cursor.execute("SET GLOBAL time_zone = '+11:00'")
            async with holdfast.connect(stepped.url) as others:
                assert await others.lock("x").try_acquire() is None
                assert 0 < (await others.inspect("x")).holders[0].remaining <= 60.0
            assert await lease.release() is True
