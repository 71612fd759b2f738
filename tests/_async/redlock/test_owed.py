"""What a node could not be told while it was out."""

from __future__ import annotations

from typing import Any

from holdfast._async.backends.redlock_owed import Owed
from holdfast.redlock.members import settings_of
from holdfast.redlock.standing import Board, Marker
from holdfast.urls import parse

VOTES = Marker(b"run.1", 1, 1, 60_000, b"", b"")


class Clock:
    time = 100.0

    def now(self) -> float:
        return self.time


class Ways:
    """They lead to all nodes, or to none."""

    def __init__(self) -> None:
        self.broken = False
        self.told: list[tuple[bytes | None, ...]] = []

    def post(self, commands: list[bytes | None], by: float) -> list[int]:
        told = [index for index, command in enumerate(commands) if command is not None]
        if self.broken:
            return told
        self.told.append(tuple(commands))
        return []


def made() -> tuple[Board, Any, Any, Owed]:
    clock: Any = Clock()
    ways: Any = Ways()
    settings = settings_of(parse("redlock://a:1,b:1,c:1"), {})
    board = Board(settings, clock)
    return board, clock, ways, Owed(settings, board, ways, clock)


def test_it_is_told_once_it_votes_what_still_matters_and_only_once() -> None:
    board, clock, ways, owed = made()
    owed.owe(1, b"soon over", 5.0)
    owed.owe(1, b"free it", 20.0)
    assert ways.told == []
    clock.time += 10.0
    board.seats[1].votes(VOTES)
    owed.pay(board.seats[1])
    owed.pay(board.seats[1])
    assert ways.told == [(None, b"free it", None)]


def test_one_that_came_back_a_moment_ago_is_told_at_once() -> None:
    board, _, ways, owed = made()
    board.seats[2].votes(VOTES)
    owed.owe(2, b"free it", 20.0)
    assert ways.told == [(None, None, b"free it")]


def test_what_does_not_reach_it_is_still_owed_and_it_is_out() -> None:
    board, _, ways, owed = made()
    board.seats[0].votes(VOTES)
    ways.broken = True
    owed.owe(0, b"free it", 20.0)
    assert board.voting() == 0
    ways.broken = False
    board.seats[0].votes(VOTES)
    owed.pay(board.seats[0])
    assert ways.told == [(b"free it", None, None)]
