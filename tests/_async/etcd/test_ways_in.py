"""Users and passwords, TLS, client certificates; and what is said to those who are not let in."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.etcd import EtcdCluster, grpc_proxy
from holdfast.chaos.servers.ports import free_port
from holdfast.stores.etcd.wire.messages import AUTHENTICATE
from worlds.aio import Job, eventually


async def used(url: str, **options: Any) -> None:
    """A grant, a wait, a hand-over and a renewal."""
    async with holdfast.connect(url, **options) as locks:
        lease = await locks.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)

        await until_waiting(locks)
        await lease.renew()
        await lease.release()
        second = await waiter.result()
        assert second.token > lease.token
        assert await second.release() is True


@pytest.fixture
def guarded() -> Iterator[EtcdCluster]:
    """Users: root, worker who may use our keys, and stranger who may not."""
    cluster = EtcdCluster()
    try:
        for user in ("root:secret", "worker:open sesame", "stranger:danger"):
            cluster.ctl("user", "add", user)
        cluster.ctl("role", "add", "locks")
        cluster.ctl("role", "grant-permission", "locks", "--prefix=true", "readwrite", "/holdfast/")
        cluster.ctl("user", "grant-role", "worker", "locks")
        cluster.ctl("user", "grant-role", "root", "root")
        cluster.ctl("auth", "enable")
        cluster.ctl_options = ["--user", "root:secret"]
        yield cluster
    finally:
        cluster.stop()


async def test_users(guarded: EtcdCluster) -> None:
    place = f"127.0.0.1:{guarded.members[0].port}"
    await used(f"etcd://worker:open%20sesame@{place}")
    for url, message in (
        (f"etcd://{place}", "user name is empty|user and password"),
        (f"etcd://worker:wrong-word@{place}", "does not let us in"),
        (f"etcd://stranger:danger@{place}", "grant-permission"),
    ):
        with pytest.raises(holdfast.ConfigError, match=message) as raised:
            await used(url)
        assert "wrong-word" not in str(raised.value)
        assert "danger" not in str(raised.value)
    async with holdfast.connect(f"etcd://worker:open%20sesame@{place}") as locks:
        assert "sesame" not in repr(locks)
        assert "sesame" not in locks.url


async def test_a_token_that_is_not_known_any_more_is_got_anew(guarded: EtcdCluster) -> None:
    member = guarded.members[0]
    url = f"etcd://worker:open%20sesame@127.0.0.1:{member.port}"
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        lease = await locks.lock("x").acquire()
        waiter = Job(others.lock("x").acquire)

        await until_waiting(locks)
        member.kill()  # with it go the tokens that it gave
        member.start()
        guarded.wait_ready()
        await lease.renew()
        assert lease.held
        assert await lease.release() is True
        assert (await waiter.result()).token > lease.token


async def test_while_one_logs_in_anew_nobody_is_refused(
    guarded: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"etcd://worker:open%20sesame@127.0.0.1:{guarded.members[0].port}"
    async with holdfast.connect(url) as locks:
        session: Any = await locks._session()
        retrier = session.backend._retrier
        ask = retrier.wire.call
        meanwhile: list[holdfast.LockState] = []

        async def slowly(method: str, request: bytes, timeout: float) -> bytes:
            if method == AUTHENTICATE:
                meanwhile.append(await locks.inspect("x"))
            answer: bytes = await ask(method, request, timeout)
            return answer

        monkeypatch.setattr(retrier.wire, "call", slowly)
        await retrier.log_in(session.deadline())
        assert len(meanwhile) == 1
        assert await locks.lock("x").try_acquire() is not None


# unasync: aio-only
async def test_a_user_where_there_are_none(tmp_path: Path) -> None:
    cluster = EtcdCluster()
    try:
        place = f"127.0.0.1:{cluster.members[0].port}"
        with pytest.raises(holdfast.ConfigError, match="knows no users"):
            await used(f"etcd://worker:word@{place}")
    finally:
        cluster.stop()


# unasync: end
@pytest.mark.parametrize("token", ["", "unknown.7"])
async def test_who_has_no_good_token_gets_one(guarded: EtcdCluster, token: str) -> None:
    member = guarded.members[0]
    url = f"etcd://worker:open%20sesame@127.0.0.1:{member.port}"
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x").acquire()
        session = locks._live
        assert session is not None
        session.backend._wire.log_in(token)  # type: ignore[attr-defined]
        await lease.renew()
        assert await lease.release() is True


def certificate(folder: Path) -> tuple[str, str]:
    key, cert = folder / "key.pem", folder / "cert.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    made += ["-nodes", "-days", "2", "-keyout", str(key), "-out", str(cert), *subject]
    subprocess.run(made, check=True, capture_output=True)
    return str(cert), str(key)


async def test_tls_and_client_certificates(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    files = ["--cert-file", cert, "--key-file", key, "--trusted-ca-file", cert]
    cluster = EtcdCluster(
        options=[*files, "--client-cert-auth"],
        scheme="https",
        ctl_options=["--cacert", cert, "--cert", cert, "--key", key],
    )
    try:
        await used(cluster.url, tls_ca=cert, tls_cert=cert, tls_key=key)
        await used(f"{cluster.url}?tls_ca={cert}&tls_cert={cert}&tls_key={key}")
        with pytest.raises(holdfast.BackendUnavailable, match="tls=1"):
            await used(cluster.url)  # without TLS at all
        with pytest.raises(holdfast.BackendUnavailable, match="cannot be used"):
            await used(f"{cluster.url}?tls=1")  # nobody vouches for this certificate
    finally:
        cluster.stop()


async def test_a_proxy_in_the_environment_is_not_asked(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
        monkeypatch.setenv(name.upper(), f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    await used(cluster.url)


async def test_few_streams_on_each_connection() -> None:
    cluster = EtcdCluster(options=["--max-concurrent-streams", "1"])
    try:
        await used(cluster.url)
    finally:
        cluster.stop()


async def test_behind_the_grpc_proxy_of_etcd(cluster: EtcdCluster) -> None:
    with grpc_proxy(cluster) as url:
        await used(url)
        async with holdfast.connect(url) as locks:
            lease = await locks.lock("kept", ttl=3.0).acquire()
            renewed: list[holdfast.Event] = []
            locks.on_event(renewed.append)
            await eventually(lambda: len(renewed) >= 2)
            assert {event.kind for event in renewed} == {"renewed"}
            assert lease.held
            await locks.force_release("kept")
            await eventually(lambda: not lease.held)


# unasync: aio-only
@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("etcd://", "needs a host"),
        ("etcd://h:0", "needs a host"),
        ("etcd://h:port", "needs a host"),
        ("etcd://[::1", "needs a host"),
        ("etcd://h/path", "no path"),
        ("etcd://h,h", "twice"),
        ("etcd://user@h", "both"),
        ("etcd://h?tls=2", "tls"),
        ("etcd://h?token_base=-1", "token_base"),
        ("etcd://h?tls_ca=x", "tls_ca cannot be read"),
    ],
)
async def test_bad_urls(url: str, message: str) -> None:
    with pytest.raises(holdfast.ConfigError, match=message):
        holdfast.connect(url)


async def test_bad_options() -> None:
    for options, message in (
        ({"token_base": "7"}, "token_base"),
        ({"token_base": True}, "token_base"),
        ({"token_base": 1.5}, "token_base"),
        ({"token_base": float("nan")}, "token_base"),
    ):
        with pytest.raises(holdfast.ConfigError, match=message):
            holdfast.connect("etcd://127.0.0.1:1", **options)


async def test_nobody_there() -> None:
    locks = holdfast.connect(f"etcd://worker:secret@127.0.0.1:{free_port()}")
    with pytest.raises(holdfast.BackendUnavailable) as raised:
        await locks.inspect("x")
    assert "secret" not in str(raised.value)
    await locks.close()


# unasync: end
