"""Those who split the votes try again after pauses that are random and grow."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest

from holdfast._async.backends import redlock_rounds
from holdfast._async.backends.redlock_rounds import ROUNDS, SHORTEST_PAUSE, Rounds
from holdfast.clock import system_clock
from holdfast.redlock.members import settings_of
from holdfast.redlock.standing import Board, Marker
from holdfast.redlock.votes import Ballot
from holdfast.urls import Target

ATTEMPTS = 400


class Waiting:
    left = False


class Still:
    """A clock."""

    def now(self) -> float:
        return 100.0


async def test_pauses_between_rounds_are_random_and_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    clock: Any = Still()
    settings = settings_of(Target("redlock", "a:1,b:2,c:3", {}), {})
    board = Board(settings, clock)
    for seat in board.seats:
        seat.votes(Marker(b"run.1", 1, 1, 60_000, b"", b""))
    pauses: list[list[float]] = []

    class Noted:
        def __init__(self, clock: Any) -> None:
            pass

        async def wait(self, until: float) -> None:
            pauses[-1].append(until - 100.0)

    async def split(self: Rounds, waiter: Any, by: float) -> Ballot:
        return Ballot(board)

    monkeypatch.setattr(redlock_rounds, "Signal", Noted)
    monkeypatch.setattr(Rounds, "_round", split)
    nothing: Any = None
    rounds = Rounds(settings, board, nothing, nothing, nothing, nothing, clock)
    waiter: Any = Waiting()
    for _ in range(ATTEMPTS):
        pauses.append([])
        await rounds.tried(waiter, 1000.0)
    assert {len(each) for each in pauses} == {ROUNDS - 1}
    for number, found in enumerate(zip(*pauses, strict=True)):
        usual = SHORTEST_PAUSE * 2**number
        assert 0.4 * usual <= min(found) <= max(found) <= 2.6 * usual
        assert max(found) > 1.5 * min(found)  # never in step
        assert len(set(found)) > 50
        assert 1.1 * usual < median(found) < 1.9 * usual


async def test_there_is_no_pause_beyond_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has no time left for another round is told at once."""
    clock = system_clock()
    settings = settings_of(Target("redlock", "a:1,b:2,c:3", {}), {})
    board = Board(settings, clock)
    for seat in board.seats:
        seat.votes(Marker(b"run.1", 1, 1, 60_000, b"", b""))
    tries = 0

    async def split(self: Rounds, waiter: Any, by: float) -> Ballot:
        nonlocal tries
        tries += 1
        return Ballot(board)

    monkeypatch.setattr(Rounds, "_round", split)
    nothing: Any = None
    rounds = Rounds(settings, board, nothing, nothing, nothing, nothing, clock)
    waiter: Any = Waiting()
    await rounds.tried(waiter, clock.now())
    assert tries == 1
