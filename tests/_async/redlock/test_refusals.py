"""Nodes that refuse: because they cannot write, or because they do not let a client in."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import pytest

from _async.redlock.scenes import MAX_TTL, connect
from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.redis import RedisServer
from holdfast.chaos.servers.redlock import RedlockNodes, url_of
from servers.refusing import RefusingServer, full
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


async def test_the_reason_is_told_whatever_was_asked_for(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks:
        lease = await locks.lock("x", ttl=MAX_TTL / 2, renew=False).acquire()
        # In the same millisecond, and with the same TTL, it would have nothing to write.
        renew = partial(lease.renew, ttl=MAX_TTL)
        other = await locks.lock("y", ttl=MAX_TTL, renew=False).acquire()
        for node in nodes.nodes[:2]:
            make_read_only(node)
        for ask in (renew, other.release):
            with pytest.raises(holdfast.BackendUnavailable, match="read-only"):
                await ask()
        assert (await locks.inspect("x")).out == ()  # they vote: others may be renewed there
        for node in nodes.nodes[:2]:
            node("REPLICAOF", "NO", "ONE")
            node("ACL", "SETUSER", "default", "-evalsha", "-scan")
        denied: list[Any] = [renew, lambda: locks.inspect("x"), locks.list, lease.release]
        for ask in denied:
            with pytest.raises(holdfast.ConfigError, match="check the user's permissions"):
                await ask()


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


@pytest.mark.parametrize("right", ["info", "script", "evalsha", "set"])
async def test_a_right_that_is_missing_is_told_as_such(nodes: RedlockNodes, right: str) -> None:
    """It is for a person to mend, as on every store; where one node refuses, nobody is kept out."""
    async with connect(nodes) as before, before.lock("x", ttl=MAX_TTL):
        pass
    first, *others = nodes.nodes
    first("ACL", "SETUSER", "default", f"-{right}")
    async with connect(nodes) as locks:
        assert await (await locks.lock("x", ttl=MAX_TTL).acquire()).release() is True
    for node in others:
        node("ACL", "SETUSER", "default", f"-{right}")
    with pytest.raises(holdfast.ConfigError, match="the user's permissions"):
        async with connect(nodes) as locks:
            await locks.lock("x", ttl=MAX_TTL).try_acquire()


async def test_one_node_that_lets_nobody_listen_keeps_no_waiter_out(nodes: RedlockNodes) -> None:
    """It votes, and is the one that would wake the waiter: another one does that."""
    async with connect(nodes, heartbeat=60.0) as locks:
        first, *others = nodes.nodes
        held = await locks.lock("x", ttl=MAX_TTL).acquire()
        first("ACL", "SETUSER", "default", "resetchannels")
        waiter = Job(locks.lock("x", ttl=MAX_TTL).try_acquire, 10.0)
        await until_waiting(locks)
        assert others[0]("LLEN", "holdfast:{x}:q") == 1
        assert await held.release() is True
        lease = await waiter.result()
        assert lease is not None
        for node in others:
            node("ACL", "SETUSER", "default", "resetchannels")
            node("CLIENT", "KILL", "TYPE", "pubsub")
        with pytest.raises(holdfast.ConfigError, match="does not let us listen"):
            await locks.lock("x", ttl=MAX_TTL).try_acquire(timeout=10.0)
        assert await lease.release() is True


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


async def test_nodes_with_too_many_clients_are_quoted(nodes: RedlockNodes) -> None:
    with ExitStack() as stack:
        for node in nodes.nodes[1:]:
            stack.enter_context(full(node))
        with pytest.raises(holdfast.BackendUnavailable, match="max number of clients"):
            await connect(nodes).lock("x").acquire(timeout=1.0)


@pytest.mark.parametrize("late", [False, True])
async def test_nodes_in_protected_mode_are_quoted(late: bool) -> None:
    with ExitStack() as stack:
        ports = [stack.enter_context(RefusingServer(late=late)).port for _ in range(3)]
        with pytest.raises(holdfast.BackendUnavailable, match="protected mode"):
            await holdfast.connect(url_of(ports)).lock("x").acquire(timeout=1.0)
