"""Lines that keep two holders apart, each of which could be left out without another test noticing."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from holdfast import aio as holdfast
from holdfast.chaos.servers.redis import RedisServer
from holdfast.stores.redis.wire.wakeups import NO_CHANNEL
from worlds.aio import eventually


class Interrupted(BaseException):
    """Raised in place of a cancellation, or of what a signal handler raises."""


def replay(server: RedisServer, request: bytes) -> bytes:
    """Returns the server's reply to a request that arrives late, on a connection of its own."""
    with socket.create_connection(("127.0.0.1", server.port), 5.0) as sock:
        sock.sendall(request)
        return sock.recv(4096)


@pytest.mark.parametrize("first", [60.0, 0.4], ids=["the long one first", "the short one first"])
async def test_a_shared_lock_lasts_as_long_as_its_last_holder(
    server: RedisServer, first: float
) -> None:
    async with holdfast.connect(server.url) as locks:
        shelf = locks.rwlock("x")
        for ttl in (first, 60.4 - first):
            await locks.rwlock("x", ttl=ttl, renew=False).read().acquire()

        async def alone() -> bool:
            return len((await locks.inspect("x")).holders) == 1

        await eventually(alone)  # the short lease has ended
        assert await shelf.write().try_acquire() is None
        assert server("PTTL", "holdfast:{x}") > 10_000


async def test_a_request_that_arrives_after_its_owner_was_interrupted_is_refused(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holdfast.connect(server.url) as locks:
        async with locks.lock("before"):
            pass  # the scripts are loaded
        wire: Any = (await locks._session()).backend._wire  # type: ignore[attr-defined]
        requests: list[bytes] = []

        async def interrupted(ticket: Any, command: bytes, owner: bytes, deadline: float) -> Any:
            requests.append(command + NO_CHANNEL + owner)
            raise Interrupted

        with monkeypatch.context() as patched:
            patched.setattr(wire, "acquire", interrupted)
            with pytest.raises(Interrupted):
                await locks.lock("x").acquire()
        (request,) = requests
        assert replay(server, request).startswith(b"-HFLEFT")
        assert not (await locks.inspect("x")).holders
