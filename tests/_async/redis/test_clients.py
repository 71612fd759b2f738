"""A redis-py client in place of a URL: of one server, of sentinels, of a cluster."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.asyncio.cluster import RedisCluster as AsyncCluster
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.cluster import RedisCluster
from redis.credentials import UsernamePasswordCredentialProvider
from redis.sentinel import Sentinel

from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.ports import free_port
from holdfast.chaos.servers.redis import RedisServer
from holdfast.chaos.servers.sentinel import NAME
from holdfast.stores.redis.wire.aio import ASYNCHRONOUS
from stores import redis_nodes, redis_server, redis_watch
from worlds.aio import Job, eventually

Client: Any = redis.asyncio.Redis if ASYNCHRONOUS else redis.Redis
Wrong: Any = redis.Redis if ASYNCHRONOUS else redis.asyncio.Redis
Watching: Any = AsyncSentinel if ASYNCHRONOUS else Sentinel
Cluster: Any = AsyncCluster if ASYNCHRONOUS else RedisCluster


class Failing(UsernamePasswordCredentialProvider):
    def get_credentials(self) -> Any:
        raise ValueError(self.password)


async def used(client: Any, **options: Any) -> str:
    """Makes a grant, a wait and a hand-over; returns the store's URL."""
    async with holdfast.connect(client, **options) as locks:
        lease = await locks.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)

        await until_waiting(locks)
        await lease.release()
        assert (await waiter.result()).token > lease.token
        return locks.url


async def closed(client: Any) -> None:
    """Closes the client, as its user does."""
    if ASYNCHRONOUS:
        await client.aclose()
    else:
        client.close()


async def test_a_client_stays_the_users(tmp_path: Path) -> None:
    server = redis_server()
    server("FLUSHALL")
    client = Client(host="127.0.0.1", port=server.port, db=3, decode_responses=True)
    assert await client.set("mine", "kept")
    assert await used(client, namespace="shop") == f"redis://127.0.0.1:{server.port}/3"
    assert await client.get("mine") == "kept"
    keys = await client.keys("shop:*")
    assert keys  # in the same database
    await closed(client)
    async with holdfast.connect(client) as locks:  # only its settings are read
        assert await locks.lock("x").try_acquire() is not None


async def test_a_client_of_the_other_world_is_refused() -> None:
    with pytest.raises(holdfast.ConfigError, match=r"is for .*: give it to holdfast"):
        holdfast.connect(Wrong(host="127.0.0.1"))


async def test_users_and_passwords_are_taken_along_and_never_shown() -> None:
    server = RedisServer(password="s3cret")
    try:
        provider = UsernamePasswordCredentialProvider("default", "s3cret")
        for client in (
            Client(port=server.port, password="s3cret"),
            Client.from_url(f"redis://:s3cret@127.0.0.1:{server.port}/1"),
            Client(port=server.port, username=b"default", password=b"s3cret"),
            Client(port=server.port, credential_provider=provider),
        ):
            shown = await used(client)
            assert "s3cret" not in shown
        with pytest.raises(holdfast.ConfigError, match="does not let us in") as raised:
            await used(Client(port=server.port, password="wr0ng"))
        assert "wr0ng" not in str(raised.value)
        with pytest.raises(holdfast.BackendUnavailable, match="credential provider") as failed:
            await used(Client(port=server.port, credential_provider=Failing("u", "s3cret")))
        assert "s3cret" not in str(failed.value)
    finally:
        server.stop()


async def test_tls_and_unix_sockets(tmp_path: Path) -> None:
    assert shutil.which("openssl"), "this test needs openssl: apt-get install openssl"
    key, cert, sock = tmp_path / "key.pem", tmp_path / "cert.pem", tmp_path / "redis.sock"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    made += ["-nodes", "-days", "2", "-keyout", str(key), "-out", str(cert), "-subj", "/CN=x"]
    subprocess.run(
        [*made, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True
    )
    port = free_port()
    options = ["--tls-port", str(port), "--tls-cert-file", str(cert), "--tls-key-file", str(key)]
    options += ["--tls-ca-cert-file", str(cert), "--unixsocket", str(sock)]
    server = RedisServer(*options)
    try:
        files = {"ssl_certfile": str(cert), "ssl_keyfile": str(key)}
        secure = Client(
            host="127.0.0.1", port=port, ssl=True, ssl_ca_certs=str(cert), db=1, **files
        )
        assert await used(secure) == f"rediss://127.0.0.1:{port}/1"
        careless = Client(host="127.0.0.1", port=port, ssl=True, ssl_cert_reqs="none", **files)
        await used(careless)
        with pytest.raises(holdfast.BackendUnavailable, match="cannot reach"):
            await used(Client(host="127.0.0.1", port=port, ssl=True, **files))
        await eventually(sock.exists)
        assert await used(Client(unix_socket_path=str(sock))) == f"redis+unix://{sock}"
    finally:
        server.stop()


async def test_sentinels() -> None:
    watch = redis_watch()
    watch.primary("FLUSHALL")
    watching = Watching([("127.0.0.1", sentinel.port) for sentinel in watch.sentinels])
    shown = await used(watching.master_for(NAME))
    assert shown.startswith("redis+sentinel://127.0.0.1:")
    with pytest.raises(holdfast.ConfigError, match="master_for"):
        holdfast.connect(watching.slave_for(NAME))
    with pytest.raises(holdfast.ConfigError, match="master_for"):
        holdfast.connect(watching)


async def test_a_cluster() -> None:
    cluster = redis_nodes()
    cluster.flush()
    client = Cluster(host="127.0.0.1", port=cluster.nodes[1].port)
    assert (await used(client)).startswith("redis+cluster://127.0.0.1:")
    assert await client.set("mine", "kept")
    await closed(client)


async def test_what_cannot_be_taken_over_is_refused() -> None:
    class Pretended(redis.Connection):
        """A connection of a library that only pretends to be a server."""

    pool: Any = redis.asyncio.ConnectionPool if ASYNCHRONOUS else redis.ConnectionPool
    for client, words in (
        (Client(connection_pool=pool(connection_class=Pretended)), "of another kind"),
        (Client(ssl=True, ssl_cert_reqs="optional", ssl_ca_certs="/nowhere"), "cannot be used"),
        (Client(redis_connect_func=print), "redis_connect_func"),
        (object(), "must be a str, a client"),
        (redis.Connection, "must be a str, a client"),
    ):
        with pytest.raises(holdfast.ConfigError, match=words):
            holdfast.connect(client)  # type: ignore[arg-type]
    with pytest.raises(holdfast.ConfigError, match="tls_ca cannot be given"):
        holdfast.connect(Client(), tls_ca="x")
    with pytest.raises(holdfast.ConfigError, match="no option 'db'"):
        holdfast.connect(Client(), db=1)
