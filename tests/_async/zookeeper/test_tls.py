"""TLS, with certificates on both sides, and what is said where it fails."""

from __future__ import annotations

import socket
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.ports import free_port
from holdfast.chaos.servers.redis import certificate
from holdfast.chaos.servers.zookeeper import TLS, ZooKeeperEnsemble
from worlds.aio import Job


class Secured(NamedTuple):
    url: str
    plain_url: str
    cert: str
    key: str


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        cert, key = certificate(folder)
        both = folder / "both.pem"
        both.write_text(Path(key).read_text() + Path(cert).read_text())
        options = TLS.format(port=port, key_and_cert=both, trusted=cert)
        ensemble = ZooKeeperEnsemble([("127.0.0.1", ())], options)
        try:
            ensemble.until(lambda: _greets(port, cert, key))
            yield Secured(f"zookeeper://localhost:{port}", ensemble.url, cert, key)
        finally:
            ensemble.stop()


def _greets(port: int, cert: str, key: str) -> bool:
    """Tells whether the server takes a connection by TLS; the first one may take it seconds."""
    context = ssl.create_default_context(cafile=cert)
    context.load_cert_chain(cert, key)
    try:
        plain = socket.create_connection(("localhost", port), timeout=60.0)
    except ConnectionRefusedError:  # its other port was open first
        return False
    with plain, context.wrap_socket(plain, server_hostname="localhost"):
        return True


async def test_locks_by_tls(secured: Secured) -> None:
    in_url = f"{secured.url}?tls_ca={secured.cert}&tls_cert={secured.cert}&tls_key={secured.key}"
    files = {"tls_ca": secured.cert, "tls_cert": secured.cert, "tls_key": Path(secured.key)}
    async with (
        holdfast.connect(in_url) as locks,
        holdfast.connect(secured.url, **files) as others,  # type: ignore[arg-type]
        holdfast.connect(secured.plain_url) as plain,
    ):
        lease = await locks.lock("x").acquire()
        waiter = Job(others.lock("x").acquire)

        await until_waiting(plain)
        await lease.release()
        assert (await waiter.result()).token > lease.token
        # Many replies in one record of TLS, and records that hold nothing for us.
        leases = [
            await one.result() for one in [Job(locks.lock(f"y{n}").acquire) for n in range(99)]
        ]
        assert len(await locks.list("y")) == 99
        for one in leases:
            await one.renew()
            assert await one.release() is True


async def test_a_certificate_that_nobody_trusts_is_told(secured: Secured) -> None:
    locks = holdfast.connect(secured.url, tls=True)
    with pytest.raises(holdfast.BackendUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
        await locks.lock("x").acquire(timeout=5.0)
    await locks.close()


async def test_a_port_that_wants_tls_is_told(secured: Secured) -> None:
    locks = holdfast.connect(secured.url)
    with pytest.raises(holdfast.BackendUnavailable, match="wants TLS"):
        await locks.lock("x").acquire(timeout=5.0)
    await locks.close()


async def test_a_port_without_tls_is_told(secured: Secured) -> None:
    locks = holdfast.connect(secured.plain_url, tls=True)
    with pytest.raises(holdfast.BackendUnavailable, match="does not speak TLS on this port"):
        await locks.lock("x").acquire(timeout=5.0)
    await locks.close()
