"""Forks, seen from the stores."""

from __future__ import annotations

import time
from pathlib import Path
from threading import RLock, Thread

import pytest

from holdfast.stores.sqlite import forking, presence
from holdfast.stores.sqlite.connection import StoreConnection
from worlds.stalls import Stalls


class Interrupt(Exception):
    """What a signal's handler raises."""


def test_a_store_that_is_made_during_a_fork_waits_for_its_end(tmp_path: Path) -> None:
    """The fork has paused all stores that it knew of; a new one would be open across it."""
    made: list[StoreConnection] = []
    thread = Thread(target=lambda: made.append(StoreConnection(str(tmp_path / "x.db"))))
    forking._before()
    try:
        thread.start()
        thread.join(0.2)
        assert not made
    finally:
        forking._in_parent()
    thread.join(25.0)
    assert len(made) == 1


def test_a_fork_inside_a_step_does_not_wait_for_steps_that_wait_for_it(tmp_path: Path) -> None:
    """A signal's handler forks. The other step is at the same file, and lasts as long as ours."""
    ours, other = (StoreConnection(str(tmp_path / "x.db")) for _ in range(2))

    def step() -> None:
        other._gate.enter()
        other._gate.leave()

    thread = Thread(target=step)
    ours._gate.enter()
    try:
        thread.start()
        while not other._gate.is_entered():
            time.sleep(0.01)
        began = time.monotonic()
        with Stalls() as stalls:
            forking._before()
            forking._in_parent()
        assert time.monotonic() - began < forking.PATIENCE / 2 + stalls.seconds
        assert ours.is_open()  # as far as the child is concerned
    finally:
        ours._gate.leave()
        thread.join(25.0)


@pytest.mark.parametrize("where", ["enter", "close"])
def test_what_an_interrupted_fork_has_paused_goes_on(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python goes on with a fork when a signal's handler has raised in a hook."""
    store = StoreConnection(str(tmp_path / "x.db"))

    def interrupted() -> bool:
        raise Interrupt

    if where == "enter":
        monkeypatch.setattr(forking, "BootClock", interrupted)
    else:
        monkeypatch.setattr(store, "_disconnect", interrupted)
    with pytest.raises(Interrupt):
        forking._before()
    monkeypatch.undo()
    forking._before_again()
    assert is_held(store._gate._mutex)
    forking._in_parent()
    forking._in_parent()  # as after an interrupt
    assert not is_held(store._gate._mutex)
    assert not is_held(forking._turn)


def test_a_hook_that_did_not_run_leaves_nothing_to_undo() -> None:
    forking._in_parent()
    presence._held.give_back()
    assert not is_held(forking._turn)
    assert not is_held(presence._mutex)


def is_held(lock: RLock) -> bool:
    """Returns whether another thread would have to wait for it."""
    got: list[bool] = []

    def attempt() -> None:
        got.append(lock.acquire(blocking=False))
        if got[0]:
            lock.release()

    thread = Thread(target=attempt)
    thread.start()
    thread.join(25.0)
    return not got[0]
