"""Redlock with fencing tokens, every state of a small size; and each rule broken on purpose is noticed.

`python -m model` does the same for larger sizes.
"""

from __future__ import annotations

import pytest

from model.cases import BROKEN, SMALL, SMALL_LOST, Broken, Return, Size, run
from model.packing import Packing
from model.rules import BY_THE_CLOCK, SHIPPED
from model.trace import trace_text


@pytest.mark.parametrize("size", SMALL, ids=str)
def test_the_shipped_variant_holds_in_every_state(size: Size | Return) -> None:
    found = run(SHIPPED, size)
    assert not found.trace, trace_text(found)
    # What never happened was not checked.
    if isinstance(size, Return):
        expected = {"see", "look", "propose", "seal", "admit"}
    elif size.ttl:
        expected = {"acquire", "phase 2", "grant, granted", "release", "tick", "end"}
    else:
        expected = {"acquire", "phase 2", "acquire, granted", "phase 2, granted"}
    if size.restarts:
        expected.add("restart")
        expected.add("seal" if isinstance(size, Return) else "read")
    assert expected <= set(found.seen)


@pytest.mark.parametrize("size", SMALL_LOST, ids=str)
def test_a_majority_that_was_lost_comes_back_by_the_clock(size: Size | Return) -> None:
    found = run(BY_THE_CLOCK, size)
    assert not found.trace, trace_text(found)
    expected = {"miss", "propose", "admit"} if isinstance(size, Return) else {"return", "read"}
    assert expected <= set(found.seen)


@pytest.mark.parametrize(
    "broken", [one for one in BROKEN if one.small], ids=[one.name for one in BROKEN if one.small]
)
def test_a_broken_variant_is_caught(broken: Broken) -> None:
    found = run(broken.rules, broken.size)
    assert found.trace
    assert "Wrong:" in trace_text(found)


def test_every_rule_is_broken_by_some_variant() -> None:
    fields = type(SHIPPED).__dataclass_fields__
    broken = {
        name
        for name in fields
        for one in BROKEN
        if getattr(one.rules, name) != getattr(SHIPPED, name)
    }
    # These are safe either way.
    assert set(fields) - broken == {"rejoin_counter", "holds_end_with_incarnation"}


def test_states_that_differ_in_names_only_are_one() -> None:
    size = Size(restarts=1)
    (first, *_) = size.starts()
    packing = Packing(3, 2)
    world = size.world(SHIPPED)
    # Which of three equal nodes an acquire reaches first makes no difference.
    reached = {
        packing.pack(step.state).key for step in world.steps(first) if step.event.kind == "acquire"
    }
    assert len(reached) == 1
    (key,) = reached
    assert isinstance(key, bytes)
    assert packing.pack(packing.unpack(key)).key == key
