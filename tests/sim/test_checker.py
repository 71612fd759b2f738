"""The checker sees what must not be, in locks of every kind; and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.checks import MAX_CAPACITY
from holdfast.sim.checker import Checker, Grant

READER = (1, MAX_CAPACITY)
WRITER = (MAX_CAPACITY, MAX_CAPACITY)
PERMIT = (1, 2)


class NoTrace:
    def add(self, *args: object) -> None:
        pass


def grant(
    share: tuple[int, int],
    token: int,
    held: tuple[float, float],
    slot: int | None = None,
    ended: float | None = None,
) -> Grant:
    """Returns a grant that was asked for and granted at `held[0]`, and last seen held at `held[1]`."""
    made = Grant("x", f"client{token}", token, held[0] - 0.5, held[0], *share, slot)
    made.seen_at = held[1]
    made.ended_at = ended
    return made


def found(*grants: Grant) -> list[str]:
    trace: Any = NoTrace()
    checker = Checker(trace)
    checker.grants.extend(grants)
    checker.compare_grants()
    return checker.violations


def test_what_may_be() -> None:
    assert not found(grant(READER, 1, (1, 9)), grant(READER, 2, (2, 5)), grant(WRITER, 3, (9, 10)))
    assert not found(grant(PERMIT, 7, (1, 9), 1), grant(PERMIT, 6, (2, 9), 0))  # only unique
    assert not found(grant(PERMIT, 2, (1, 3), 0), grant(PERMIT, 4, (3, 9), 0))
    assert not found(
        grant(PERMIT, 2, (1, 4), 0), grant(PERMIT, 3, (2, 9), 1), grant(PERMIT, 4, (4, 9), 0)
    )


@pytest.mark.parametrize(
    ("grants", "words"),
    [
        ([grant(READER, 1, (1, 9)), grant(WRITER, 2, (2, 5))], "two holders at once"),
        ([grant(WRITER, 1, (1, 9)), grant(WRITER, 2, (2, 5))], "two holders at once"),
        ([grant(PERMIT, 2, (1, 9), 0), grant(PERMIT, 4, (2, 9), 0)], "both in slot 0"),
        (
            [grant(PERMIT, number, (number, 9), None) for number in (1, 2, 3)],
            "more at once than 2 permits",
        ),
        ([grant(READER, 1, (1, 9)), grant(READER, 1, (2, 9))], "the same token twice"),
        ([grant(PERMIT, 4, (1, 2), ended=2.0), grant(PERMIT, 3, (3, 4))], "it fell"),
        ([grant(WRITER, 4, (1, 2), ended=2.0), grant(READER, 3, (3, 4))], "it fell"),
        ([grant(READER, 4, (1, 2), ended=2.0), grant(READER, 3, (3, 4))], "it fell"),
    ],
)
def test_what_must_not_be(grants: list[Grant], words: str) -> None:
    assert any(words in violation for violation in found(*grants))


def test_each_slot_has_a_register_of_its_own() -> None:
    trace: Any = NoTrace()
    checker = Checker(trace)
    one, other, reader = (
        grant(PERMIT, 7, (1, 9), 1),
        grant(PERMIT, 6, (1, 9), 0),
        grant(READER, 5, (1, 9)),
    )
    assert (one.writes, other.writes, reader.writes) == (True, True, False)
    checker.write(one, False)
    checker.write(other, False)
    assert not checker.violations
    checker.write(grant(PERMIT, 5, (1, 9), 1), False)
    assert len(checker.violations) == 1
