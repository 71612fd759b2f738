"""The oldest Redis that is supported, and Valkey: the same scripts, answers and wake-ups."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.redis import OTHERS, RedisServer
from worlds.aio import Job

from .test_rules import compare
from .test_ways_in import used

PROGRAMS = {path.name: str(path) for path in OTHERS} or {"debian": "redis-server"}


@pytest.fixture(scope="module", params=PROGRAMS)
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    made = RedisServer(program=PROGRAMS[request.param])
    yield made
    made.stop()


async def test_a_lock_is_taken_waited_for_renewed_and_handed_over(server: RedisServer) -> None:
    await used(server.url)


@pytest.mark.parametrize("seed", range(100, 102))
async def test_it_answers_as_the_model_does(server: RedisServer, seed: int) -> None:
    await compare(server, seed)


async def test_tokens_rise_and_scripts_are_brought_again(server: RedisServer) -> None:
    async with holdfast.connect(server.url) as locks:
        last = await locks.lock("x").acquire()
        for forget in (["SCRIPT", "FLUSH"], ["FLUSHALL"], ["DEL", "holdfast:{x}"]):
            server(*forget)
            if forget[0] == "SCRIPT":
                assert await last.release() is True
            lease = await locks.lock("x").acquire(timeout=20.0)
            assert lease.token > last.token
            last = lease


async def test_a_waiter_outlives_the_loss_of_its_connection(server: RedisServer) -> None:
    async with (
        holdfast.connect(server.url) as holder,
        holdfast.connect(server.url, heartbeat=0.5) as locks,
    ):
        lease = await holder.lock("x", ttl=30.0).acquire()
        waiter = Job(locks.lock("x").acquire)

        await until_waiting(holder)
        server("CLIENT", "KILL", "TYPE", "pubsub")
        assert await lease.release() is True
        assert (await waiter.result()).token > lease.token
