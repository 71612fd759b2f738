"""Credential providers of redis-py clients that take their time, or can only be awaited."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis.asyncio
from redis.credentials import CredentialProvider

import holdfast
import holdfast.aio
from holdfast.chaos.servers.redis import RedisServer

PATIENCE = 60.0


@pytest.fixture
def server() -> Iterator[RedisServer]:
    server = RedisServer(password="s3cret")
    yield server
    server.stop()


class Slow(CredentialProvider):
    """A provider that blocks until the event loop has done something else."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.goes_on = threading.Event()

    def get_credentials(self) -> Any:
        self.asked.set()
        assert self.goes_on.wait(PATIENCE), "the event loop stood still"
        return ("default", "s3cret")


class OnlyAwaited(CredentialProvider):
    async def get_credentials_async(self) -> Any:
        await asyncio.sleep(0)
        return ("s3cret",)


class Coroutine(CredentialProvider):
    async def get_credentials(self) -> Any:  # type: ignore[override]
        return ("default", "s3cret")


async def use(server: RedisServer, provider: CredentialProvider) -> int:
    client = redis.asyncio.Redis(port=server.port, credential_provider=provider)
    async with holdfast.aio.connect(client) as locks, locks.lock("x") as lease:
        return lease.token


def test_a_slow_provider_does_not_hold_up_the_event_loop(server: RedisServer) -> None:
    provider = Slow()

    async def main() -> int:
        using = asyncio.create_task(use(server, provider))
        async with asyncio.timeout(PATIENCE):
            assert await asyncio.to_thread(provider.asked.wait, PATIENCE)
            provider.goes_on.set()
            return await using

    assert asyncio.run(main()) > 0


def test_a_provider_that_never_answers_is_given_up_in_time(server: RedisServer) -> None:
    provider = Slow()
    try:

        async def main() -> None:
            client = redis.asyncio.Redis(port=server.port, credential_provider=provider)
            async with holdfast.aio.connect(client) as locks:
                await locks.lock("x", timeout=0.5).acquire()

        with pytest.raises((holdfast.BackendUnavailable, holdfast.LockTimeout)):
            asyncio.run(main())
    finally:
        provider.goes_on.set()


@pytest.mark.parametrize("provider", [OnlyAwaited(), Coroutine()])
def test_a_provider_may_be_awaited(server: RedisServer, provider: CredentialProvider) -> None:
    assert asyncio.run(use(server, provider)) > 0


def test_a_server_without_tls_is_said_to_be_one(server: RedisServer) -> None:
    url = f"rediss://127.0.0.1:{server.port}"
    with pytest.raises(holdfast.BackendUnavailable, match="does not speak TLS on this port"):
        holdfast.connect(url).lock("x", timeout=1.0).acquire()

    async def main() -> None:
        async with holdfast.aio.connect(url) as locks:
            await locks.lock("x", timeout=1.0).acquire()

    with pytest.raises(holdfast.BackendUnavailable, match="does not speak TLS on this port"):
        asyncio.run(main())
