"""Beginning afresh in a forked child."""

from __future__ import annotations

from weakref import WeakSet

import pytest

import holdfast
from holdfast import forks


class Interrupt(Exception):
    """What a signal's handler raises."""


class Thing:
    """A survivor."""

    def __init__(self) -> None:
        self.begun: int = 0

    def _after_fork(self) -> None:
        self.begun += 1


@pytest.fixture
def thing(monkeypatch: pytest.MonkeyPatch) -> Thing:
    """The only survivor, in a process that seems to be a child that was told nothing yet."""
    thing = Thing()
    monkeypatch.setattr(forks, "_survivors", WeakSet([thing]))
    monkeypatch.setattr(forks, "_in_child_first", [])
    monkeypatch.setattr(forks, "generation", forks.generation)
    monkeypatch.setattr(forks, "_pid", -1)
    return thing


def test_what_an_exception_left_undone_is_done_before_the_next_use(
    thing: Thing, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def step() -> None:
        calls.append(forks.generation)
        if len(calls) == 1:
            raise Interrupt

    forks.in_child(step)
    before = forks.generation
    with pytest.raises(Interrupt):
        forks._in_child()
    begun_then = thing.begun
    assert forks.current() == before + 1
    assert calls == [before + 1] * 2
    assert (begun_then, thing.begun) == (0, 1)
    forks._in_child()
    assert forks.current() == before + 1
    assert len(calls) == 2
    assert thing.begun == 1


def test_a_step_may_ask_for_the_generation(thing: Thing) -> None:
    asked = []
    forks.in_child(lambda: asked.append(forks.current()))
    forks._in_child()
    assert asked == [forks.generation]
    assert thing.begun == 1


def test_a_session_of_another_process_is_never_used() -> None:
    with holdfast.connect("memory://generation") as locks:
        ours = locks._session()
        ours.generation -= 1
        theirs = locks._session()
        assert theirs is not ours
        assert theirs.generation == forks.current()
        assert locks._session() is theirs
