"""Packets that vanish, refusals and limits: a caller that has a deadline waits for no connection."""

from __future__ import annotations

# unasync: aio-only
import asyncio

# unasync: end
import errno
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import aio as holdfast
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.zookeeper import ZooKeeperEnsemble
from worlds.aio import Job, eventually, pause
from worlds.stalls import stand_still

SOON = 6.0
"""Seconds: more than any limit that is tested here, and less than what kazoo's threads take."""


@pytest.fixture
def hole() -> Iterator[str]:
    """Returns the URL of a server to which packets vanish: its queue of connections is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        place = server.getsockname()
        callers = [socket.socket() for _ in range(4)]
        for caller in callers:
            caller.setblocking(False)
            caller.connect_ex(place)
        yield f"zookeeper://127.0.0.1:{place[1]}"
        for caller in callers:
            caller.close()


class Watch:
    """A stop-watch."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def check(self, limit: float = SOON) -> None:
        spent = time.monotonic() - self._began
        assert spent < limit, f"{spent:.1f} s"


def connection_threads() -> int:
    return sum("zk_loop" in thread.name for thread in threading.enumerate())


async def test_an_acquire_ends_in_time_where_packets_vanish(hole: str) -> None:
    locks = holdfast.connect(hole)
    watch = Watch()
    with pytest.raises(holdfast.BackendUnavailable, match="did not answer in time") as raised:
        await locks.lock("x").try_acquire(timeout=1.0)
    assert "may still happen" not in str(raised.value)  # nothing was sent but a greeting
    watch.check()
    await locks.close()
    watch.check()


# unasync: aio-only
async def test_an_acquire_that_is_cancelled_ends_at_once(hole: str) -> None:
    locks = holdfast.connect(hole)
    watch = Watch()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            await locks.lock("x").acquire()
    watch.check(4.0)
    await locks.close()
    watch.check(4.0)


# unasync: end


async def test_an_idle_manager_is_closed_in_time_where_packets_vanish(
    through: str, proxy: Proxy
) -> None:
    before = connection_threads()
    locks = holdfast.connect(through)
    await (await locks.lock("x").acquire()).release()
    await (await locks.lock("y", ttl=10.0).acquire()).release()
    proxy.stalled = True
    watch = Watch()
    await locks.close()
    watch.check()
    await eventually(lambda: connection_threads() <= before)


async def test_a_manager_with_leases_is_closed_in_time_where_packets_vanish(
    through: str, proxy: Proxy
) -> None:
    locks = holdfast.connect(through)
    for number in range(5):
        await locks.lock(f"x{number}", ttl=20.0).acquire()
    proxy.stalled = True
    watch = Watch()
    await locks.close()
    watch.check(13.0)  # of which the engine gives the releases ten


async def test_a_session_that_cannot_be_opened_is_opened_later(
    through: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holdfast.connect(through) as locks:
        with monkeypatch.context() as patch:

            def refuse(*args: object) -> int:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

            patch.setattr(os, "eventfd", refuse)
            with pytest.raises(holdfast.BackendUnavailable, match="Too many open files"):
                await locks.lock("x", ttl=10.0).acquire()
        assert (await locks.lock("x", ttl=10.0).acquire()).held


async def test_a_limit_of_connections_is_told() -> None:
    ensemble = ZooKeeperEnsemble([("127.0.0.1", ())], "maxClientCnxns=2\n")
    try:
        async with holdfast.connect(ensemble.url), holdfast.connect(ensemble.url):
            locks = holdfast.connect(ensemble.url)
            with pytest.raises(holdfast.BackendUnavailable, match="maxClientCnxns"):
                await locks.lock("x").acquire(timeout=2.0)
            await locks.close()
    finally:
        ensemble.stop()


async def test_an_answer_that_came_while_this_process_stood_still_is_heard(
    url: str,
) -> None:
    """The threads that hear it stood still, too."""
    async with holdfast.connect(url) as locks:
        backend: Any = (await locks._session()).backend
        asked: list[Any] = []

        async def ask() -> Any:
            return await backend._result(asked.append, deadline=backend.clock.now() + 0.3)

        job = Job(ask)
        await eventually(lambda: asked)
        stand_still(0.8)
        await pause(0.01)
        asked[0]("the answer")
        assert await job.result() == ["the answer"]
        asked.clear()
        assert await Job(ask).result() == []  # nothing came
