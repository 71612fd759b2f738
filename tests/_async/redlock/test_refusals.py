"""Nodes that refuse: because they cannot write, or because they do not let a client in."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from _async.redlock.scenes import MAX_TTL, connect
from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.redis import RedisServer
from holdfast.chaos.servers.redlock import RedlockNodes
from worlds.aio import Job, eventually


def fill_memory(node: RedisServer) -> None:
    node("CONFIG", "SET", "maxmemory", "1")


def make_read_only(node: RedisServer) -> None:
    node("REPLICAOF", "127.0.0.1", "1")


REFUSALS = pytest.mark.parametrize(
    ("upset", "reason"),
    [(fill_memory, "out of memory"), (make_read_only, "read-only")],
    ids=["out of memory", "read-only"],
)


@REFUSALS
async def test_a_majority_that_cannot_write_is_no_other_holder(
    nodes: RedlockNodes, upset: Any, reason: str
) -> None:
    async with connect(nodes) as locks:
        async with locks.lock("x", ttl=MAX_TTL):
            pass
        for node in nodes.nodes[:2]:
            upset(node)
        for timeout in (0.0, 1.0, None):
            with pytest.raises(holdfast.BackendUnavailable, match=reason) as raised:
                await locks.lock("x", ttl=MAX_TTL, timeout=timeout).acquire()
            assert f":{nodes.nodes[0].port} is" in str(raised.value)
        with pytest.raises(holdfast.BackendUnavailable, match=reason):
            await locks.lock("x", ttl=MAX_TTL).try_acquire()


@REFUSALS
async def test_one_node_that_cannot_write_does_not_matter(
    nodes: RedlockNodes, upset: Any, reason: str
) -> None:
    async with connect(nodes) as locks:
        async with locks.lock("x", ttl=MAX_TTL):
            pass
        upset(nodes.nodes[0])
        async with locks.lock("x", ttl=MAX_TTL):
            assert await locks.lock("x", ttl=MAX_TTL).try_acquire() is None  # this *is* a holder


async def test_a_lease_is_renewed_on_nodes_without_memory(nodes: RedlockNodes) -> None:
    """The first renewal of a lease also notes its date there, for which there is no room."""
    async with connect(nodes) as locks:
        lease = await locks.lock("x", ttl=MAX_TTL / 2).acquire()
        for node in nodes.nodes:
            fill_memory(node)
        await lease.renew(ttl=MAX_TTL)
        assert lease.remaining() > MAX_TTL / 2
        assert await lease.release() is True


async def test_a_waiter_that_nodes_refuse_costs_no_other_lease_its_renewal(
    nodes: RedlockNodes,
) -> None:
    async with connect(nodes, heartbeat=0.3) as locks:
        held = await locks.lock("held", ttl=9.0).acquire()
        other = await locks.lock("x", ttl=MAX_TTL).acquire()
        waiter = Job(locks.lock("x", ttl=1.5).try_acquire, 5.0)

        await until_waiting(locks)
        for node in nodes.nodes:
            fill_memory(node)
        await other.release()
        with suppress(holdfast.BackendUnavailable):  # once that is known to go on
            assert await waiter.result() is None
        left = held.remaining()
        await eventually(lambda: held.remaining() > left)  # it was renewed
        await held.release()


async def test_one_node_that_does_not_let_us_in_keeps_nobody_out(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks, locks.lock("x", ttl=MAX_TTL):
        pass
    for node in nodes.nodes[:1]:
        node("CONFIG", "SET", "requirepass", "secret")
        node.password = "secret"
    async with connect(nodes) as locks:
        async with locks.lock("x", ttl=MAX_TTL):
            pass
        (out,) = (await locks.inspect("x")).out
        assert "does not let us in" in out


async def test_a_refusal_is_told_while_it_lasts_and_no_longer(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks, locks.lock("x", ttl=MAX_TTL):
        pass
    for node in nodes.nodes:
        node("CONFIG", "SET", "requirepass", "secret")
        node.password = "secret"
    with pytest.raises(holdfast.ConfigError, match="does not let us in"):
        async with connect(nodes) as locks, locks.lock("x", ttl=MAX_TTL):
            pass
    for node in nodes.nodes[1:]:
        node("CONFIG", "SET", "requirepass", "")
        node.password = ""
    async with connect(nodes) as locks:
        async with locks.lock("x", ttl=MAX_TTL):
            pass
        # A node that goes out and is refused for a while is not held against us afterwards.
        first, second = nodes.nodes[:2]
        backend: Any = (await locks._session()).backend
        second("CONFIG", "SET", "requirepass", "secret")
        second.password = "secret"
        second("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        backend._table.report_failure(1, "for a test")
        await eventually(lambda: len(backend._recovery._refusals) == 2)
        with pytest.raises(holdfast.ConfigError, match="does not let us in"):
            await locks.lock("x", ttl=MAX_TTL).try_acquire()
        second("CONFIG", "SET", "requirepass", "")
        second.password = ""
        await eventually(lambda: backend._table.voting_count() == 2)
        async with locks.lock("x", ttl=MAX_TTL):
            pass
        assert first.running
