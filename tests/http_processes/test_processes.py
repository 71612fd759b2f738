"""Clients of a service in processes of their own: signals move no deadline, a fork shares nothing."""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.service import ServiceServer
from stores import http_service, http_store

TESTS = Path(__file__).parent.parent
SIGNALLED = TESTS / "redis_processes" / "signalled.py"
FORKING = TESTS / "http_processes" / "forking.py"
WORLDS = ("aio", "threads")
TIMEOUT = 1.0
SLACK = 8.0
"""Seconds that a busy machine is given. Without the rule the wait lasts for as long as signals come."""
LIMIT = 90.0
Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def service() -> ServiceServer:
    http_store()("FLUSHALL")
    return http_service()


@pytest.fixture
def proxy(service: ServiceServer) -> Iterator[Proxy]:
    made = Proxy(service.port)
    yield made
    made.close()


@pytest.fixture
def start(proxy: Proxy) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def start(world: str) -> subprocess.Popen[str]:
        url = f"http://127.0.0.1:{proxy.port}"
        process = subprocess.Popen(
            [sys.executable, str(SIGNALLED), url, "x", world, str(TIMEOUT)],
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


def outcome(process: subprocess.Popen[str]) -> str:
    """Lets `process` begin; returns what it says, or nothing if that takes too long."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    ready, _, _ = select.select([process.stdout], [], [], TIMEOUT + SLACK)
    return process.stdout.readline().strip() if ready else ""


@pytest.mark.parametrize("world", WORLDS)
def test_a_silent_service_is_given_up_in_time(start: Start, proxy: Proxy, world: str) -> None:
    process = start(world)
    proxy.stalled = True
    assert outcome(process) in ("LockTimeout", "BackendUnavailable")


@pytest.mark.parametrize("world", WORLDS)
def test_a_wait_ends_in_time(service: ServiceServer, start: Start, world: str) -> None:
    with holdfast.connect(service.url) as locks, locks.lock("x"):
        process = start(world)
        began = time.monotonic()
        assert outcome(process) == "LockTimeout"
        assert time.monotonic() - began >= TIMEOUT
        assert not locks.inspect("x").waiters


def test_a_forked_child_shares_nothing_with_its_parent(service: ServiceServer) -> None:
    done = subprocess.run(
        [sys.executable, str(FORKING), service.url],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.stdout.split() == ["child", "parent"], done.stderr
