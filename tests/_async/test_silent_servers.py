"""Servers that are stopped by a signal: they take every byte, and answer none.

Whoever calls then is told by a deadline, whatever it wants; so is whoever was waiting before.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast import aio as holdfast
from holdfast._async import waiter
from holdfast.chaos.servers.cluster import Cluster
from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.chaos.servers.redis import RedisServer
from holdfast.chaos.servers.redlock import RedlockNodes
from holdfast.chaos.servers.sentinel import Watch
from worlds.aio import Job, eventually

SLACK = 10.0
"""Seconds that a busy machine, or one that stands still itself, may add to a deadline."""
WAIT = 6.0
"""Seconds in which a busy machine sees somebody wait, and stops the servers."""


class Servers:
    """All servers of one store, which stand still together."""

    def __init__(self, url: str, servers: list[Any]) -> None:
        self.url = url
        self._servers = servers

    def know_waiter(self) -> bool:
        """Tells whether a node of Redlock, which has no queue to look at, knows of one who waits."""
        return any(node("LLEN", "holdfast:{held}:q") for node in self._servers)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        for server in self._servers:
            server.pause()
        try:
            yield
        finally:
            for server in self._servers:
                server.resume()


@pytest.fixture(params=["etcd", "redis", "redis+cluster", "redis+sentinel", "redlock"])
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    store: Any
    if request.param == "redis":
        store = RedisServer()
        yield Servers(store.url, [store])
    elif request.param == "redis+cluster":
        store = Cluster()
        yield Servers(store.url, store.nodes)
    elif request.param == "redis+sentinel":
        store = Watch()
        yield Servers(store.url, [store.first, store.second, *store.sentinels])
    elif request.param == "redlock":
        store = RedlockNodes(3)
        yield Servers(store.url, store.nodes)
    else:
        store = EtcdCluster()
        yield Servers(store.url, store.members)
    store.stop()


async def timed(call: Callable[[], Awaitable[object]]) -> tuple[float, BaseException | None]:
    """Returns the seconds that `call` took, and what it raised."""
    began = time.monotonic()
    try:
        await call()
    except holdfast.LockError as error:
        return time.monotonic() - began, error
    return time.monotonic() - began, None


def is_unavailable(error: BaseException | None, name: str) -> bool:
    """Tells whether a user can make something of it: our own class, and the lock's name."""
    return type(error) is holdfast.BackendUnavailable and error.name == name and name in str(error)


async def test_every_call_ends_by_its_deadline(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiter, "SILENCE_LIMIT", 3.0)
    async with holdfast.connect(servers.url) as others:
        await others.lock("held", ttl=60.0).acquire()
        many, queued = holdfast.connect(servers.url), holdfast.connect(servers.url)
        for number in range(21):
            await many.lock(f"n{number}").acquire()
        place = Job(timed, queued.lock("held").acquire)

        async def waits() -> bool:
            return len((await others.inspect("held")).waiters) == 1

        if servers.url.startswith("redlock"):
            await eventually(servers.know_waiter)
        else:
            await eventually(waits)
        fresh = [holdfast.connect(servers.url) for _ in range(3)]
        with servers.stopped():
            jobs = {
                "close": Job(timed, many.close),
                "first": Job(timed, fresh[0].lock("x").acquire),
                "try": Job(timed, lambda: fresh[1].lock("x").try_acquire(timeout=1.0)),
                "inspect": Job(timed, lambda: fresh[2].inspect("x")),
            }
            took = {what: await job.result() for what, job in jobs.items()}
            took["queued"] = await place.result()
        for one in (*fresh, queued):
            await one.close()
    seconds = {what: round(one[0], 2) for what, one in took.items()}
    assert took["close"][1] is None, took
    assert is_unavailable(took["queued"][1], "held"), took["queued"]
    for what in ("first", "try", "inspect"):
        assert is_unavailable(took[what][1], "x"), took[what]
    assert seconds["close"] < 5.0 + SLACK, seconds
    assert seconds["first"] < 5.0 + SLACK, seconds
    assert seconds["inspect"] < 5.0 + SLACK, seconds
    assert seconds["try"] < 2.0 + SLACK, seconds


async def test_a_time_out_on_a_store_that_has_fallen_silent_is_not_told_as_busy(
    servers: Servers,
) -> None:
    if servers.url.startswith("redlock"):
        return  # it tells its nodes in the background, and so cannot say that they did not answer
    async with holdfast.connect(servers.url) as others, holdfast.connect(servers.url) as locks:
        await others.lock("held", ttl=60.0).acquire()
        lock = locks.lock("held")
        waiter_job = Job(timed, lambda: lock.try_acquire(timeout=WAIT))

        async def waits() -> bool:
            return len((await others.inspect("held")).waiters) == 1

        await eventually(waits)
        with servers.stopped():
            seconds, error = await waiter_job.result()
    assert is_unavailable(error, "held"), error
    assert seconds < WAIT + 2.0 + SLACK
