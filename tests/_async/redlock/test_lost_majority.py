"""A majority that has restarted: no node knows the highest token, and they come back by the clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from _async.redlock.scenes import connect
from holdfast import aio as holdfast
from holdfast.chaos.servers.redis import RedisServer
from holdfast.chaos.servers.redlock import RedlockNodes
from holdfast.stores.redlock._async.backend import RedlockBackend
from holdfast.stores.redlock.address import parse_settings
from holdfast.stores.redlock.membership import read_marker
from holdfast.stores.urls import parse
from worlds.aio import eventually

MAX_TTL = 1.0
MARKER = "holdfast:redlock:marker"


async def take(locks: holdfast.Locks) -> int:
    """Returns the token of a grant, once a majority votes."""
    while True:
        try:
            async with locks.lock("x", ttl=MAX_TTL, timeout=30.0) as lease:
                return lease.token
        except holdfast.BackendUnavailable:
            continue


def restart(node: RedisServer) -> None:
    node.kill()
    node.start()


async def table_of(locks: holdfast.Locks) -> Any:
    backend: Any = (await locks._session()).backend
    return backend._table


@pytest.mark.parametrize("kept", [True, False], ids=["with their data", "empty"])
async def test_two_of_three_that_restart_one_after_the_other_come_back(kept: bool) -> None:
    nodes = RedlockNodes(3, "--appendonly", "yes" if kept else "no")
    try:
        async with connect(nodes, max_ttl=MAX_TTL) as locks:
            before = await take(locks)
            restart(nodes.nodes[0])
            restart(nodes.nodes[1])
            after = await take(locks)
            assert after > before
            table = await table_of(locks)
            await eventually(lambda: table.voting_count() == 3)
    finally:
        nodes.stop()


async def test_no_lock_that_a_majority_has_forgotten_is_granted_before_it_ends(
    nodes: RedlockNodes,
) -> None:
    async with connect(nodes, max_ttl=5.0) as locks:
        lease = await locks.lock("x", ttl=5.0, renew=False).acquire()
        for node in nodes.nodes[:2]:
            restart(node)
        assert lease.held
        await take(locks)
        assert not lease.held


async def test_one_that_restarts_while_another_is_dead_comes_back(nodes: RedlockNodes) -> None:
    """The dead one may vote for others: it is given as much time again to show itself."""
    dead, restarted, _ = nodes.nodes
    async with connect(nodes, max_ttl=MAX_TTL) as locks:
        before = await take(locks)
        dead.kill()
        restart(restarted)
        assert await take(locks) > before
        table = await table_of(locks)
        assert table.voting_count() == 2
        dead.start()
        await eventually(lambda: table.voting_count() == 3)
        assert await take(locks) > before


async def test_one_dead_for_long_and_another_that_restarts_both_come_back(
    nodes: RedlockNodes,
) -> None:
    dead, restarted, _ = nodes.nodes
    async with connect(nodes, max_ttl=MAX_TTL) as locks:
        before = await take(locks)
        dead.kill()
        restart(restarted)
        dead.start()
        assert await take(locks) > before
        table = await table_of(locks)
        await eventually(lambda: table.voting_count() == 3)


async def test_counters_start_above_tokens_that_no_node_knows(nodes: RedlockNodes) -> None:
    """The one that is left has had no part in the last grant."""
    async with connect(nodes, max_ttl=MAX_TTL) as locks:
        await take(locks)
        (counter,) = nodes.nodes[2]("LRANGE", "holdfast:redlock:counters", 0, -1)
        behind = nodes.nodes[2]("GET", counter)
        for node in nodes.nodes[:2]:
            node("INCRBY", counter, 500)
        last = await take(locks)
        nodes.nodes[2]("SET", counter, behind)
        for node in nodes.nodes[:2]:
            restart(node)
        assert await take(locks) > last


async def test_counters_start_above_all_that_a_node_still_knows(nodes: RedlockNodes) -> None:
    """The clocks may have been set back."""
    async with connect(nodes, max_ttl=MAX_TTL) as locks:
        ahead = await take(locks) + 10**12
        (counter,) = nodes.nodes[2]("LRANGE", "holdfast:redlock:counters", 0, -1)
        nodes.nodes[2]("SET", counter, ahead)
        for node in nodes.nodes[:2]:
            restart(node)
        assert await take(locks) > ahead
        table = await table_of(locks)
        await eventually(lambda: table.voting_count() == 3)
    for node in nodes.nodes[:2]:
        assert read_marker(node("GET", MARKER)).base >= ahead


async def test_every_life_after_a_lost_majority_has_a_higher_number(nodes: RedlockNodes) -> None:
    """Nobody may remember the last one: here the others could not be told of it."""
    first, *others = nodes.nodes
    async with connect(nodes, max_ttl=MAX_TTL, node_timeout=0.3) as locks:
        await take(locks)
        table = await table_of(locks)
        for node in others:
            node.pause()
        restart(first)
        table.report_failure(0, "for a test")
        await eventually(lambda: first("EXISTS", MARKER))
        life = read_marker(first("GET", MARKER)).life
        for node in others:
            node.resume()
        await eventually(lambda: table.voting_count() == 3)
        restart(first)
        table.report_failure(0, "for a test")
        await eventually(lambda: first("EXISTS", MARKER))
        assert read_marker(first("GET", MARKER)).life > life


async def test_who_wants_to_decide_is_not_overruled(nodes: RedlockNodes) -> None:
    async with connect(nodes, max_ttl=MAX_TTL, majority_lost="stop") as locks:
        assert "stay out" in locks.guarantees.survives
        await take(locks)
        for node in nodes.nodes[:2]:
            restart(node)
        table = await table_of(locks)
        table.report_failure(0, "for a test")
        await eventually(lambda: "majority_lost='stop'" in str(table.nodes[0]))
        with pytest.raises(holdfast.BackendUnavailable, match="connect once without this option"):
            await locks.lock("x", ttl=MAX_TTL).try_acquire()
        async with connect(nodes, max_ttl=MAX_TTL) as others:
            await take(others)
        await take(locks)


async def test_a_first_start_without_all_nodes_says_so_and_waits(nodes: RedlockNodes) -> None:
    missing = nodes.nodes[2]
    missing.kill()
    settings = parse_settings(parse(nodes.url), {"max_ttl": MAX_TTL, "node_timeout": 1.5})
    backend = RedlockBackend(settings, "holdfast")
    try:
        backend._recovery.look_after()
        state = backend._table.nodes[0]
        wanted = f"all 3 reply, and 127.0.0.1:{missing.port} cannot"
        await eventually(lambda: "it was never used" in str(state) and wanted in str(state))
        await eventually(lambda: backend._table.voting_count() == 2)
        missing.start()
        await eventually(lambda: backend._table.voting_count() == 3)
    finally:
        await backend.close()


def fill_memory(node: RedisServer) -> None:
    node("CONFIG", "SET", "maxmemory", "1")


def make_read_only(node: RedisServer) -> None:
    node("REPLICAOF", "127.0.0.1", "1")


def deny_scripts(node: RedisServer) -> None:
    node("ACL", "SETUSER", "default", "-evalsha")


@pytest.mark.parametrize("upset", [fill_memory, make_read_only, deny_scripts])
async def test_a_node_that_refuses_keeps_the_others_out_no_longer_than_a_dead_one(
    nodes: RedlockNodes, upset: Callable[[RedisServer], None]
) -> None:
    refusing, *others = nodes.nodes
    async with connect(nodes, max_ttl=MAX_TTL) as locks:
        before = await take(locks)
        restart(refusing)
        upset(refusing)
        restart(others[0])
        assert await take(locks) > before


@pytest.mark.parametrize("upset", [fill_memory, make_read_only, deny_scripts])
async def test_a_node_that_refuses_takes_no_part_in_a_first_start(
    nodes: RedlockNodes, upset: Callable[[RedisServer], None]
) -> None:
    upset(nodes.nodes[2])
    settings = parse_settings(parse(nodes.url), {"max_ttl": MAX_TTL, "node_timeout": 1.5})
    backend = RedlockBackend(settings, "holdfast")
    try:
        backend._recovery.look_after()
        await eventually(lambda: backend._table.voting_count() == 2)
    finally:
        await backend.close()


async def test_an_option_with_another_value_is_refused() -> None:
    with pytest.raises(holdfast.ConfigError, match="majority_lost must be 'return' or 'stop'"):
        holdfast.connect("redlock://a,b,c", majority_lost="wait")  # type: ignore[arg-type]
