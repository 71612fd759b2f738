"""What must have happened between two looks at the locks of a store."""

from __future__ import annotations

from holdfast.model import Label, LockState, Participant
from holdfast.watching import sightings


def one(owner: str, token: int = 0, text: str = "") -> Participant:
    return Participant(owner, Label("host", 1, text), token, 0.0, 30.0)


def state(name: str, holders: list[Participant], waiters: list[Participant]) -> LockState:
    return LockState(name, tuple(holders), tuple(waiters), 0)


def told(before: list[LockState], now: list[LockState]) -> list[tuple[str, str, str]]:
    seen = []
    for sighting in sightings(before, now):
        assert sighting.participant is not None
        seen.append((sighting.kind, sighting.name, sighting.participant.owner))
    return seen


def test_the_first_look_tells_how_things_stand() -> None:
    locks = [state("b", [one("h", 5)], [one("w")]), state("a", [one("g", 4)], [])]
    assert told([], locks) == [("granted", "a", "g"), ("granted", "b", "h"), ("queued", "b", "w")]
    assert told(locks, locks) == []


def test_what_ended_comes_before_what_began() -> None:
    before = [state("x", [one("h", 5)], [one("w"), one("v")])]
    now = [state("x", [one("w", 6)], [one("u")])]
    assert told(before, now) == [
        ("ended", "x", "h"),
        ("left", "x", "v"),
        ("granted", "x", "w"),
        ("queued", "x", "u"),
    ]
    assert told(now, []) == [("ended", "x", "w"), ("left", "x", "u")]


def test_another_label_is_a_change() -> None:
    before, now = [state("x", [one("h", 5, "a")], [])], [state("x", [one("h", 5, "b")], [])]
    assert told(before, now) == [("changed", "x", "h")]


def test_one_in_the_place_of_another_is_noticed() -> None:
    before = [state("x", [one("h", 5)], [one("w")])]
    assert told(before, [state("x", [one("g", 6)], [one("w")])]) == [
        ("ended", "x", "h"),
        ("granted", "x", "g"),
    ]
    assert told(before, [state("x", [one("h", 5)], [one("v")])]) == [
        ("left", "x", "w"),
        ("queued", "x", "v"),
    ]
    writer = one("h", 5)._replace(weight=8)
    assert told(before, [state("x", [writer], [one("w")])]) == [("changed", "x", "h")]
