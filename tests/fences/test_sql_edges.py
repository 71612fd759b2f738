"""SQL: what a count of zero rows means, whose lock a row is of, and installations left half-done."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
from fences.scenes import StoreLease
from fences.sql_sites import MariaSite, PostgresSite, SqlSite
from holdfast.chaos.servers.proxy import Proxy
from holdfast.fences import SqlFence, sql_guard
from holdfast.fences.rules import Credential
from holdfast.fences.sql_dialects import DIALECTS, Statements
from holdfast.fences.sql_guard import KNOWN_LIMIT, SqlGuard
from stores import mariadb_server, postgres_server

SITES = {"sqlite": SqlSite, "postgres": PostgresSite, "mariadb": MariaSite}


@pytest.fixture(params=sorted(SITES))
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlSite]:
    made = SITES[request.param](tmp_path)
    yield made
    made.close()


@pytest.fixture
def row(site: SqlSite) -> str:
    table = site.values.replace("values", "invoices")
    connection = site.connection()
    text = "VARCHAR(200) CHARACTER SET utf8mb4" if isinstance(site, MariaSite) else "TEXT"
    site.execute(
        connection,
        f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, total INTEGER, "
        f"fencing_token BIGINT DEFAULT 0, fencing_lock {text} NOT NULL DEFAULT '')",
    )
    site.execute(connection, f"INSERT INTO {table} (id, total) VALUES (42, 1)")
    connection.commit()
    return table


class Meanwhile(SqlFence):
    """Something happens between its statement and its look at why it changed nothing."""

    happens: Any = None

    def _run(self, link: Any, connection: Any, steps: Any) -> Any:
        return super()._run(link, connection, self._meanwhile(steps))

    def _meanwhile(self, steps: Any) -> Any:
        ask = next(steps)
        while True:
            answer = yield ask
            happens, self.happens = self.happens, None
            if happens is not None:
                happens()
            try:
                ask = steps.send(answer)
            except StopIteration:
                return


def test_a_row_that_came_too_late_to_be_updated(site: SqlSite, row: str) -> None:
    """There was none; now there is, and nothing was written to it: that is no success."""
    connection = site.connection()
    if type(site) is SqlSite:
        return  # whoever writes has the whole file to himself: nothing comes between
    if isinstance(site, MariaSite):  # else the gap is locked
        site.execute(connection, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    fence = Meanwhile(table=site.fences)
    other = site.connect()

    def insert() -> None:
        site.execute(other, f"INSERT INTO {row} (id, total) VALUES (43, 1)")
        other.commit()

    fence.happens = insert
    fence.update(connection, row, {"total": 10}, {"id": 43}, 34)
    connection.commit()
    rows = site.execute(other, f"SELECT total, fencing_token FROM {row} WHERE id = 43")
    assert tuple(rows[0]) == (10, 34)
    other.close()


def test_a_row_that_does_not_let_itself_be_changed(site: SqlSite, row: str) -> None:
    if not isinstance(site, PostgresSite):
        return  # a trigger that says no without an error is PostgreSQL's own
    connection = site.connection()
    site.execute(
        connection,
        f"CREATE FUNCTION no_{row}() RETURNS trigger AS 'BEGIN RETURN NULL; END' LANGUAGE plpgsql",
    )
    site.execute(
        connection,
        f"CREATE TRIGGER no BEFORE UPDATE ON {row} FOR EACH ROW EXECUTE FUNCTION no_{row}()",
    )
    connection.commit()
    with pytest.raises(holdfast.GuaranteeError, match="was not changed"):
        site.fence.update(connection, row, {"total": 10}, {"id": 42}, 34)
    connection.rollback()


def test_a_token_that_is_null_is_explained(site: SqlSite, row: str) -> None:
    connection = site.connection()
    site.execute(connection, f"UPDATE {row} SET fencing_token = NULL")
    connection.commit()
    with pytest.raises(holdfast.GuaranteeError, match="fencing_token is NULL"):
        site.fence.update(connection, row, {"total": 10}, {"id": 42}, 34)
    connection.rollback()


@pytest.mark.parametrize("other", ["Accounts", "accounts ", "áccounts"])
def test_locks_whose_names_a_database_takes_for_the_same(
    site: SqlSite, row: str, other: str
) -> None:
    """A column of MariaDB's compares without regard to case, accents and blanks at the end."""
    connection, fence = site.connection(), site.fence
    where, lock = {"id": 42}, {"lock_column": "fencing_lock"}
    with holdfast.connect("memory://") as locks:
        first, second = locks.lock("accounts").acquire(), locks.lock(other).acquire()
        fence.update(connection, row, {"total": 10}, where, first, **lock)
        connection.commit()
        with pytest.raises(holdfast.StaleToken, match="belongs to the lock"):
            fence.update(connection, row, {"total": 11}, where, second, **lock)
        connection.rollback()
        fence.update(connection, row, {"total": 12}, where, first, **lock)
        connection.commit()


