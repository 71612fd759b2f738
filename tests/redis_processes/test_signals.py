"""Signals that come again and again, as a profiler's do, move no deadline and cost no place."""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.chaos.servers.cluster import Cluster
from holdfast.chaos.servers.redis import RedisServer
from holdfast.chaos.servers.redlock import RedlockNodes
from holdfast.chaos.servers.sentinel import Watch
from worlds.threads import Job, eventually

SIGNALLED = Path(__file__).parent / "signalled.py"
WORLDS = ("aio", "threads")
TIMEOUT = 1.0
SLACK = 8.0
"""Seconds that a busy machine is given. Without the rule the wait lasts for as long as signals come."""
Start = Callable[..., "subprocess.Popen[str]"]


class Servers:
    """One or several servers that make up a store."""

    def __init__(self, made: Any, servers: Sequence[RedisServer]) -> None:
        self.url: str = made.url
        self._made = made
        self._servers = servers

    def pause(self) -> None:
        for server in self._servers:
            server.pause()

    def resume(self) -> None:
        for server in self._servers:
            server.resume()

    def stop(self) -> None:
        self._made.stop()


def make(kind: str) -> Servers:
    if kind == "redlock":
        nodes = RedlockNodes(3)
        return Servers(nodes, nodes.nodes)
    if kind == "sentinel":
        watch = Watch()
        return Servers(watch, [watch.first, watch.second])
    if kind == "cluster":
        cluster = Cluster()
        return Servers(cluster, cluster.nodes)
    server = RedisServer()
    return Servers(server, [server])


@pytest.fixture
def kind() -> str:
    return "redis"


@pytest.fixture
def server(kind: str) -> Iterator[Servers]:
    servers = make(kind)
    yield servers
    servers.resume()
    servers.stop()


KINDS = pytest.mark.parametrize("kind", ["redis", "redlock", "sentinel", "cluster"])


@pytest.fixture
def start(server: Servers) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def start(world: str, timeout: float) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(SIGNALLED), server.url, "x", world, str(timeout)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")


def said(process: subprocess.Popen[str], within: float) -> str:
    """Returns the next line of `process`; empty if there is none within so many seconds."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], within)
    return process.stdout.readline().strip() if ready else ""


@KINDS
@pytest.mark.parametrize("world", WORLDS)
def test_a_silent_server_is_given_up_in_time(
    kind: str, server: Servers, start: Start, world: str
) -> None:
    process = start(world, TIMEOUT)
    server.pause()
    began = time.monotonic()
    go(process)
    assert said(process, TIMEOUT + SLACK) in ("LockTimeout", "BackendUnavailable")
    if kind == "redis":  # a node of Redlock has less time than that
        assert time.monotonic() - began >= TIMEOUT


@KINDS
@pytest.mark.parametrize("world", WORLDS)
def test_a_wait_ends_in_time(server: Servers, start: Start, world: str) -> None:
    with holdfast.connect(server.url) as locks, locks.lock("x"):
        process = start(world, TIMEOUT)
        began = time.monotonic()
        go(process)
        assert said(process, TIMEOUT + SLACK) == "LockTimeout"
        assert time.monotonic() - began >= TIMEOUT
        assert not locks.inspect("x").waiters


@pytest.mark.parametrize("world", WORLDS)
def test_a_waiter_keeps_its_place(server: Servers, start: Start, world: str) -> None:
    with holdfast.connect(server.url) as locks:
        lease = locks.lock("x").acquire()
        process = start(world, 0.0)
        go(process)
        eventually(lambda: len(locks.inspect("x").waiters) == 1)
        (first,) = locks.inspect("x").waiters
        behind = Job(locks.lock("x").acquire)
        eventually(lambda: len(locks.inspect("x").waiters) == 2)
        time.sleep(5.0)  # twice as long as a waiter without a heartbeat keeps its place
        assert locks.inspect("x").waiters[0].owner == first.owner
        assert lease.release() is True
        word, token = said(process, SLACK).split()
        assert word == "held"
        assert int(token) > lease.token
        assert not behind.done()
        go(process)  # it ends, and releases
        assert behind.result().release() is True
