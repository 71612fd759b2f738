"""Connections that servers close because they were idle: that says nothing of the nodes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from _async.redlock.scenes import MAX_TTL, connect
from holdfast import aio as holdfast
from holdfast.chaos.servers.redlock import RedlockNodes


async def idle(nodes: RedlockNodes, seconds: float = 0.6) -> None:
    """Lets the program stand still while servers close its connections: no event loop runs."""
    for node in nodes.nodes:
        node("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    time.sleep(seconds)


async def test_list_shows_a_lock_that_is_held(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks, locks.lock("x", ttl=MAX_TTL):
        assert [state.name for state in await locks.list()] == ["x"]
        await idle(nodes)
        assert [state.name for state in await locks.list()] == ["x"]
        await idle(nodes)
        assert len((await locks.inspect("x")).holders) == 1


async def test_a_lease_is_renewed_and_released(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks:
        for _ in range(3):
            lease = await locks.lock("x", ttl=MAX_TTL).acquire()
            await idle(nodes)
            await lease.renew()
            await idle(nodes)
            assert await lease.release() is True


async def test_list_says_when_too_few_nodes_could_be_read(
    nodes: RedlockNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(nodes) as locks:
        async with locks.lock("x", ttl=MAX_TTL):
            pass
        backend: Any = (await locks._session()).backend

        async def refuse(*_: Any) -> Any:
            raise holdfast.BackendUnavailable("for a test")

        monkeypatch.setattr(backend._inspection, "_call", refuse)
        with pytest.raises(holdfast.BackendUnavailable, match="too few nodes"):
            await locks.list()
