"""Holders' keys are watched a little after the grant, from the grant on."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.clock import system_clock
from holdfast.model import Label
from holdfast.stores._async.contract import Terms
from holdfast.stores.etcd._async import holder_watch as etcd_guard
from holdfast.stores.etcd._async.attempt import Attempt
from holdfast.stores.etcd._async.holder_watch import Guard
from worlds.aio import eventually


class Clock:
    """It stands still until it is moved; only the alarm has a real one."""

    def __init__(self) -> None:
        self.moved = 0.0

    def now(self) -> float:
        return self.moved


def attempt_of(line: Any, changed: int) -> Any:
    attempt = Attempt(Terms("x", 30.0, Label("here", 1)), "me", line)
    attempt.changed = changed
    return attempt


async def test_a_line_is_watched_from_its_oldest_grant_on() -> None:
    watched: list[tuple[Any, int]] = []
    clock: Any = Clock()
    guard = Guard(system_clock(), lambda line, revision: watched.append((line, revision)))
    guard._clock = clock
    alarms: list[float] = []
    guard._alarm.at = lambda due, callback: alarms.append(due)  # type: ignore[method-assign]
    lines: list[Any] = [object(), object()]
    owed = attempt_of(lines[1], 3)
    for attempt in (
        attempt_of(lines[0], 7),
        attempt_of(lines[0], 5),
        attempt_of(lines[0], 9),
        attempt_of(lines[1], 8),
        owed,
    ):
        guard.add(attempt)
    owed.owed = True  # given up meanwhile
    assert alarms == [etcd_guard.SOON]
    guard._ring()
    assert watched == []  # they have it for no time yet
    assert len(alarms) == 2
    clock.moved += etcd_guard.SOON
    young = attempt_of(lines[1], 11)
    guard.add(young)
    guard._ring()
    assert sorted(watched, key=lambda one: one[1]) == [(lines[0], 6), (lines[1], 9)]
    watched.clear()
    clock.moved += etcd_guard.SOON
    guard._ring()
    assert watched == [(lines[1], 12)]
    guard.close()


async def test_whoever_comes_while_others_are_looked_at_is_looked_at_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(etcd_guard, "SOON", 0.02)
    watched: list[Any] = []
    line: Any = object()
    first, second, third = (attempt_of(line, number) for number in (1, 2, 3))

    def watch(line: Any, revision: int) -> None:
        watched.append(revision)
        if revision == 2:
            guard.add(second)

    guard = Guard(system_clock(), watch)
    guard.add(first)
    await eventually(lambda: watched == [2, 3])
    guard.add(third)
    await eventually(lambda: watched == [2, 3, 4])
    guard.close()
