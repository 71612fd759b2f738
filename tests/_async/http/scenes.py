"""Scenes that the tests of the lock service's client begin with."""

from __future__ import annotations

from contextlib import suppress

from holdfast import aio as holdfast
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.service import ServiceServer


def through(proxy: Proxy) -> str:
    """Returns the URL of the service behind a proxy."""
    return f"http://127.0.0.1:{proxy.port}"


def both(services: tuple[ServiceServer, ServiceServer]) -> str:
    """Returns the URL of two services side by side."""
    return "http://" + ",".join(f"127.0.0.1:{one.port}" for one in services)


async def is_free(url: str, name: str = "x") -> bool:
    """Tells whether nobody holds the lock, nor waits for it."""
    async with holdfast.connect(url) as locks:
        state = await locks.inspect(name)
    return not state.holders and not state.waiters


async def first_endpoint(locks: holdfast.Locks, port: int) -> None:
    """Has the next requests sent to the service on that port."""
    wire = (await locks._session()).backend._wire  # type: ignore[attr-defined]
    with suppress(AttributeError):
        while not wire.endpoint.endswith(f":{port}"):
            wire.turn_from(wire.endpoint)
