"""The server's wall clock is stepped: what is declared of that, and what holds all the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.stepped import SteppedServer
from worlds.aio import Job, eventually

HOUR = 3600


@pytest.fixture
def server() -> Iterator[SteppedServer]:
    made = SteppedServer()
    yield made
    made.stop()


def seconds(server: SteppedServer) -> int:
    return int(server("TIME")[0])


async def test_tokens_rise_whichever_way_it_is_stepped(server: SteppedServer) -> None:
    async with holdfast.connect(server.url) as locks:
        tokens: list[int] = []
        start = seconds(server)
        for step in (0, HOUR, -HOUR, 24 * HOUR, 0, -24 * HOUR, 0):
            server.step(step)
            assert abs(seconds(server) - start - step) < 30  # it is stepped
            for _ in range(2):
                lease = await locks.lock("x").acquire()
                tokens.append(lease.token)
                assert await lease.release() is True
            waited = await locks.lock("y").acquire()
            waiter = Job(locks.lock("y").acquire)

            await until_waiting(locks, 1, "y")
            await waited.release()
            handed = await waiter.result()
            assert handed.token > waited.token
            assert await handed.release() is True
        assert tokens == sorted(set(tokens))
        permit = await locks.semaphore("pool", permits=2).acquire()
        server.step(-HOUR)
        assert (await locks.semaphore("pool", permits=2).acquire()).token > permit.token


@pytest.mark.parametrize("kind", ["lock", "semaphore", "writer"])
async def test_a_step_forwards_ends_leases_early_which_is_declared(
    server: SteppedServer, kind: str
) -> None:
    async with holdfast.connect(server.url) as locks, holdfast.connect(server.url) as others:
        assert "ends leases early" in locks.guarantees.clock_dependence

        def asked(manager: holdfast.Locks) -> holdfast.Lock:
            if kind == "lock":
                return manager.lock("x", ttl=20.0)
            if kind == "semaphore":
                return manager.semaphore("x", permits=1, ttl=20.0)
            return manager.rwlock("x", ttl=20.0).write()

        lease = await asked(locks).acquire()
        lost: list[object] = []
        lease.on_lost(lost.append)
        assert await asked(others).try_acquire() is None
        server.step(31)
        rival = await asked(others).try_acquire()
        assert rival is not None
        assert rival.token > lease.token  # so that the fence tells the two apart
        (await locks._session()).look_at([lease.owner])  # the holder is told by its next renewal
        await eventually(lambda: lost)
        assert not lease.held
        assert rival.held
        assert await lease.release() is False
        assert await rival.release() is True


async def test_waiters_outlive_a_step_forwards(server: SteppedServer) -> None:
    async with holdfast.connect(server.url, heartbeat=0.1) as locks:
        lease = await locks.lock("x", ttl=60.0).acquire()
        waiters = [Job(locks.lock("x", ttl=60.0).acquire) for _ in range(2)]

        async def wait() -> bool:
            return len((await locks.inspect("x")).waiters) == 2

        await eventually(wait)
        server.step(HOUR)  # all that is there has ended, the places in the queue too
        await eventually(lambda: any(job.done() for job in waiters))
        (done,) = [job for job in waiters if job.done()]
        waiters.remove(done)
        second = await done.result()
        assert second.token > lease.token
        assert await second.release() is True
        assert (await waiters[0].result()).token > second.token


async def test_after_a_step_back_a_lease_is_lost_by_our_own_clock_all_the_same(
    server: SteppedServer,
) -> None:
    """Loses the lease though the server keeps it for an hour more."""
    async with holdfast.connect(server.url) as locks, holdfast.connect(server.url) as others:
        lease = await locks.lock("x", ttl=1.6, renew=False).acquire()
        kept = await locks.lock("kept").acquire()
        server.step(-HOUR)
        assert await lease.wait_lost(timeout=10.0) is True
        assert await others.lock("x").try_acquire() is None  # late, which is declared
        assert "late" in locks.guarantees.clock_dependence
        assert await others.force_release("x") is True
        assert (await others.lock("x").acquire()).token > lease.token
        await kept.renew()  # as ever
        assert await kept.release() is True
        assert await others.lock("kept").try_acquire() is not None