def test_a_lock_of_any_name_in_a_column(site: SqlSite, row: str) -> None:
    connection, fence = site.connection(), site.fence
    with holdfast.connect("memory://", namespace="é ü") as locks:
        lease = locks.lock("ключ 🔑 'x'").acquire()
        for total in (10, 11):
            fence.update(
                connection, row, {"total": total}, {"id": 42}, lease, lock_column="fencing_lock"
            )
            connection.commit()


def test_what_the_fence_sets_itself_is_not_to_be_set(site: SqlSite, row: str) -> None:
    connection, fence = site.connection(), site.fence
    for column in ("fencing_token", "FENCING_TOKEN", "fencing_lock"):
        with pytest.raises(holdfast.ConfigError, match="set by the fence"):
            fence.update(connection, row, {column: 1}, {"id": 42}, 34, lock_column="fencing_lock")


def test_its_memory_of_resources_is_bounded(site: SqlSite) -> None:
    connection, fence = site.connection(), site.fence
    fence._guard._known.update({(f"r{n}", False): (0, "", 0.0) for n in range(KNOWN_LIMIT)})
    for name in ("x", "y"):
        fence.guard(connection, name, 34)
    connection.commit()
    assert len(fence._guard._known) <= 3


def test_an_installation_that_was_killed_half_way_is_finished(tmp_path: Path) -> None:
    """DDL commits by itself on MariaDB and in sqlite3: the table may stand without its first row."""
    for connection in (
        sqlite3.connect(tmp_path / "app.db"),
        mariadb_server().connect(),
        postgres_server().connect(),
    ):
        fence = SqlFence(connection, table="half_done")
        cursor = connection.cursor()
        cursor.execute("DELETE FROM half_done")
        cursor.execute("DROP TABLE half_done_resets")
        connection.commit()
        fence = SqlFence(connection, table="half_done")
        fence.guard(connection, "x", 34)
        fence.reset(connection, "x", by="a test")
        connection.commit()
        connection.close()


def test_many_install_at_once_and_guard() -> None:
    """Whoever finds the table finds all of it."""
    errors: list[BaseException] = []
    start = threading.Barrier(8)
    connections = [mariadb_server().connect() for _ in range(8)]

    def work(number: int) -> None:
        connection = connections[number]
        try:
            start.wait(20)
            fence = SqlFence(connection, table="installed_by_many")
            fence.guard(connection, f"r{number}", 34)
            connection.commit()
        except BaseException as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert errors == []


def test_a_name_so_long_that_the_table_of_resets_would_not_fit() -> None:
    with pytest.raises(holdfast.ConfigError, match="at most 56 letters"):
        SqlFence(table="t" * 58)
    with postgres_server().connect() as connection:
        fence = SqlFence(connection, table="t" * 56)
        fence.guard(connection, "x", 34)
        fence.reset(connection, "x", by="a test")
        connection.rollback()
    maria = mariadb_server().connect()
    SqlFence(maria, table="t" * 56)
    maria.close()


def test_a_refusal_that_is_not_rolled_back_leaves_no_row_behind(site: SqlSite) -> None:
    """Else the floor of one store's tokens would become that of another's."""
    with holdfast.connect("memory://") as locks:
        old = locks.lock("a").acquire()
        old.release()
        newer = locks.lock("a").acquire()
        site.write("x", "a", newer)
        site.write("y", "a", StoreLease("etcd", 10))
        time.sleep(0.005)
        assert site.prune() == 2
        connection = site.connection()
        with pytest.raises(holdfast.StaleToken):
            site.fence.guard(connection, "x", StoreLease("etcd", 9))
        connection.commit()  # of what else was done
        with pytest.raises(holdfast.StaleToken):
            site.write("x", "late", old)


