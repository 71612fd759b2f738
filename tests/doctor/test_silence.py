"""Servers that say nothing, and names that nobody resolves: the doctor gives up in time."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from doctor.look import Look, until
from holdfast.stores import resolving

URLS = [
    "redis://{0}",
    "redis+sentinel://{0},{1}/primary",
    "redis+cluster://{0},{1}",
    "redlock://{0},{1},{2}",
    "etcd://{0},{1},{2}",
    "zookeeper://{0},{1},{2}",
    "postgresql://user@{0}/app",
    "mysql://user@{0}/app",
]
PATIENCE = 1.0
ENOUGH = 8.0
"""Seconds after which it counts as hung, on a machine that is busy with other things."""


@pytest.fixture
def places() -> Iterator[list[str]]:
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    yield [f"127.0.0.1:{server.getsockname()[1]}" for server in servers]
    for server in servers:
        server.close()


def examine(url: str) -> float:
    """Returns how long it took until nothing was found that is good."""
    began = time.monotonic()
    try:
        findings = holdfast.doctor(url, timeout=PATIENCE)
    except holdfast.BackendUnavailable:
        pass
    else:
        assert "wrong" in [one.level for one in Look(findings).findings]
    return time.monotonic() - began


@pytest.mark.parametrize("url", URLS)
def test_servers_that_say_nothing(places: list[str], url: str) -> None:
    assert examine(url.format(*places)) < ENOUGH


@pytest.mark.parametrize("url", URLS)
def test_servers_that_are_not_there(url: str) -> None:
    ports = []
    for _ in range(3):
        with socket.create_server(("127.0.0.1", 0)) as server:
            ports.append(server.getsockname()[1])
    with pytest.raises(holdfast.BackendUnavailable):
        holdfast.doctor(url.format(*(f"127.0.0.1:{port}" for port in ports)), timeout=PATIENCE)


@pytest.fixture
def slow_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Yields names of servers that are not resolved while the test runs."""
    over = threading.Event()
    real = socket.getaddrinfo

    def slow(host: Any, *rest: Any, **options: Any) -> Any:
        if host in (b"slow.test", "slow.test"):
            over.wait(60.0)
            raise socket.gaierror(socket.EAI_NONAME, "there is no such name")
        return real(host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    yield [f"slow.test:{port}" for port in (6001, 6002, 6003)]
    over.set()
    until(lambda: all(lookup.done for lookup in list(resolving._lookups.values())))


@pytest.mark.parametrize("url", URLS)
def test_a_name_server_that_does_not_answer(url: str, slow_names: list[str]) -> None:
    assert PATIENCE / 2 < examine(url.format(*slow_names)) < ENOUGH
