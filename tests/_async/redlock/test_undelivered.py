"""Commands that a node missed while it was out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.stores.redis.wire.protocol import Lost
from holdfast.stores.redlock._async import undelivered as undelivered_module
from holdfast.stores.redlock._async.undelivered import Undelivered
from holdfast.stores.redlock.address import parse_settings
from holdfast.stores.redlock.membership import Marker, NodeTable
from holdfast.stores.urls import parse

VOTES = Marker(b"run.1", 1, 1, 60_000, b"", b"")


class Clock:
    time = 100.0

    def now(self) -> float:
        return self.time


class Wire:
    """A wire that reaches all nodes, or none."""

    def __init__(self) -> None:
        self.broken = False
        self.told: list[tuple[int, bytes]] = []
        self.on_reply: Callable[[int, Any], bool]
        self.reply: Any = 1

    def post(
        self, commands: list[bytes | None], deadline: float, on_reply: Callable[[int, Any], bool]
    ) -> list[int]:
        told = [(index, command) for index, command in enumerate(commands) if command is not None]
        if self.broken:
            return [index for index, _ in told]
        self.told += told
        self.on_reply = on_reply
        return []

    async def call_many(self, index: int, commands: list[bytes], deadline: float) -> list[Any]:
        if self.broken:
            raise Lost("it broke")
        self.told += [(index, command) for command in commands]
        return [self.reply for _ in commands]


def made() -> tuple[NodeTable, Any, Any, Undelivered]:
    clock: Any = Clock()
    wire: Any = Wire()
    settings = parse_settings(parse("redlock://a:1,b:1,c:1"), {})
    table = NodeTable(settings, clock)
    wire.table, wire.clock = table, clock
    return table, clock, wire, Undelivered(settings, wire)


async def test_it_is_told_once_it_votes_what_still_matters_and_only_once() -> None:
    table, clock, wire, undelivered = made()
    undelivered.add(1, b"soon over", 5.0)
    undelivered.add(1, b"free it", 20.0)
    assert wire.told == []
    clock.time += 10.0
    table.nodes[1].let_vote(VOTES)
    await undelivered.deliver(table.nodes[1])
    await undelivered.deliver(table.nodes[1])
    assert wire.told == [(1, b"free it")]
    assert table.voting_count() == 1


async def test_one_that_is_owed_much_is_told_all_of_it() -> None:
    table, _, wire, undelivered = made()
    commands = [b"free %d" % number for number in range(2 * undelivered_module.AT_ONCE + 1)]
    for command in commands:
        undelivered.add(1, command, 20.0)
    table.nodes[1].let_vote(VOTES)
    await undelivered.deliver(table.nodes[1])
    assert wire.told == [(1, command) for command in commands]


def test_one_that_came_back_a_moment_ago_is_told_at_once() -> None:
    table, _, wire, undelivered = made()
    table.nodes[2].let_vote(VOTES)
    undelivered.add(2, b"free it", 20.0)
    assert wire.told == [(2, b"free it")]


async def test_what_does_not_reach_it_is_still_owed_and_it_is_out() -> None:
    table, _, wire, undelivered = made()
    table.nodes[0].let_vote(VOTES)
    wire.broken = True
    undelivered.add(0, b"free it", 20.0)
    assert table.voting_count() == 0
    table.nodes[0].let_vote(VOTES)
    await undelivered.deliver(table.nodes[0])
    assert table.voting_count() == 0
    wire.broken = False
    wire.reply = RuntimeError("HFOUT")
    table.nodes[0].let_vote(VOTES)
    await undelivered.deliver(table.nodes[0])
    assert table.voting_count() == 0
    wire.told.clear()
    wire.reply = 0
    table.nodes[0].let_vote(VOTES)
    await undelivered.deliver(table.nodes[0])
    await undelivered.deliver(table.nodes[0])
    assert wire.told == [(0, b"free it")]
    assert table.voting_count() == 1


async def test_one_that_refuses_votes_on_and_is_told_again_after_a_pause() -> None:
    """Otherwise it would be sent the same as often as it can refuse it."""
    table, clock, wire, undelivered = made()
    table.nodes[0].let_vote(VOTES)
    for refusal in ("OOM", "READONLY", "NOPERM", "ERR Error running script: -READONLY"):
        wire.told.clear()
        undelivered.add(0, b"free it", 60.0, RuntimeError(refusal))
        undelivered.send_again()
        undelivered.add(0, b"another", 60.0)
        assert wire.told == []
        clock.time += undelivered_module.REFUSED_PAUSE
        undelivered.send_again()
        undelivered.send_again()
        assert wire.told == [(0, b"free it"), (0, b"another")]
    undelivered.add(0, b"free it", 60.0, RuntimeError("OOM"))
    wire.told.clear()
    wire.reply = RuntimeError("OOM")
    await undelivered.deliver(table.nodes[0])
    undelivered.send_again()
    assert wire.told == [(0, b"free it")]
    assert table.voting_count() == 1


async def test_what_was_not_told_because_of_a_mistake_is_still_owed() -> None:
    """Also after a cancellation: no command is forgotten before the node has replied."""
    table, _, wire, undelivered = made()
    undelivered.add(0, b"free it", 20.0)
    table.nodes[0].let_vote(VOTES)
    call_many, wire.call_many = wire.call_many, None
    with pytest.raises(TypeError):
        await undelivered.deliver(table.nodes[0])
    wire.call_many = call_many
    await undelivered.deliver(table.nodes[0])
    assert wire.told == [(0, b"free it")]


async def test_what_is_not_answered_is_owed_again_for_as_long_as_it_matters() -> None:
    table, clock, wire, undelivered = made()
    state = table.nodes[0]
    state.let_vote(VOTES)
    undelivered.add(0, b"free it", 20.0)
    assert wire.on_reply(0, 1) is False  # never enough: all that comes is to be heard
    await undelivered.deliver(state)
    assert len(wire.told) == 1
    for reply in (OSError("it broke"), RuntimeError("HFOUT"), None):
        wire.told.clear()
        clock.time += 6.0
        wire.on_reply(0, reply)
        assert wire.told == [(0, b"free it")]  # it votes
    clock.time += 6.0
    wire.told.clear()
    wire.on_reply(0, None)
    assert wire.told == []
