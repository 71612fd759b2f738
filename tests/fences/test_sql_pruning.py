"""SQL: many marks are forgotten in few statements, so that those who begin do not wait for long."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import holdfast
from fences.sql_sites import MariaSite, PostgresSite, SqlSite
from holdfast.chaos.servers.mariadb import MariaServer
from holdfast.chaos.servers.stepped import SteppedClock
from holdfast.fences import SqlFence, sql_connections, sql_marks

MANY = 620


class Holder:
    """A lease of a lock of its own."""

    owner, kind, shared = "o", "lock", False

    def __init__(self, name: str, token: int) -> None:
        self.name, self.token = name, token
        self.lock_id = f"test:pruning/{name}"


@pytest.fixture(params=[SqlSite, PostgresSite, MariaSite], ids=lambda one: one.__name__)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = request.param(tmp_path)
    yield made
    made.close()


def test_many_marks_are_forgotten(site: SqlSite, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = site.connection()
    for number in range(MANY):
        site.fence.guard(connection, f"r{number}", 1000 + number)
    connection.commit()
    sent: list[str] = []
    execute = sql_connections.execute

    def counted(kind: Any, to: Any, request: Any) -> Any:
        sent.append(request.sql)
        return execute(kind, to, request)

    monkeypatch.setattr(sql_connections, "execute", counted)
    assert site.prune() == MANY
    deletes = sum(text.startswith("DELETE") for text in sent)
    assert deletes == (MANY if isinstance(site, MariaSite) else -(-MANY // sql_marks.BATCH))
    for resource in ("r0", f"r{MANY - 1}", "new"):
        with pytest.raises(holdfast.StaleToken):
            site.write(resource, "late", 1000 + MANY - 2)
    site.write("r0", "a", 1000 + MANY - 1)


class LimitedSite(MariaSite):
    """A site whose sessions return one row, unless the query says how many."""

    def connect(self) -> Any:
        connection = super().connect()
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_select_limit = 1")
        return connection


def test_names_that_a_driver_gives_as_bytes_are_forgotten(tmp_path: Path) -> None:
    """As psycopg does where the database, or the session, has no encoding."""
    site = PostgresSite(tmp_path)
    try:
        connection = site.connection()
        connection.execute("SET client_encoding = 'SQL_ASCII'")
        connection.commit()
        site.fence.guard(connection, "müller", Holder("lock", 34))
        connection.commit()
        with pytest.raises(holdfast.StaleToken):
            site.fence.guard(connection, "müller", Holder("lock", 33))
        connection.rollback()
        assert site.prune() == 1
        with pytest.raises(holdfast.StaleToken):
            site.fence.guard(connection, "müller", Holder("lock", 33))
        connection.rollback()
    finally:
        site.close()


def test_a_limit_of_the_session_shuts_nobody_out(tmp_path: Path) -> None:
    """As `--safe-updates` sets it: of the holders of long standing only one would be seen."""
    site = LimitedSite(tmp_path)
    try:
        elders = [Holder(f"elder {number}", 1000 + number) for number in range(3)]
        others = [Holder(f"other {number}", 2000 + number) for number in range(3)]
        for holder in elders + others:
            site.write(holder.name, "a", holder)
        site.execute(
            site.connection(),
            f"UPDATE {site.fences} SET touched = touched - 1000 WHERE resource LIKE 'other%%'",
        )
        site.connection().commit()
        assert site.prune(500.0) == len(others)
        for holder in elders:
            site.write(f"new to {holder.name}", "a", holder)
    finally:
        site.close()


def test_an_hour_that_comes_twice_shuts_nobody_out() -> None:
    """A server in a zone with summer time: at the end of that, its local time says nothing of ages."""
    clock = SteppedClock()

    def go_to(moment: str) -> None:
        clock.step(round(datetime.fromisoformat(f"{moment}+00:00").timestamp() - time.time()))

    go_to("2027-10-30T12:00:00")
    server = MariaServer(environment={**clock.environment, "TZ": "Europe/Berlin"})
    try:
        with server.connect() as connection:
            fence = SqlFence(connection)
            go_to("2027-10-30T23:59:30")  # half a minute before 02:00 comes for the first time
            leader, other = Holder("leader", 1000), Holder("other", 2000)
            for holder in (leader, other):
                fence.guard(connection, holder.name, holder)
            with connection.cursor() as cursor:
                cursor.execute(
                    "UPDATE holdfast_fences SET touched = touched - 7200 WHERE resource = 'other'"
                )
            connection.commit()
            go_to("2027-10-31T00:00:30")
            assert fence.prune(connection, 1800.0) == 1
            fence.guard(connection, "new to the leader", leader)
            connection.commit()
    finally:
        server.stop()
        clock.remove()
