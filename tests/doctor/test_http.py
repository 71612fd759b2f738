"""What the doctor finds at lock services."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import holdfast
from doctor.look import look
from holdfast.chaos.servers.ports import free_port
from holdfast.chaos.servers.redis import RedisServer
from holdfast.chaos.servers.service import ServiceServer
from servers.canned import CannedServer
from stores import http_service, http_store, second_http_service


@pytest.fixture
def elsewhere() -> Iterator[ServiceServer]:
    """A service on another store."""
    store = RedisServer()
    service = ServiceServer(store.url)
    yield service
    service.stop()
    store.stop()


def test_two_services_on_one_store_are_fit() -> None:
    http_store()("FLUSHALL")
    url = f"{http_service().url},127.0.0.1:{second_http_service().port}"
    found = look(url, timeout=60.0)
    assert found.one("same-store", "ok")
    assert found.one("tls", "ok", "this machine")
    assert found.levels("ready") == ["ok", "ok"]
    assert found.one("eviction", "ok")  # of the Redis, by the service's own doctor


def test_services_on_different_stores_are_found_out(elsewhere: ServiceServer) -> None:
    found = look(f"{http_service().url},127.0.0.1:{elsewhere.port}", timeout=60.0)
    assert found.one("same-store", "wrong", "does not know of a lock")


def test_a_service_that_is_gone_is_told() -> None:
    found = look(f"{http_service().url},127.0.0.1:{free_port()}", timeout=60.0)
    assert found.one("reachable", "warning")
    assert found.one("steps", "ok")


def test_without_any_service_there_is_nothing_to_examine() -> None:
    with pytest.raises(holdfast.BackendUnavailable, match="cannot be reached"):
        look(f"http://127.0.0.1:{free_port()}", timeout=10.0)


def test_what_is_no_service_is_not_fit() -> None:
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhello"
    with CannedServer(page) as server:
        found = look(server.url, timeout=10.0)
    assert found.one("steps", "wrong", "did not answer as a lock service does")
