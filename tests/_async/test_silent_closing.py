"""`close()` on a network that has fallen silent: no byte passes, and no connection breaks.

It takes five seconds at the most, whatever the manager has there. Redlock, whose nodes cannot be given
other addresses, is stopped by a signal in `test_silent_servers`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import aio as holdfast
from holdfast.chaos.servers.proxy import Proxy
from stores import STORES
from worlds.aio import Job, eventually
from worlds.stalls import Stalls

LIMIT = 5.0
"""Seconds that are promised."""
SLACK = 1.5
"""Seconds that a busy machine may add, beside those for which it stands still."""


class Network:
    """Proxies before all servers of a store."""

    def __init__(self, url: str) -> None:
        self.proxies: list[Proxy] = []
        self.url = re.sub(r"(127\.0\.0\.1|localhost):(\d+)", self._replace, url)

    def _replace(self, address: re.Match[str]) -> str:
        proxy = Proxy(int(address[2]))
        self.proxies.append(proxy)
        return f"127.0.0.1:{proxy.port}"

    def fall_silent(self) -> None:
        for proxy in self.proxies:
            proxy.hold()

    def close(self) -> None:
        for proxy in self.proxies:
            proxy.release()
            proxy.close()


@pytest.fixture(params=["etcd", "http", "mariadb", "postgres", "redis", "zookeeper"], name="url")
def _url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with STORES[request.param](tmp_path) as store_url:
        yield store_url


@pytest.fixture
def network(url: str) -> Iterator[Network]:
    made = Network(url)
    yield made
    made.close()


async def closed_within(locks: holdfast.Locks) -> float:
    """Returns the seconds that `close` took."""
    began = time.monotonic()
    await locks.close()
    return time.monotonic() - began


async def test_a_close_takes_five_seconds_at_the_most(network: Network, url: str) -> None:
    many, classes, queued, renewing, idle = (holdfast.connect(network.url) for _ in range(5))
    async with holdfast.connect(url) as others:
        await others.lock("held", ttl=60.0).acquire()
        for number in range(21):
            await many.lock(f"m{number}").acquire()
        for number in range(5):  # on some stores each TTL has a lease or session of its own
            await classes.lock(f"c{number}", ttl=20.0 + 5 * number).acquire()
        lease = await renewing.lock("r", ttl=6.0).acquire()
        await idle.inspect("x")
        places = [Job(queued.lock("held").acquire) for _ in range(3)]

        async def wait() -> bool:
            return len((await others.inspect("held")).waiters) == len(places)

        await eventually(wait)
        network.fall_silent()
        await eventually(lambda: lease.state != "held")
        managers = {
            "many": many,
            "classes": classes,
            "queued": queued,
            "renewing": renewing,
            "idle": idle,
        }
        with Stalls() as stalls:
            jobs = {what: Job(closed_within, locks) for what, locks in managers.items()}
            seconds = {what: round(await job.result(), 2) for what, job in jobs.items()}
        for place in places:
            assert isinstance(await place.error(), holdfast.LockError)
    assert max(seconds.values()) < LIMIT + SLACK + stalls.seconds, (seconds, stalls.seconds)
