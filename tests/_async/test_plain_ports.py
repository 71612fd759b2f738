"""TLS spoken to a port that speaks none: the error says so, whatever the server does there."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from holdfast import aio as holdfast
from servers.canned import CannedServer
from stores import STORES

NETWORKED = sorted(STORES.keys() - {"memory", "sqlite"})
REASON = "does not speak TLS on this port"


def by_tls(url: str) -> str:
    """Returns `url` with TLS wanted."""
    scheme, _, rest = url.partition("://")
    rest = rest.partition("?")[0]
    if scheme in ("http", "redis"):
        return f"{scheme}s://{rest}"
    options = {"postgresql": "sslmode=require", "mariadb": "ssl_verify_cert=1"}
    return f"{scheme}://{rest}?{options.get(scheme, 'tls=1')}"


@contextmanager
def silent() -> Iterator[int]:
    """The port of a server that takes every byte and answers none."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@contextmanager
def talking() -> Iterator[int]:
    """The port of a server that answers in plain text."""
    with CannedServer(b"HTTP/1.1 400 Bad Request\r\n\r\n") as server:
        yield server.port


@contextmanager
def hanging_up() -> Iterator[int]:
    """The port of a server that hangs up when it has read."""
    with CannedServer(b"", hang_up=True) as server:
        yield server.port


async def refusal(url: str) -> str:
    """Returns what a user is told who asks for a lock there."""
    locks = holdfast.connect(url)
    try:
        with pytest.raises(holdfast.BackendUnavailable) as raised:
            await locks.lock("x").acquire(timeout=4.0)
    finally:
        await locks.close()
    return str(raised.value)


@pytest.mark.parametrize("store", NETWORKED)
async def test_a_real_server_without_tls_is_said_to_be_one(store: str, tmp_path: Path) -> None:
    with STORES[store](tmp_path) as url:
        text = await refusal(by_tls(url))
    words = {
        "mariadb": "SSL is required but the server doesn't support it",
        "postgres": "server does not support SSL",
    }
    assert words.get(store, REASON) in text


@pytest.mark.parametrize("server", [hanging_up, silent, talking])
@pytest.mark.parametrize(
    "url",
    [
        "etcd://127.0.0.1:{}?tls=1",
        "https://127.0.0.1:{}",
        "rediss://127.0.0.1:{}",
        "redlock://127.0.0.1:{},127.0.0.1:1,127.0.0.1:2?tls=1",
        "zookeeper://127.0.0.1:{}?tls=1",
    ],
)
async def test_any_port_without_tls_is_said_to_be_one(
    url: str, server: Callable[[], AbstractContextManager[int]]
) -> None:
    with server() as port:
        text = await refusal(url.format(port))
    assert REASON in text


@pytest.mark.parametrize("store", ["etcd", "http", "redis", "zookeeper"])
async def test_the_doctor_says_that_a_server_is_without_tls(store: str, tmp_path: Path) -> None:
    with STORES[store](tmp_path) as url, pytest.raises(holdfast.BackendUnavailable, match=REASON):
        await holdfast.doctor(by_tls(url))
