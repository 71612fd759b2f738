"""Rounds that do not stand: the pauses between them, and what is left of them."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.clock import system_clock
from holdfast.stores.redis.wire.protocol import bulk
from holdfast.stores.redlock._async import rounds as rounds_module
from holdfast.stores.redlock._async.rounds import ROUNDS, SHORTEST_PAUSE, Rounds
from holdfast.stores.redlock.address import parse_settings
from holdfast.stores.redlock.commands import MARKED, QUIET, UNMARKED, Commands
from holdfast.stores.redlock.membership import Marker, NodeTable
from holdfast.stores.redlock.votes import Ballot
from holdfast.stores.urls import Target

ATTEMPTS = 400


class Waiting:
    given_up = False
    has_slots = False
    waking_node = 0


class Still:
    """A clock that stands still."""

    def now(self) -> float:
        return 100.0


async def test_pauses_between_rounds_are_random_and_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    clock: Any = Still()
    settings = parse_settings(Target("redlock", "a:1,b:2,c:3", {}), {})
    table = NodeTable(settings, clock)
    for state in table.nodes:
        state.let_vote(Marker(b"run.1", 1, 1, 60_000, b"", b""))
    pauses: list[list[float]] = []

    class Noted:
        def __init__(self, clock: Any) -> None:
            pass

        async def wait(self, until: float) -> None:
            pauses[-1].append(until - 100.0)

    async def split(self: Rounds, waiter: Any, deadline: float) -> Ballot:
        return Ballot(table)

    monkeypatch.setattr(rounds_module, "Signal", Noted)
    monkeypatch.setattr(Rounds, "run_round", split)
    nothing: Any = None
    wire: Any = SimpleNamespace(table=table, clock=clock)
    rounds = Rounds(wire, nothing, nothing, nothing)
    waiter: Any = Waiting()
    for _ in range(ATTEMPTS):
        pauses.append([])
        await rounds.try_rounds(waiter, 1000.0)
    assert {len(each) for each in pauses} == {ROUNDS - 1}
    for number, found in enumerate(zip(*pauses, strict=True)):
        usual = SHORTEST_PAUSE * 2**number
        assert 0.4 * usual <= min(found) <= max(found) <= 2.6 * usual
        assert max(found) > 1.5 * min(found)  # never in step
        assert len(set(found)) > 50
        assert 1.1 * usual < median(found) < 1.9 * usual


async def test_there_is_no_pause_beyond_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that has no time left for another round is told at once."""
    clock = system_clock()
    settings = parse_settings(Target("redlock", "a:1,b:2,c:3", {}), {})
    table = NodeTable(settings, clock)
    for state in table.nodes:
        state.let_vote(Marker(b"run.1", 1, 1, 60_000, b"", b""))
    tries = 0

    async def split(self: Rounds, waiter: Any, deadline: float) -> Ballot:
        nonlocal tries
        tries += 1
        return Ballot(table)

    monkeypatch.setattr(Rounds, "run_round", split)
    nothing: Any = None
    wire: Any = SimpleNamespace(table=table, clock=clock)
    rounds = Rounds(wire, nothing, nothing, nothing)
    waiter: Any = Waiting()
    await rounds.try_rounds(waiter, clock.now())
    assert tries == 1


@pytest.mark.parametrize(
    ("freed", "repliers", "expected"),
    [(False, [0, 1, 2], 1), (True, [0, 1, 2], 1), (True, [1, 2], ROUNDS)],
    ids=["not told that it is free", "taken there by now", "free there"],
)
async def test_a_release_that_is_on_its_way_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, freed: bool, repliers: list[int], expected: int
) -> None:
    """The first node wakes the waiter; the nodes `repliers` say that another owner holds the lock."""
    clock = system_clock()
    settings = parse_settings(Target("redlock", "a:1,b:2,c:3", {}), {})
    table = NodeTable(settings, clock)
    for state in table.nodes:
        state.let_vote(Marker(b"run.1", 1, 1, 60_000, b"", b""))
    tries = 0

    async def refuse(self: Rounds, waiter: Any, deadline: float) -> Ballot:
        nonlocal tries
        tries += 1
        ballot = Ballot(table)
        for index in repliers:
            ballot.count_take(index, [-1, 1000, b"other"])
        return ballot

    monkeypatch.setattr(Rounds, "run_round", refuse)
    nothing: Any = None
    wire: Any = SimpleNamespace(table=table, clock=clock)
    waiter: Any = Waiting()
    rounds = Rounds(wire, nothing, nothing, nothing)
    assert await rounds.try_rounds(waiter, clock.now() + 60.0, freed) == 1.0
    assert tries == expected


class Told:
    """A wire that keeps the commands it is to send, and the memory of undelivered ones."""

    def __init__(self) -> None:
        self.posted: list[Any] = []
        self.undelivered: list[tuple[int, bytes, float]] = []

    def send_again(self) -> None:
        """Does nothing: it is asked to after each round that fails."""

    def post(
        self,
        commands: Any,
        deadline: float,
        on_reply: Callable[[int, Any], bool],
        earlier: Any,
        fallbacks: Any,
    ) -> list[int]:
        self.posted = [commands, earlier, fallbacks, on_reply]
        return [2]

    def add(self, index: int, command: bytes, ttl: float, missed: object) -> None:
        self.undelivered.append((index, command, ttl))


def test_what_is_given_back_leaves_a_tombstone_where_the_request_may_come_later() -> None:
    clock: Any = Still()
    settings = parse_settings(Target("redlock", "a:1,b:2,c:3", {}), {})
    told: Any = Told()
    nothing: Any = None
    told.table, told.clock = NodeTable(settings, clock), clock
    rounds = Rounds(told, nothing, told, nothing)
    prefixes = Commands("holdfast", 1.0).any_prefixes("x")
    end = prefixes.free + bulk(b"me")
    plain, marked = end + UNMARKED + QUIET, end + MARKED + QUIET
    rounds.give_back(prefixes, "me", [0, 2], {0}, ())
    assert told.posted[:3] == [[plain, None, marked], (), [plain, None, marked]]
    assert told.undelivered == [(2, marked, prefixes.ttl)]  # it could not be told

    rounds.give_back(prefixes, "me", [0, 2], {0}, ["c1", "c2", "c3"])
    commands, earlier, fallbacks, on_reply = told.posted
    assert (commands, fallbacks) == ([plain, None, plain], [plain, None, marked])
    assert earlier == ["c1", "c2", "c3"]  # on these it comes behind the request
    told.undelivered.clear()
    assert on_reply(0, 1) is on_reply(0, 0) is False
    assert told.undelivered == []
    on_reply(0, ConnectionResetError())
    assert told.undelivered == [(0, marked, prefixes.ttl)]  # it may never have arrived