@pytest.mark.parametrize("delivered", [True, False])
def test_a_connection_that_is_lost_at_the_commit_leaves_neither_or_both(
    site: SqlSite, delivered: bool
) -> None:
    if type(site) is SqlSite:
        return  # it has no connection that could be lost
    site.write("x", "a", 33)
    server: Any = mariadb_server() if isinstance(site, MariaSite) else postgres_server()
    proxy = Proxy(server.port)
    if isinstance(site, MariaSite):
        connection = server.connect(port=proxy.port)
    else:
        import psycopg

        connection = psycopg.connect(server.url.replace(str(server.port), str(proxy.port)))
    site.fence.guard(connection, "x", 34)
    site.execute(connection, site.upsert, (site.name("x"), "b"))
    if delivered:
        proxy.reset_once = True
    else:
        proxy.hang_up()
    with pytest.raises(Exception, match=r"(?i)lost|closed|reset|terminat|gone away"):
        connection.commit()
    connection.close()
    proxy.close()
    # A guard waits for the transaction to end, one way or the other; a look does not.
    with suppress(holdfast.StaleToken):
        site.fence.guard(site.connection(), "x", 33)
    site.connection().rollback()
    assert (site.highest("x"), site.read("x")) == ((34, "b") if delivered else (33, "a"))
    site.write("x", "c", 34)  # the same holder may try again in both cases


def test_a_holder_frozen_between_guard_and_commit_is_ended_by_the_database(site: SqlSite) -> None:
    """The frozen one keeps the next waiting for so long; then its write is undone with its mark."""
    if type(site) is SqlSite:
        return  # who is frozen in SQLite has the file until he wakes
    site.write("x", "a", 32)
    frozen = site.connect()
    setting = "SESSION idle_write_transaction_timeout = 1"
    if isinstance(site, PostgresSite):
        setting = "idle_in_transaction_session_timeout = 1000"
    site.execute(frozen, f"SET {setting}")
    frozen.commit()
    site.fence.guard(frozen, "x", 33)
    site.execute(frozen, site.upsert, (site.name("x"), "by the frozen one"))
    site.write("x", "by the next", 34)
    with pytest.raises(Exception, match=r"(?i)lost|closed|terminat|gone away|timeout"):
        frozen.commit()
    frozen.close()
    assert (site.highest("x"), site.read("x")) == (34, "by the next")


class Halfway(SqlGuard):
    """Something happens when it knows what was pruned, and has not made its row yet."""

    happens: Any = None

    def _begin(self, *args: Any) -> Any:
        steps = super()._begin(*args)
        reply = yield next(steps)  # the floors
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()
        try:
            while True:
                reply = yield steps.send(reply)
        except StopIteration as stop:
            return stop.value


def test_nothing_is_pruned_while_somebody_begins(site: SqlSite) -> None:
    """Else a mark that came and was forgotten meanwhile would be unknown to him."""
    if type(site) is SqlSite:
        return  # whoever writes has the whole file to himself
    connection, other = site.connection(), site.connect()
    patience = (
        "SET lock_timeout = '200ms'"
        if isinstance(site, PostgresSite)
        else "SET SESSION innodb_lock_wait_timeout = 1"
    )
    site.execute(other, patience)
    other.commit()
    fence = SqlFence(table=site.fences)
    fence._guard = halfway = Halfway(single_use=False)

    def prune() -> None:
        with pytest.raises(Exception, match=r"(?i)lock.* timeout"):
            SqlFence(table=site.fences).prune(other, 1e-6)
        other.rollback()

    halfway.happens = prune
    fence.guard(connection, "x", 10)
    assert halfway.happens is None
    connection.commit()
    assert SqlFence(table=site.fences).prune(other, 1e-6) == 1  # and now it is
    other.commit()
    other.close()


class Taken(dict[Any, Any]):
    """What a guard knows, where another thread forgets each thing right after we have read it."""

    def get(self, key: Any, default: Any = None) -> Any:
        return self.pop(key, default)


@pytest.mark.parametrize("reader", [False, True])
def test_two_threads_find_at_once_that_a_row_is_not_recent_any_more(
    monkeypatch: pytest.MonkeyPatch, reader: bool
) -> None:
    sql = Statements(DIALECTS["mysql"], "marks", "format", False)
    assert sql.dialect.gaps
    guard, given = SqlGuard(single_use=False), Credential(7, "x", reader=reader)
    guard._known = Taken({("r", reader): (7, "x", 100.0)})
    monkeypatch.setattr(sql_guard, "monotonic", lambda: 100.0 + sql_guard.RECENT)
    assert guard.request(sql, "r", given) is None
