"""Nodes that speak TLS and require a password; nodes that sync every write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.ports import free_port
from holdfast.chaos.servers.redis import RedisServer, certificate
from holdfast.chaos.servers.redlock import RedlockNodes
from worlds.aio import Job, eventually

GROUPS = ("connection", "read", "write", "scripting", "pubsub")
NEEDED = (*[f"+@{group}" for group in GROUPS], "+time", "+info")
"""The access list of a user, as in docs/redlock.md."""


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Three nodes behind TLS, each with a user of its own; their URL, and the certificate authority."""
    cert, key = certificate(tmp_path)
    servers: list[RedisServer] = []
    places: list[str] = []
    try:
        for number in range(3):
            port = free_port()
            tls = ["--tls-port", str(port), "--tls-cert-file", cert, "--tls-key-file", key]
            servers.append(
                RedisServer(*tls, "--tls-ca-cert-file", cert, "--tls-auth-clients", "no")
            )
            rights = ("on", f">s3cr:t{number}", "resetchannels", "~holdfast:*", "&holdfast:*")
            servers[-1]("ACL", "SETUSER", "app", *rights, *NEEDED)
            places.append(f"app:s3cr%3At{number}@127.0.0.1:{port}")
        yield "redlock://" + ",".join(places), cert
    finally:
        for server in servers:
            server.stop()


async def test_tls_and_a_password_for_each_node(closed: tuple[str, str]) -> None:
    url, cert = closed
    async with holdfast.connect(url, tls_ca=cert, node_timeout=5.0) as locks:
        assert "s3cr" not in repr(locks) + locks.url
        lease = await locks.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)

        await until_waiting(locks)
        await lease.renew()
        assert await lease.release() is True
        second = await waiter.result()
        assert second.token > lease.token
        assert await second.release() is True

        async def work(number: int) -> bool:
            return await (await locks.lock(f"job{number}").acquire()).release()

        # By many, so that answers come together: several TLS records in one read.
        for _ in range(3):
            jobs = [Job(work, number) for number in range(20)]
            assert all([await job.result() for job in jobs])
        assert (await locks.inspect("x")).out == ()
        assert await locks.force_release("x") is False
        assert [state.name for state in await locks.list()] == []


async def test_without_the_password_nobody_is_let_in_and_it_is_never_shown(
    closed: tuple[str, str],
) -> None:
    url, cert = closed
    wrong = url.replace("s3cr", "wr0ng")
    with pytest.raises(holdfast.LockError, match="does not let us in") as raised:
        await holdfast.connect(wrong, tls_ca=cert, node_timeout=5.0).lock("x").acquire()
    assert "wr0ng" not in str(raised.value)
    assert "s3cr" not in repr(holdfast.connect(url, tls_ca=cert))


async def test_nodes_that_sync_every_write_forget_nothing() -> None:
    nodes = RedlockNodes(3, "--appendonly", "yes", "--appendfsync", "always")
    try:
        options: dict[str, Any] = {"max_ttl": 300.0, "node_timeout": 5.0, "appendfsync": "always"}
        async with (
            holdfast.connect(nodes.url, **options) as locks,
            holdfast.connect(nodes.url, **options) as others,
        ):
            held = await locks.lock("x", ttl=100.0).acquire()
            assert await others.lock("y", ttl=30.0).try_acquire() is not None
            for node in nodes.nodes:
                node.kill()
                node.start()

            async def all_vote() -> bool:
                try:
                    return (await others.inspect("x")).out == ()
                except holdfast.BackendUnavailable:
                    return False

            await eventually(all_vote)  # long before max_ttl
            (holder,) = (await others.inspect("x")).holders
            assert (holder.owner, holder.token) == (held.owner, held.token)
            assert await others.lock("x", ttl=30.0).try_acquire() is None

            async def renewed() -> bool:
                try:
                    await held.renew()  # its connections have broken: it finds that out first
                except holdfast.BackendUnavailable:
                    return False
                return True

            await eventually(renewed)
            assert await held.release() is True
            later = await others.lock("x", ttl=10.0).acquire(timeout=20.0)
            assert later.token > held.token
    finally:
        nodes.stop()


@pytest.mark.parametrize("namespace", ["50%", "a%d", "{a}", "%s %b"])
async def test_no_namespace_is_a_form_to_fill_in(nodes: RedlockNodes, namespace: str) -> None:
    """In keys a percent sign is written as `%25`, which must stay as it is."""
    async with holdfast.connect(nodes.url, namespace=namespace, node_timeout=5.0) as locks:
        lease = await locks.lock("x").acquire()
        assert [state.name for state in await locks.list()] == ["x"]
        assert await lease.release() is True
        later = await locks.rwlock("x").write().acquire()
        assert later.token > lease.token
