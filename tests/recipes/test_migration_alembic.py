"""Alembic's `upgrade` by many machines at once: each migration is done once, and whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from recipes.players import TTL, Cast, cast

DONE = ["the schema is at 0002"]


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Cast]:
    with cast(tmp_path, "migration_alembic") as made:
        yield made


def prices(machines: Cast) -> list[tuple[int, int]]:
    with closing(sqlite3.connect(machines.folder / "app.db")) as database:
        return database.execute("SELECT * FROM prices").fetchall()


def test_one_that_is_killed_inside_leaves_it_to_the_others(machines: Cast) -> None:
    doomed = machines.player(stop_at="after:command.upgrade")
    doomed.stopped()  # all is done, and not committed
    doomed.kill()
    others = [machines.player() for _ in range(3)]
    assert [other.succeeded() for other in others] == [DONE] * 3
    assert prices(machines) == [(1, 1000)]


def test_one_that_was_paused_does_not_migrate_again(machines: Cast) -> None:
    first = machines.player("--ttl", str(TTL), stop_at="upgrade")
    first.stopped()
    first.freeze()
    assert machines.player().succeeded() == DONE
    first.thaw()
    first.go()
    status, _ = first.ended()
    assert status == 1
    assert "another machine went on with it" in first.complaints()
    assert prices(machines) == [(1, 1000)]
