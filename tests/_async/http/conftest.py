"""Two services side by side for tests that upset them; and a way in between that misbehaves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.redis import RedisServer
from holdfast.chaos.servers.service import ServiceServer
from stores import http_service, http_store, second_http_service


@pytest.fixture
def store() -> RedisServer:
    """The store of both services, emptied."""
    http_store()("FLUSHALL")
    return http_store()


@pytest.fixture
def services(store: RedisServer) -> Iterator[tuple[ServiceServer, ServiceServer]]:
    """Both services. What a test has ended is started again."""
    pair = http_service(), second_http_service()
    yield pair
    for one in pair:
        if not one.running:
            one.start()


@pytest.fixture
def service(services: tuple[ServiceServer, ServiceServer]) -> ServiceServer:
    """The first of the services."""
    return services[0]


@pytest.fixture
def proxy(service: ServiceServer) -> Iterator[Proxy]:
    """A way to the first service."""
    made = Proxy(service.port)
    yield made
    made.close()
