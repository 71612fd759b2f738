"""Stores that are made while another thread forks."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

from holdfast.stores.sqlite import forking
from holdfast.stores.sqlite.connection import StoreConnection


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
