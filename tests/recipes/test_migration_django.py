"""Django's `migrate` by several machines at once: another goes on, and nothing is done twice."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from recipes.players import TTL, Cast, cast, waited_for


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Cast]:
    with cast(tmp_path, "migration_django") as made:
        yield made


def applied(machines: Cast) -> list[str]:
    """Returns the migrations that the database says were applied, in their order."""
    with closing(sqlite3.connect(machines.folder / "app.db")) as database:
        rows = database.execute("SELECT app, name FROM django_migrations ORDER BY id")
        return [f"{app}.{name}" for app, name in rows]


def test_another_goes_on_from_where_one_was_killed(machines: Cast) -> None:
    doomed = machines.player(stop_at="database")
    for number in (1, 2):
        doomed.stopped(number)
        doomed.go()
    doomed.stopped(3)  # inside of the third migration
    other = machines.player()
    waited_for(machines.url, "schema", 1)
    doomed.kill()
    before = applied(machines)
    assert len(before) == 2
    said = other.succeeded()
    assert not any(name in line for name in before for line in said if "Applying" in line)
    after = applied(machines)
    assert after[:2] == before
    assert len(after) == len(set(after)) > 10


def test_one_that_was_paused_migrates_nothing(machines: Cast) -> None:
    first = machines.player("--ttl", str(TTL), stop_at="fence_each")
    first.stopped()
    first.freeze()
    machines.player().succeeded()
    after = applied(machines)
    first.thaw()
    first.go_through()
    status, _ = first.ended()
    assert status == 1
    assert "another machine went on with it" in first.complaints()
    assert applied(machines) == after
