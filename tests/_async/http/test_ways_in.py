"""TLS, tokens and addresses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from _async.http.scenes import first_endpoint
from holdfast import aio as holdfast
from holdfast.chaos.servers.ports import free_port
from holdfast.chaos.servers.redis import RedisServer, certificate
from holdfast.chaos.servers.service import ServiceServer
from holdfast.fences import FileFence
from servers.canned import CannedServer

EMPTY = b"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture
def secured(store: RedisServer, tmp_path: Path) -> Iterator[tuple[ServiceServer, str]]:
    """A service with a certificate, which comes with it."""
    cert, key = certificate(tmp_path)
    made = ServiceServer(store.url, uvicorn={"ssl_certfile": cert, "ssl_keyfile": key})
    yield made, cert
    made.stop()


async def test_tls_with_a_certificate_that_is_trusted(secured: tuple[ServiceServer, str]) -> None:
    service, cert = secured
    async with holdfast.connect(service.url, tls_ca=cert) as locks:
        lease = await locks.lock("x").acquire()
        assert await locks.lock("x").try_acquire(timeout=0.05) is None
        assert await lease.release() is True
    locks = holdfast.connect(service.url)
    with pytest.raises(holdfast.BackendUnavailable, match=r"(?i)certificate|self.signed"):
        await locks.inspect("x")
    await locks.close()
    locks = holdfast.connect(service.url.replace("https", "http"))
    with pytest.raises(holdfast.BackendUnavailable):
        await locks.inspect("x")
    await locks.close()


async def test_the_token_comes_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text("from-a-file\n")
    with CannedServer(EMPTY) as server:
        for token_file in (file, None):
            if token_file is None:
                monkeypatch.setenv("HOLDFAST_TOKEN_FILE", str(file))
            locks = holdfast.connect(server.url, token_file=token_file)
            with pytest.raises(holdfast.ConfigError):
                await locks.inspect("x")
            await locks.close()
        assert len(server.seen) == 2
        assert all(b"Authorization: Bearer from-a-file\r\n" in one for one in server.seen)


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "é", "x" * 5000])
def test_what_is_no_token_is_refused_and_not_shown(
    tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(token)
    with pytest.raises(holdfast.ConfigError, match="no bearer token") as raised:
        holdfast.connect("http://h", token_file=file)
    if token:
        assert token not in str(raised.value)


async def test_a_path_stands_before_every_request() -> None:
    with CannedServer(EMPTY) as server:
        locks = holdfast.connect(f"{server.url}/team/locks/")
        with pytest.raises(holdfast.ConfigError):
            await locks.inspect("x")
        await locks.close()
        assert server.seen[0].startswith(b"GET /team/locks/v1/")


async def test_a_service_that_is_not_there_costs_no_time(service: ServiceServer) -> None:
    url = f"http://127.0.0.1:{free_port()},127.0.0.1:{service.port}"
    async with holdfast.connect(url) as locks:
        await first_endpoint(locks, service.port)
        async with locks.lock("x"):
            assert locks.guarantees.store == "http (redis)"


async def test_a_namespace_that_the_service_has_not_is_refused(service: ServiceServer) -> None:
    locks = holdfast.connect(service.url, namespace="nowhere")
    with pytest.raises(holdfast.ConfigError, match="nowhere"):
        await locks.lock("x").acquire()
    await locks.close()


async def test_what_the_store_cannot_promise_is_refused_at_the_first_use(
    store: RedisServer,
) -> None:
    """It is not known before: the service has not been asked."""
    service = ServiceServer("memory://promises")
    try:
        locks = holdfast.connect(service.url)
        lock = locks.lock("x", purpose="correctness", protects=FileFence())
        with pytest.raises(holdfast.GuaranteeError, match=r"http \(memory\) cannot"):
            await lock.acquire()
        with pytest.raises(holdfast.GuaranteeError, match=r"http \(memory\) cannot"):
            locks.lock("x", purpose="correctness", protects=FileFence())
        await locks.close()
    finally:
        service.stop()
