"""The checker itself: it accepts a good log, and finds each thing that can be wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults import checker
from faults.checker import Event

GOOD = """
10 want a x 0
11 in a x 100
12 want b x 0
20 out a x 100
21 in b x 101
22 want c x 0
23 kill b - 0
24 in c x 103
25 out c x 103
26 want a x 0
26 quit c - 0
27 in a x 110
28 want d y 0
29 in d y 50
30 out a x 110
31 out d y 50
32 quit a - 0
33 quit d - 0
"""


def parsed(text: str) -> list[Event]:
    events = []
    for line in text.strip().splitlines():
        at, kind, who, lock, token = line.split()
        events.append(Event(int(at), kind, who, lock, int(token)))
    return events


def test_a_good_log_is_accepted() -> None:
    assert checker.check(parsed(GOOD)) == []


@pytest.mark.parametrize(
    ("line", "instead", "problem"),
    [
        ("20 out a x 100", "22 out a x 100", "x: b got it while a held it"),
        ("20 out a x 100", "20 want e x 0", "x: b got it while a held it"),
        ("23 kill b - 0", "25 kill b - 0", "x: c got it while b held it"),
        ("23 kill b - 0", "23 kill e - 0", "x: c got it while b held it"),
        ("21 in b x 101", "21 in b x 100", "x: token 100 of b is not above 100"),
        ("24 in c x 103", "24 in c x 99", "x: token 99 of c is not above 101"),
        ("32 quit a - 0", "32 want a x 0", "a never got all of its turns"),
    ],
)
def test_a_bad_log_is_refused(line: str, instead: str, problem: str) -> None:
    assert line in GOOD
    assert problem in checker.check(sorted(parsed(GOOD.replace(line, instead))))


def test_fairness_is_measured() -> None:
    assert checker.jain([5, 5, 5, 5]) == 1.0
    assert checker.jain([20, 0, 0, 0]) == 0.25
    unfair = """
    1 want a x 0
    1 want b x 0
    1 want c x 0
    2 in a x 1
    3 out a x 1
    3 want a x 0
    4 in a x 2
    5 out a x 2
    6 quit a - 0
    7 in b x 3
    7 kill c - 0
    8 out b x 3
    9 quit b - 0
    """
    events = parsed(unfair)
    assert checker.most_overtaken(events) == 2
    assert checker.shares_when_first_is_done(events) == {"a": 2, "b": 0}
    assert checker.most_overtaken(parsed(GOOD)) == 0


def test_what_is_logged_is_read(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    first, second = checker.Log(path), checker.Log(path)
    first.write("in", "a", "x", 7)
    second.write("in", "b", "x", 7)
    first.write("out", "a", "x", 7)
    first.close()
    second.close()
    events = checker.read(path)
    assert [event[1:] for event in events] == [
        ("in", "a", "x", 7),
        ("in", "b", "x", 7),
        ("out", "a", "x", 7),
    ]
    assert len(checker.check(events)) == 2
