"""What a node could not be told while it was out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.stores.redis.wire.protocol import Lost
from holdfast.stores.redlock._async import undelivered as redlock_owed
from holdfast.stores.redlock._async.undelivered import Owed
from holdfast.stores.redlock.members import settings_of
from holdfast.stores.redlock.membership import Board, Marker
from holdfast.stores.urls import parse

VOTES = Marker(b"run.1", 1, 1, 60_000, b"", b"")


class Clock:
    time = 100.0

    def now(self) -> float:
        return self.time


class Ways:
    """They lead to all nodes, or to none."""

    def __init__(self) -> None:
        self.broken = False
        self.told: list[tuple[int, bytes]] = []
        self.heard: Callable[[int, Any], bool]
        self.reply: Any = 1

    def post(
        self, commands: list[bytes | None], deadline: float, heard: Callable[[int, Any], bool]
    ) -> list[int]:
        told = [(index, command) for index, command in enumerate(commands) if command is not None]
        if self.broken:
            return [index for index, _ in told]
        self.told += told
        self.heard = heard
        return []

    async def batch(self, index: int, commands: list[bytes], deadline: float) -> list[Any]:
        if self.broken:
            raise Lost("it broke")
        self.told += [(index, command) for command in commands]
        return [self.reply for _ in commands]


def made() -> tuple[Board, Any, Any, Owed]:
    clock: Any = Clock()
    ways: Any = Ways()
    settings = settings_of(parse("redlock://a:1,b:1,c:1"), {})
    board = Board(settings, clock)
    return board, clock, ways, Owed(settings, board, ways, clock)


async def test_it_is_told_once_it_votes_what_still_matters_and_only_once() -> None:
    board, clock, ways, owed = made()
    owed.owe(1, b"soon over", 5.0)
    owed.owe(1, b"free it", 20.0)
    assert ways.told == []
    clock.time += 10.0
    board.seats[1].votes(VOTES)
    await owed.settle(board.seats[1])
    await owed.settle(board.seats[1])
    assert ways.told == [(1, b"free it")]
    assert board.voting() == 1


async def test_one_that_is_owed_much_is_told_all_of_it() -> None:
    board, _, ways, owed = made()
    commands = [b"free %d" % number for number in range(2 * redlock_owed.AT_ONCE + 1)]
    for command in commands:
        owed.owe(1, command, 20.0)
    board.seats[1].votes(VOTES)
    await owed.settle(board.seats[1])
    assert ways.told == [(1, command) for command in commands]


def test_one_that_came_back_a_moment_ago_is_told_at_once() -> None:
    board, _, ways, owed = made()
    board.seats[2].votes(VOTES)
    owed.owe(2, b"free it", 20.0)
    assert ways.told == [(2, b"free it")]


async def test_what_does_not_reach_it_is_still_owed_and_it_is_out() -> None:
    board, _, ways, owed = made()
    board.seats[0].votes(VOTES)
    ways.broken = True
    owed.owe(0, b"free it", 20.0)
    assert board.voting() == 0
    board.seats[0].votes(VOTES)
    await owed.settle(board.seats[0])
    assert board.voting() == 0
    ways.broken = False
    ways.reply = RuntimeError("OOM")
    board.seats[0].votes(VOTES)
    await owed.settle(board.seats[0])
    assert board.voting() == 0
    ways.told.clear()
    ways.reply = 0
    board.seats[0].votes(VOTES)
    await owed.settle(board.seats[0])
    await owed.settle(board.seats[0])
    assert ways.told == [(0, b"free it")]
    assert board.voting() == 1


async def test_what_was_not_told_because_of_a_mistake_is_still_owed() -> None:
    """Or because whoever told it was cancelled: nothing is forgotten before it is answered."""
    board, _, ways, owed = made()
    owed.owe(0, b"free it", 20.0)
    board.seats[0].votes(VOTES)
    batch, ways.batch = ways.batch, None
    with pytest.raises(TypeError):
        await owed.settle(board.seats[0])
    ways.batch = batch
    await owed.settle(board.seats[0])
    assert ways.told == [(0, b"free it")]


async def test_what_is_not_answered_is_owed_again_for_as_long_as_it_matters() -> None:
    board, clock, ways, owed = made()
    seat = board.seats[0]
    seat.votes(VOTES)
    owed.owe(0, b"free it", 20.0)
    assert ways.heard(0, 1) is False  # never enough: all that comes is to be heard
    await owed.settle(seat)
    assert len(ways.told) == 1
    for reply in (OSError("it broke"), RuntimeError("OOM"), None):
        ways.told.clear()
        clock.time += 6.0
        ways.heard(0, reply)
        assert ways.told == [(0, b"free it")]  # it votes
    clock.time += 6.0
    ways.told.clear()
    ways.heard(0, None)
    assert ways.told == []
