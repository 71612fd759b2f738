"""Nodes that come back, or start for the first time, while something else happens to them."""

from __future__ import annotations

from typing import Any

import pytest

from _async.redlock.scenes import MAX_TTL, connect
from holdfast import aio as holdfast
from holdfast.chaos.servers.redis import RedisServer
from holdfast.chaos.servers.redlock import RedlockNodes
from holdfast.stores.redlock._async import rejoin as rejoin_module
from holdfast.stores.redlock._async.backend import RedlockBackend
from holdfast.stores.redlock.address import parse_settings
from holdfast.stores.redlock.membership import Marker, read_known, read_marker, run_id_of
from holdfast.stores.urls import parse
from worlds.aio import eventually

MARKER = "holdfast:redlock:marker"
BEGINNING = "holdfast:redlock:beginning"


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out the wait for holds that a node may have forgotten: that has tests of its own."""
    monkeypatch.setattr(rejoin_module, "DRIFT", 0.0)


def marker_of(node: RedisServer) -> Marker:
    return read_marker(node("GET", MARKER))


async def restarts(locks: holdfast.Locks, node: RedisServer) -> None:
    """Restarts a node empty, and returns when it votes again."""
    backend: Any = (await locks._session()).backend
    node.kill()
    node.start()
    backend._table.report_failure(0, "for a test")
    await eventually(lambda: node("EXISTS", MARKER) and backend._table.voting_count() == 3)


def note(node: RedisServer, how: bytes, life: int, roster: bytes) -> None:
    """Notes on the node that it has begun to come back, or to start, in this run of its server."""
    run_id = run_id_of(node("INFO", "server"))
    started = node("TIME")[0] + b"000"
    node("SET", BEGINNING, b"\x1f".join((run_id + b".1", started, how, b"%d" % life, roster)))


async def used(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks, locks.lock("x", ttl=MAX_TTL):
        pass


async def test_a_marker_that_was_read_before_a_restart_does_not_count(nodes: RedlockNodes) -> None:
    """One routine reads the marker, and another finds meanwhile that the node has restarted."""
    async with connect(nodes) as locks:
        async with locks.lock("x", ttl=MAX_TTL):
            pass
        backend: Any = (await locks._session()).backend
        state = backend._table.nodes[0]
        marker = read_marker(nodes.nodes[0]("GET", MARKER))
        nodes.nodes[0].kill()
        nodes.nodes[0].start()
        backend._table.report_failure(0, "for a test")
        await eventually(lambda: "it has restarted" in state.out_reason)
        with pytest.raises(holdfast.BackendUnavailable, match="restarted meanwhile"):
            await backend._recovery._rejoin._let_vote(state, marker)
        assert not state.incarnation


@pytest.mark.usefixtures("at_once")
async def test_every_life_has_a_higher_number(nodes: RedlockNodes) -> None:
    """The node has forgotten its last life, but the others know it."""
    node = nodes.nodes[0]
    async with connect(nodes) as locks:
        async with locks.lock("x", ttl=MAX_TTL):
            pass
        last = 1
        for _ in range(2):
            await restarts(locks, node)
            life = marker_of(node).life
            assert life > last
            last = life
            for other in nodes.nodes[1:]:
                known = read_known(marker_of(other).known)
                assert known == {f"127.0.0.1:{node.port}": life}


@pytest.mark.usefixtures("at_once")
async def test_counters_begin_at_the_highest_of_all_that_were_read(nodes: RedlockNodes) -> None:
    """Which of them has taken part in the last grant is not known."""
    async with connect(nodes) as locks:
        async with locks.lock("x", ttl=MAX_TTL) as lease:
            token = lease.token
        (counter,) = nodes.nodes[0]("LRANGE", "holdfast:redlock:counters", 0, -1)
        for number, ahead in ((1, 2000), (2, 1000)):
            nodes.nodes[number]("SET", counter, token + ahead)
        await restarts(locks, nodes.nodes[0])
        assert marker_of(nodes.nodes[0]).base == token + 2000
        nodes.nodes[2]("SET", counter, token + 3000)
        await restarts(locks, nodes.nodes[0])
        assert marker_of(nodes.nodes[0]).base == token + 3000


@pytest.mark.usefixtures("at_once")
async def test_who_comes_back_knows_what_those_know_whom_it_read(nodes: RedlockNodes) -> None:
    """Also of nodes that it has not read: old votes of theirs must not count beside it."""
    async with connect(nodes) as locks:
        async with locks.lock("x", ttl=MAX_TTL):
            pass
        for other, life in zip(nodes.nodes[1:], (b"4", b"9"), strict=True):
            other("APPEND", MARKER, b"elsewhere:1=" + life)
        await restarts(locks, nodes.nodes[0])
    assert read_known(marker_of(nodes.nodes[0]).known)["elsewhere:1"] == 9


async def test_one_that_has_gone_out_is_not_read(nodes: RedlockNodes) -> None:
    async with connect(nodes) as locks:
        async with locks.lock("x", ttl=MAX_TTL):
            pass
        backend: Any = (await locks._session()).backend
        states = backend._table.nodes
        was, states[1].incarnation = (
            states[1].incarnation,
            b"",
        )  # since somebody has looked who votes
        replies = await backend._recovery._rejoin._seal(states[0], states[1:], 0)
        assert [reply.name for reply in replies] == [states[2].name]
        states[1].incarnation = was


async def test_one_that_cannot_be_told_of_a_new_life_votes_on(nodes: RedlockNodes) -> None:
    """It is out of memory, and renews leases all the same."""
    async with connect(nodes) as locks:
        async with locks.lock("x", ttl=MAX_TTL):
            pass
        backend: Any = (await locks._session()).backend
        states = backend._table.nodes
        for node in nodes.nodes[1:]:
            node("CONFIG", "SET", "maxmemory", "1")
        assert await backend._recovery._rejoin._seal(states[0], states[1:], 7) == []
        assert backend._table.voting_count() == 3


@pytest.mark.usefixtures("at_once")
async def test_one_whose_number_is_known_already_comes_back_with_it(nodes: RedlockNodes) -> None:
    """The node was noted for a first start, too; that is over, since others know of a later life."""
    node = nodes.nodes[2]
    await used(nodes)
    roster = marker_of(nodes.nodes[0]).roster
    node.kill()
    node.start()
    note(node, b"first", 3, roster)
    async with connect(nodes) as locks:
        await eventually(lambda: node("EXISTS", MARKER))
        async with locks.lock("x", ttl=MAX_TTL):
            pass
    assert marker_of(node).life == 3
    assert marker_of(node).roster == b""


async def test_nodes_of_which_one_was_noted_for_another_first_start_wait(
    nodes: RedlockNodes,
) -> None:
    """The node may vote with the others: a vote proves that all nodes have noted the same roster."""
    note(nodes.nodes[2], b"first", 0, b"ff")
    backend = RedlockBackend(parse_settings(parse(nodes.url), {"max_ttl": 2.0}), "holdfast")
    try:
        backend._recovery.look_after()
        states = backend._table.nodes
        await eventually(lambda: all(state.out_until is not None for state in states))
        assert [node("EXISTS", MARKER) for node in nodes.nodes] == [0, 0, 0]
        await eventually(lambda: backend._table.voting_count() == 3)
    finally:
        await backend.close()


async def test_all_counters_start_at_the_clock_that_is_furthest_ahead(
    nodes: RedlockNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = rejoin_module.Rejoin._begin
    ahead: list[int] = []

    async def noted(self: Any, state: Any, *rest: Any) -> Any:
        reply = await begin(self, state, *rest)
        if reply[0] == 0:
            reply[4] += 3_600_000_000 * (state.index == 1)
            ahead.append(reply[4])
        return reply

    monkeypatch.setattr(rejoin_module.Rejoin, "_begin", noted)
    await used(nodes)
    bases = {marker_of(node).base for node in nodes.nodes}
    assert len(bases) == 1
    assert bases <= set(ahead)
    assert bases.pop() > max(ahead) - 1_800_000_000
