"""A name server that does not answer: the caller's deadline covers that, too."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import aio as holdfast
from holdfast.chaos.servers.redlock import RedlockNodes
from holdfast.stores import resolving
from worlds.aio import Job, eventually
from worlds.stalls import Stalls

SLACK = 10.0
"""Seconds that a busy machine may add to a deadline."""
MOMENT = 2.5
"""Seconds that it may add beside those for which it stands still."""


NETWORKED = {
    "etcd": "etcd://{0}",
    "http": "http://{0}",
    "mysql": "mysql://{0}/locks",
    "postgres": "postgresql://{0}/locks",
    "redis": "redis://{0}",
    "redis+cluster": "redis+cluster://{0}",
    "redis+sentinel": "redis+sentinel://{0}/primary",
    "redlock": "redlock://{0},{0}0,{0}1",
    "zookeeper": "zookeeper://{0}",
}
"""The stores that are reached by the name of a host."""


class Names:
    """A resolver that knows `slow.test`, and takes its time; and knows no `unknown.test`."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.asked = 0
        self._real = socket.getaddrinfo

    def __call__(self, host: Any, port: Any, *args: Any, **options: Any) -> Any:
        if host == b"unknown.test":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if host != b"slow.test":
            return self._real(host, port, *args, **options)
        self.asked += 1
        self.answer.wait(60.0)
        return self._real("127.0.0.1", port, *args, **options)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    names = Names()
    monkeypatch.setattr(socket, "getaddrinfo", names)
    yield names
    names.answer.set()
    limit = time.monotonic() + 20.0
    while any(not lookup.done for lookup in list(resolving._lookups.values())):
        assert time.monotonic() < limit
        time.sleep(0.01)
    resolving._lookups.clear()  # what was found behind our back is not for the next test


@pytest.fixture(scope="module")
def nodes() -> Iterator[RedlockNodes]:
    nodes = RedlockNodes(3)
    yield nodes
    nodes.stop()


def slow_redlock(nodes: RedlockNodes) -> str:
    return "redlock://" + ",".join(f"slow.test:{node.port}" for node in nodes.nodes)


@pytest.fixture(params=["redis", "redlock"])
def slow_url(request: pytest.FixtureRequest, nodes: RedlockNodes) -> str:
    nodes.flush()
    if request.param == "redis":
        return f"redis://slow.test:{nodes.nodes[0].port}"
    return slow_redlock(nodes)


async def test_an_attempt_ends_though_the_name_is_not_resolved(names: Names, slow_url: str) -> None:
    locks = holdfast.connect(slow_url)
    began = time.monotonic()
    with pytest.raises(holdfast.BackendUnavailable, match="'x' could not be acquired") as raised:
        await locks.lock("x").try_acquire(timeout=0.5)
    assert time.monotonic() - began < 2.0 + SLACK
    assert type(raised.value) is holdfast.BackendUnavailable
    assert raised.value.name == "x"
    began = time.monotonic()
    await locks.close()
    assert time.monotonic() - began < SLACK


@pytest.mark.parametrize("store", NETWORKED)
async def test_the_error_says_that_the_name_is_not_resolved(names: Names, store: str) -> None:
    locks = holdfast.connect(NETWORKED[store].format("slow.test:6379"))
    with pytest.raises(holdfast.BackendUnavailable, match=r"'slow\.test' was not resolved in time"):
        await locks.lock("x").try_acquire(timeout=0.5)
    await locks.close()


@pytest.mark.parametrize("store", NETWORKED)
async def test_the_error_says_that_the_name_is_not_known(names: Names, store: str) -> None:
    locks = holdfast.connect(NETWORKED[store].format("unknown.test:6379"))
    with pytest.raises(holdfast.BackendUnavailable, match=r"unknown\.test.*not known"):
        await locks.lock("x").try_acquire(timeout=5.0)
    await locks.close()


