"""SQL: every level of isolation, where two transactions meet at one resource."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import holdfast
from fences.sql_sites import MariaSite, PostgresSite, SqlSite
from holdfast.fences import SqlFence

LEVELS = ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]


@pytest.fixture(params=["mariadb", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = {"mariadb": MariaSite, "postgres": PostgresSite}[request.param](tmp_path)
    yield made
    made.close()


def at(site: SqlSite, level: str) -> Any:
    """A connection whose transactions are of that level."""
    connection = site.connect()
    site._all.append(connection)
    scope = "SESSION CHARACTERISTICS AS" if isinstance(site, PostgresSite) else "SESSION"
    site.execute(connection, f"SET {scope} TRANSACTION ISOLATION LEVEL {level}")
    connection.commit()
    return connection


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("first", [33, 34])
def test_two_meet_at_a_resource(site: SqlSite, level: str, known: bool, first: int) -> None:
    """One has passed and not committed yet; the other comes. Whatever the database makes of it, the
    lower one is never the last to write."""
    if known:
        site.write("x", "before", 1)
    one, other = at(site, level), at(site, level)
    # Both have looked around before: their snapshots, where there are such, are older than the race.
    for connection in (one, other):
        if isinstance(site, PostgresSite) or level != "SERIALIZABLE":  # there a look is a lock
            site.execute(connection, "SELECT count(*) FROM {t}")
    site.fence.guard(one, "x", first)
    site.execute(one, site.upsert, (site.name("x"), str(first)))
    second = 67 - first
    outcome: list[object] = []
    fence = SqlFence(table=site.fences)  # another process's

    def come() -> None:
        try:
            fence.guard(other, "x", second)
            site.execute(other, site.upsert, (site.name("x"), str(second)))
            other.commit()
            outcome.append("passed")
        except Exception as error:  # refused by the fence, or by the database
            other.rollback()
            outcome.append(error)

    thread = threading.Thread(target=come)
    thread.start()
    thread.join(0.05)
    one.commit()
    thread.join(30)
    (found,) = outcome
    if first == 34:
        assert isinstance(found, Exception)
        assert site.read("x") == "34"
        assert site.highest("x") == 34
    elif found == "passed":
        assert (site.read("x"), site.highest("x")) == ("34", 34)
    else:
        assert not isinstance(found, holdfast.LockError)  # a conflict that the database found
        assert (site.read("x"), site.highest("x")) == ("33", 33)
    site.write("x", "later", 35)


@pytest.mark.parametrize("level", LEVELS)
def test_what_was_read_behind_the_guard_is_no_older_than_it(site: SqlSite, level: str) -> None:
    """Guard first, then read: what the holder before us wrote is seen, at every level."""
    site.write("x", "old", 33)
    mine, before = at(site, level), site.connect()
    site._all.append(before)
    site.fence.guard(before, "x", 33)
    site.execute(before, site.upsert, (site.name("x"), "by the one before"))
    seen: list[Any] = []

    def come() -> None:
        try:
            site.fence.guard(mine, "x", 34)
            seen.append(site.execute(mine, site.select, (site.name("x"),))[0][0])
            mine.commit()
        except Exception as error:
            seen.append(error)
            mine.rollback()

    thread = threading.Thread(target=come)
    thread.start()
    thread.join(0.05)
    before.commit()
    thread.join(30)
    if isinstance(seen[0], Exception):
        assert not isinstance(seen[0], holdfast.LockError)
    else:
        assert seen == ["by the one before"]
