"""Rounds that do not stand: the pauses between them, and what is left of them."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import pytest

from holdfast.clock import system_clock
from holdfast.stores.redis.wire.protocol import bulk
from holdfast.stores.redlock._async import rounds as redlock_rounds
from holdfast.stores.redlock._async.rounds import ROUNDS, SHORTEST_PAUSE, Rounds
from holdfast.stores.redlock.commands import MARKED, QUIET, UNMARKED, Commands
from holdfast.stores.redlock.members import settings_of
from holdfast.stores.redlock.membership import Board, Marker
from holdfast.stores.redlock.votes import Ballot
from holdfast.stores.urls import Target

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

    async def split(self: Rounds, waiter: Any, deadline: float) -> Ballot:
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

    async def split(self: Rounds, waiter: Any, deadline: float) -> Ballot:
        nonlocal tries
        tries += 1
        return Ballot(board)

    monkeypatch.setattr(Rounds, "_round", split)
    nothing: Any = None
    rounds = Rounds(settings, board, nothing, nothing, nothing, nothing, clock)
    waiter: Any = Waiting()
    await rounds.tried(waiter, clock.now())
    assert tries == 1


class Told:
    """A fan that keeps what it is to send, and what is owed to whom."""

    def __init__(self) -> None:
        self.posted: list[Any] = []
        self.owed: list[tuple[int, bytes, float]] = []

    def post(
        self,
        commands: Any,
        deadline: float,
        heard: Callable[[int, Any], bool],
        ways: Any,
        instead: Any,
    ) -> list[int]:
        self.posted = [commands, ways, instead, heard]
        return [2]

    def owe(self, index: int, command: bytes, ttl: float) -> None:
        self.owed.append((index, command, ttl))


def test_what_is_given_back_leaves_a_tombstone_where_the_request_may_come_later() -> None:
    clock: Any = Still()
    settings = settings_of(Target("redlock", "a:1,b:2,c:3", {}), {})
    told: Any = Told()
    nothing: Any = None
    rounds = Rounds(settings, Board(settings, clock), told, nothing, told, nothing, clock)
    words = Commands("holdfast", 1.0).plain("x")
    end = words.free + bulk(b"me")
    plain, marked = end + UNMARKED + QUIET, end + MARKED + QUIET
    rounds.give_back(words, "me", [0, 2], {0}, ())
    assert told.posted[:3] == [[plain, None, marked], (), [plain, None, marked]]
    assert told.owed == [(2, marked, words.ttl)]  # it could not be told

    rounds.give_back(words, "me", [0, 2], {0}, ["way", "way", "way"])
    commands, ways, instead, heard = told.posted
    assert (commands, instead) == ([plain, None, plain], [plain, None, marked])
    assert ways == ["way", "way", "way"]  # on these it comes behind the request
    told.owed.clear()
    assert heard(0, 1) is heard(0, 0) is False
    assert told.owed == []
    heard(0, ConnectionResetError())
    assert told.owed == [(0, marked, words.ttl)]  # it may never have arrived
