"""The ensemble that the tests here share: its URL, a raw client, and a way to it that can be upset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.zookeeper import raw_client
from stores import zookeeper, zookeeper_ensemble


@pytest.fixture
def url() -> Iterator[str]:
    with zookeeper() as made:
        yield made


@pytest.fixture
def raw() -> Iterator[Any]:
    with raw_client(zookeeper_ensemble().hosts) as client:
        yield client


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy(zookeeper_ensemble().nodes[0].port)
    yield made
    made.close()


@pytest.fixture
def through(url: str, proxy: Proxy) -> str:
    """Returns a URL of the same locks, with the proxy in between."""
    return f"zookeeper://127.0.0.1:{proxy.port}/{url.rpartition('/')[2]}"