async def test_a_name_that_is_resolved_later_serves_the_next_attempt(
    names: Names, slow_url: str
) -> None:
    locks = holdfast.connect(slow_url)
    with pytest.raises(holdfast.BackendUnavailable):
        await locks.lock("x").try_acquire(timeout=0.1)
    asked = names.asked
    names.answer.set()
    lease = await locks.lock("x").acquire(timeout=20.0)
    assert lease.held
    if slow_url.startswith("redis:"):
        assert names.asked == asked  # what was found behind our back was kept
    await lease.release()
    await locks.close()


async def test_a_lease_that_comes_late_is_given_back(names: Names, nodes: RedlockNodes) -> None:
    async with holdfast.connect(nodes.nodes[0].url) as others:
        locks = holdfast.connect(f"redis://slow.test:{nodes.nodes[0].port}")
        attempt = Job(locks.lock("x").try_acquire, 1.0)
        await eventually(lambda: names.asked)
        began = time.monotonic()
        error = await attempt.error()
        assert isinstance(error, holdfast.BackendUnavailable)
        assert time.monotonic() - began < 2.0 + SLACK
        names.answer.set()
        assert await others.lock("x").try_acquire(timeout=20.0) is not None
        await locks.close()


async def test_those_who_want_a_name_at_the_same_time_ask_once(
    names: Names, nodes: RedlockNodes
) -> None:
    url = f"redis://slow.test:{nodes.nodes[0].port}"
    many = [holdfast.connect(url) for _ in range(5)]
    jobs = [Job(locks.lock(f"n{number}").acquire) for number, locks in enumerate(many)]
    await eventually(lambda: names.asked)
    names.answer.set()
    for job in jobs:
        assert (await job.result()).held
    assert names.asked <= len(many)
    for locks in many:
        await locks.close()


async def test_an_attempt_does_not_wait_for_those_who_look_after_nodes(
    names: Names, nodes: RedlockNodes
) -> None:
    # They have twenty seconds for a name, and the attempt has two.
    locks = holdfast.connect(slow_redlock(nodes), node_timeout=5.0)
    began = time.monotonic()
    with Stalls() as stalls:
        with pytest.raises(holdfast.BackendUnavailable, match="'x' could not be acquired"):
            await locks.lock("x").try_acquire(timeout=1.0)
        took = time.monotonic() - began
    assert took < 2.0 + MOMENT + stalls.seconds
    await locks.close()


async def test_a_close_does_not_wait_for_a_node_whose_name_is_not_resolved(
    names: Names, nodes: RedlockNodes
) -> None:
    nodes.flush()
    names.answer.set()
    locks = holdfast.connect(slow_redlock(nodes), node_timeout=2.0)
    await locks.inspect("x")
    backend = (await locks._session()).backend
    names.answer.clear()
    nodes.nodes[0]("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    asked = names.asked

    async def is_asked_again() -> bool:
        await locks.inspect("x")
        return names.asked > asked and bool(backend._recovery._routines)  # type: ignore[attr-defined]

    await eventually(is_asked_again)
    began = time.monotonic()
    with Stalls() as stalls:
        await locks.close()
        took = time.monotonic() - began
    assert took < MOMENT + stalls.seconds


async def test_an_attempt_does_not_wait_for_nodes_that_take_no_connection() -> None:
    """Packets to them vanish: their queues of connections are full."""
    servers = [socket.create_server(("127.0.0.1", 0), backlog=0) for _ in range(3)]
    callers = []
    for server in servers:
        for _ in range(4):
            caller = socket.socket()
            caller.setblocking(False)
            caller.connect_ex(server.getsockname())
            callers.append(caller)
    ports = ",".join(f"127.0.0.1:{server.getsockname()[1]}" for server in servers)
    locks = holdfast.connect(f"redlock://{ports}", node_timeout=5.0)
    try:
        began = time.monotonic()
        with Stalls() as stalls:
            with pytest.raises(holdfast.BackendUnavailable, match="'x' could not be acquired"):
                await locks.lock("x").try_acquire(timeout=1.0)
            took = time.monotonic() - began
        assert took < 2.0 + MOMENT + stalls.seconds
    finally:
        await locks.close()
        for one in (*servers, *callers):
            one.close()
