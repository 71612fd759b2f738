"""The order in which several processes share the tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from selection import LONG_FILES, TESTS, longest_first


def test_the_long_files_are_there() -> None:
    assert [name for name in LONG_FILES if not (TESTS / name).is_file()] == []


def test_long_files_come_first_then_those_with_the_most_tests() -> None:
    names = ["b.py", "a.py", "a.py", "c.py", LONG_FILES[1], "c.py", LONG_FILES[0]]
    items: list[Any] = [SimpleNamespace(path=TESTS / name) for name in names]
    found = [item.path.relative_to(TESTS).as_posix() for item in longest_first(items)]
    assert found == [*LONG_FILES[:2], "a.py", "a.py", "c.py", "c.py", "b.py"]
