from __future__ import annotations

import random
from math import inf

from holdfast.timer_wheel import TimerWheel


def test_nothing_is_ever_late_and_nothing_far_too_early() -> None:
    dice = random.Random(7)
    wheel: TimerWheel[int] = TimerWheel()
    now = 1000.0
    due: dict[int, float] = {}
    left: dict[int, float] = {}
    for thing in range(2000):
        ahead = 10 ** dice.uniform(-4, 5)
        due[thing] = now + ahead
        left[thing] = ahead
        slot = wheel.add(thing, due[thing], now)
        assert now <= slot <= due[thing]
        assert due[thing] - slot <= max(ahead / 8, 2.0**-10)
    popped: list[int] = []
    while len(wheel):
        now = wheel.next_due()
        for thing in wheel.pop_due(now):
            assert now <= due[thing]
            popped.append(thing)
    assert sorted(popped) == sorted(due)


def test_things_of_one_kind_come_due_together() -> None:
    wheel: TimerWheel[int] = TimerWheel()
    for thing in range(10_000):
        wheel.add(thing, 1010.0 + thing / 10_000, 1000.0 + thing / 10_000)
    batches = 0
    while len(wheel):
        wheel.pop_due(wheel.next_due())
        batches += 1
    assert batches <= 10


def test_removing_leaves_nothing_behind() -> None:
    wheel: TimerWheel[str] = TimerWheel()
    wheel.add("a", 10.0, 0.0)
    wheel.add("a", 20.0, 0.0)
    assert len(wheel) == 1
    assert "a" in wheel
    assert wheel.pop_due(15.0) == []
    assert wheel.remove("a") is True
    assert wheel.remove("a") is False
    assert wheel.next_due() == inf
    assert wheel.pop_due(inf) == []


def test_what_is_overdue_is_due_at_once() -> None:
    wheel: TimerWheel[str] = TimerWheel()
    wheel.add("late", 5.0, 10.0)
    assert wheel.pop_due(10.0) == ["late"]
