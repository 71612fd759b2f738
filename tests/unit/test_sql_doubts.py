"""An owner of whom nobody ever learns what became of it is forgotten in the end."""

from __future__ import annotations

from typing import Any

from holdfast.stores.sql.doubts import LASTING, Doubts


class MovedClock:
    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time


def test_an_outage_leaves_nothing_for_ever() -> None:
    clock: Any = MovedClock()
    doubts = Doubts(clock)
    for number in range(1000):
        clock.time += 1.0
        doubts.add(f"owner {number}")
    assert len(doubts) == LASTING
    assert "owner 999" in doubts
    assert "owner 1" not in doubts
    clock.time += LASTING
    doubts.add("another")
    assert len(doubts) == 1


def test_who_asks_again_is_remembered_from_then_on() -> None:
    clock: Any = MovedClock()
    doubts = Doubts(clock)
    doubts.add("again")
    clock.time += LASTING - 1
    doubts.add("other")
    doubts.add("again")
    clock.time += 2
    doubts.add("last")
    assert "again" in doubts
    doubts.discard("again")
    doubts.discard("never there")
    assert "again" not in doubts
