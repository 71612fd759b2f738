"""Which waiters and observers are looked after where a database sends no messages."""

from __future__ import annotations

from holdfast.stores.sql.unheard import FIRST, Unheard


def test_the_first_of_each_queue_are_looked_after() -> None:
    unheard = Unheard()
    for one in range(FIRST + 5):
        unheard.add(f"x{one}", "x", False)
    unheard.add("y0", "y", False)
    assert unheard.first() == [*(f"x{one}" for one in range(FIRST)), "y0"]
    unheard.discard("x0")
    assert unheard.first()[:FIRST] == [f"x{one}" for one in range(1, FIRST + 1)]


def test_whoever_asks_again_is_the_last() -> None:
    unheard = Unheard()
    for owner in ("a", "b", "a"):
        unheard.add(owner, "x", False)
    assert unheard.first() == ["b", "a"]


def test_all_observers_are_looked_after() -> None:
    unheard = Unheard()
    observers = [f"o{one}" for one in range(FIRST + 5)]
    for owner in observers:
        unheard.add(owner, "x", True)
    assert unheard.first() == observers


def test_nothing_is_left_of_those_who_have_gone() -> None:
    unheard = Unheard()
    unheard.add("a", "x", False)
    unheard.add("b", "x", True)
    assert unheard
    for owner in ("a", "b", "c"):
        unheard.discard(owner)
    assert not unheard
    assert unheard.first() == []
    assert not unheard._waiters
