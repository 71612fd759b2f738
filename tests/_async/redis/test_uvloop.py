# unasync: skip-file
"""Another event loop than asyncio's own: one that has transports and sockets of its own kind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import uvloop

from holdfast import aio as holdfast
from holdfast.chaos.servers.ports import free_port
from holdfast.chaos.servers.redis import RedisServer, certificate
from worlds.aio import Job, eventually

LIMIT = 60.0


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[RedisServer, dict[str, Any]]]:
    """Returns a server and the ways in: each a URL and its options."""
    folder = tmp_path_factory.mktemp("uvloop")
    cert, key = certificate(folder)
    port = free_port()
    options = ["--tls-port", str(port), "--tls-cert-file", cert, "--tls-key-file", key]
    options += ["--tls-ca-cert-file", cert, "--tls-auth-clients", "no"]
    options += ["--unixsocket", str(folder / "redis.sock")]
    made = RedisServer(*options)
    try:
        yield (
            made,
            {
                "tcp": (made.url, {}),
                "tls": (f"rediss://127.0.0.1:{port}", {"tls_ca": cert}),
                "unix": (f"redis+unix://{folder}/redis.sock", {}),
            },
        )
    finally:
        made.stop()


@pytest.mark.parametrize("way", ["tcp", "tls", "unix"])
def test_a_lock_goes_round_is_waited_for_and_lost(
    server: tuple[RedisServer, dict[str, Any]], way: str
) -> None:
    redis, ways = server
    redis("FLUSHALL")
    url, options = ways[way]

    async def scene() -> None:
        async with (
            asyncio.timeout(LIMIT),
            holdfast.connect(url, **options) as first,
            holdfast.connect(url, **options) as second,
        ):

            async def work(locks: holdfast.Locks) -> None:
                for _ in range(20):
                    async with locks.lock("x"):
                        pass

            for job in [Job(work, locks) for locks in (first, second) for _ in range(4)]:
                await job.result()

            lease = await first.lock("x").acquire()
            left = Job(second.lock("x").acquire)
            stays = Job(second.lock("x").acquire)

            async def wait() -> bool:
                return len((await first.inspect("x")).waiters) == 2

            await eventually(wait)
            assert await left.cancelled() is None
            redis("CLIENT", "KILL", "TYPE", "pubsub")
            await lease.release()
            assert (await stays.result()).token > lease.token

            async def robbed() -> None:
                async with first.lock("y", ttl=2.0):
                    redis("DEL", "holdfast:{y}")
                    await asyncio.sleep(LIMIT)

            with pytest.raises(holdfast.LeaseLost):
                await robbed()

    uvloop.run(scene())
