"""TLS, unix sockets, databases, a password alone."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.cluster import port_with_bus
from holdfast.chaos.servers.ports import free_port
from holdfast.chaos.servers.redis import RedisServer, certificate
from worlds.aio import Job, eventually


async def used(url: str, **options: Any) -> None:
    """Makes a grant, a wait, a hand-over and a renewal."""
    async with holdfast.connect(url, **options) as locks:
        lease = await locks.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)

        await until_waiting(locks)
        await lease.renew()
        await lease.release()
        second = await waiter.result()
        assert second.token > lease.token
        assert await second.release() is True


async def used_at_once(url: str, **options: Any) -> None:
    """Has many tasks use it, so that replies come together: several TLS records in one read."""
    async with holdfast.connect(url, **options) as locks:

        async def work(number: int) -> bool:
            lease = await locks.lock(f"job{number}").acquire()
            await lease.renew()
            return await lease.release()

        for _ in range(5):
            jobs = [Job(work, number) for number in range(40)]
            assert all([await job.result() for job in jobs])


async def test_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    port = free_port()
    options = ["--tls-port", str(port), "--tls-cert-file", cert, "--tls-key-file", key]
    server = RedisServer(*options, "--tls-ca-cert-file", cert, "--tls-auth-clients", "yes")
    try:
        url = f"rediss://127.0.0.1:{port}/0"
        await used(url, tls_ca=cert, tls_cert=cert, tls_key=key)
        await used_at_once(f"{url[:-1]}1", tls_ca=cert, tls_cert=cert, tls_key=key)
        with pytest.raises(holdfast.BackendUnavailable, match="cannot reach"):
            await used(url)  # nobody vouches for this certificate
    finally:
        server.stop()


async def test_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    server = RedisServer("--unixsocket", str(path))
    try:
        await eventually(path.exists)
        await used(f"redis+unix://{path}")
    finally:
        server.stop()


async def test_a_place_that_does_not_answer_does_not_use_up_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = RedisServer()
    # Its queue is full, so it takes no more connections, and says nothing.
    silent = socket.create_server(("127.0.0.1", 0), backlog=0)
    crowd = [socket.socket() for _ in range(4)]
    for one in crowd:
        one.setblocking(False)
        one.connect_ex(silent.getsockname())
    real = socket.getaddrinfo
    places = [silent.getsockname(), ("127.0.0.1", server.port)]

    def several(host: Any, *args: Any, **options: Any) -> Any:
        if host != b"several.test":
            return real(host, *args, **options)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in places]

    monkeypatch.setattr(socket, "getaddrinfo", several)
    locks = holdfast.connect("redis://several.test:1")
    try:
        # The silent one does not use up all the time that there is.
        await locks.lock("x").acquire(timeout=6.0)
    finally:
        await locks.close()
        for one in (silent, *crowd):
            one.close()
        server.stop()


async def test_a_server_of_a_cluster_is_refused() -> None:
    server = RedisServer("--cluster-enabled", "yes", port=port_with_bus())
    try:
        with pytest.raises(holdfast.ConfigError, match="part of a cluster"):
            await used(server.url)
    finally:
        server.stop()


async def test_a_password_alone_and_another_database() -> None:
    server = RedisServer()
    try:
        server("CONFIG", "SET", "requirepass", "open sesame")
        await used(f"redis://:open%20sesame@127.0.0.1:{server.port}/3")
        await used(f"redis://open%20sesame@127.0.0.1:{server.port}", db=3)
        with pytest.raises(holdfast.ConfigError, match="does not let us in"):
            await used(f"redis://127.0.0.1:{server.port}")
        with pytest.raises(holdfast.ConfigError, match="no such database"):
            await used(f"redis://:open%20sesame@127.0.0.1:{server.port}/99")
    finally:
        server.stop()
