"""Case 12: a user's exception, raised by a signal's handler at any moment, comes out as it is."""

from __future__ import annotations

from pathlib import Path

from faults.actors import run


def test_nothing_is_left_behind_on_the_store(tmp_path: Path) -> None:
    said = run("storm", f"sqlite://{tmp_path}/locks.db", "5", limit=150.0)
    assert said == "", said


def test_nothing_is_left_behind_in_the_engine() -> None:
    said = run("squall", "5", limit=150.0)
    assert said == "", said
