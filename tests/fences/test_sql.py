"""SQL: whose transaction it is, what it costs in round trips, and the one-statement form."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import holdfast
from fences.sql_sites import MariaSite, PostgresSite, SqlSite
from holdfast.fences import SqlFence
from stores import mariadb_server, postgres_server

SITES = {"sqlite": SqlSite, "postgres": PostgresSite, "mariadb": MariaSite}


@pytest.fixture(params=sorted(SITES))
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlSite]:
    made = SITES[request.param](tmp_path)
    yield made
    made.close()


def test_a_rollback_leaves_neither(site: SqlSite) -> None:
    site.write("x", "a", 33)
    connection = site.connection()
    site.fence.guard(connection, "x", 34)
    site.execute(connection, site.upsert, (site.name("x"), "b"))
    connection.rollback()
    assert (site.read("x"), site.highest("x")) == ("a", 33)
    site.write("x", "c", 33)


def test_whoever_passed_is_alone_until_the_commit(site: SqlSite) -> None:
    """The check and the write are one step: nobody's write comes between."""
    site.write("x", "a", 33)
    connection = site.connection()
    site.fence.guard(connection, "x", 34)
    order: list[str] = []

    def other(token: int) -> None:
        try:
            site.write("x", f"by {token}", token)
            order.append(f"{token} wrote")
        except holdfast.StaleToken:
            order.append(f"{token} was refused")

    threads = [threading.Thread(target=other, args=(token,)) for token in (33, 35)]
    for thread in threads:
        thread.start()
    threads[0].join(0.1)
    assert order == []
    site.execute(connection, site.upsert, (site.name("x"), "by 34"))
    connection.commit()
    for thread in threads:
        thread.join(20)
    assert sorted(order) == ["33 was refused", "35 wrote"]
    assert (site.read("x"), site.highest("x")) == ("by 35", 35)


def test_first_writes_to_many_resources_do_not_lock_each_other_out(site: SqlSite) -> None:
    """In MySQL an UPDATE that finds nothing locks the gap; two of them would be a deadlock."""

    def write(number: int) -> None:
        site.write(f"r{number:03}", "a", number)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(write, range(1, 65)))
    assert [site.highest(f"r{number:03}") for number in range(1, 65)] == list(range(1, 65))


def test_pruning_while_others_write(site: SqlSite) -> None:
    stop = threading.Event()
    errors: list[BaseException] = []

    def prune() -> None:
        try:
            while not stop.is_set():
                site.prune()
        except BaseException as error:
            errors.append(error)

    pruners = [threading.Thread(target=prune) for _ in range(2)]
    for pruner in pruners:
        pruner.start()
    try:
        for token in range(1, 60):
            site.write("x", str(token), token)
            if token > 1:
                with pytest.raises(holdfast.StaleToken):
                    site.write("x", "late", token - 1)
    finally:
        stop.set()
        for pruner in pruners:
            pruner.join(20)
    assert not errors, errors
    assert site.read("x") == "59"


def test_a_reset_is_kept(site: SqlSite) -> None:
    site.write("x", "a", 33)
    site.reset("x")
    site.write("x", "b", 32)
    (row,) = site.execute(site.connection(), f"SELECT by_whom, token FROM {site.fences}_resets")
    site.connection().commit()
    who = row[0].decode() if isinstance(row[0], bytes) else row[0]
    assert (who, row[1]) == ("a test", 33)


def test_what_a_fence_remembers_of_its_last_write_is_only_a_hint(site: SqlSite) -> None:
    """Another process has given the resource to another lock, at the same number."""
    with holdfast.connect("memory://") as locks:
        lease, other = locks.lock("a").acquire(), locks.lock("b").acquire()
        other._hold.token = lease.token
        site.write("x", "a", lease)
        site.write("x", "b", lease)
        again = site.again()
        again.reset("x")
        again.write("x", "c", other)
        with pytest.raises(holdfast.StaleToken, match="belongs to the lock"):
            site.write("x", "d", lease)
        again.reset("x")
        site.write("x", "e", lease)  # a row that has fallen behind is raised again
        assert site.highest("x") == lease.token
        again.close()


# The one-statement form.


@pytest.fixture
def row(site: SqlSite) -> str:
    """A table of the application's own, with a column for the token."""
    table = site.values.replace("values", "invoices")
    connection = site.connection()
    text = "VARCHAR(200)" if isinstance(site, MariaSite) else "TEXT"
    site.execute(
        connection,
        f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, total INTEGER, "
        f"fencing_token BIGINT NOT NULL DEFAULT 0, fencing_lock {text} NOT NULL DEFAULT '')",
    )
    site.execute(connection, f"INSERT INTO {table} (id, total) VALUES (42, 1)")
    connection.commit()
    return table


def totals(site: SqlSite, table: str) -> Any:
    rows = site.execute(site.connection(), f"SELECT total, fencing_token FROM {table}")
    site.connection().commit()
    return tuple(rows[0])


def test_one_statement(site: SqlSite, row: str) -> None:
    connection, fence = site.connection(), site.fence
    fence.update(connection, row, {"total": 10}, {"id": 42}, 33)
    fence.update(connection, row, {"total": 11}, {"id": 42}, 33)
    fence.update(connection, row, {"total": 11}, {"id": 42}, 33)  # changes nothing, and passes
    connection.commit()
    with pytest.raises(holdfast.StaleToken) as caught:
        fence.update(connection, row, {"total": 12}, {"id": 42}, 32)
    connection.rollback()
    assert (caught.value.highest, caught.value.resource) == (33, f"{row} id=42")
    assert totals(site, row) == (11, 33)
    with pytest.raises(LookupError, match="id=43"):
        fence.update(connection, row, {"total": 12}, {"id": 43}, 34)
    connection.rollback()
    once = SqlFence(connection, table=site.fences, single_use=True)
    with pytest.raises(holdfast.StaleToken, match="once"):
        once.update(connection, row, {"total": 12}, {"id": 42}, 33)
    connection.rollback()


def test_one_statement_keeps_the_lock_too(site: SqlSite, row: str) -> None:
    connection, fence = site.connection(), site.fence
    where, lock = {"id": 42}, {"lock_column": "fencing_lock"}
    with holdfast.connect("memory://") as locks:
        first, other = locks.lock("a").acquire(), locks.lock("b").acquire()
        fence.update(connection, row, {"total": 10}, where, first, **lock)
        fence.update(connection, row, {"total": 11}, where, first, **lock)
        connection.commit()
        with pytest.raises(holdfast.StaleToken, match="belongs to the lock"):
            fence.update(connection, row, {"total": 12}, where, other, **lock)
        connection.rollback()
        with pytest.raises(holdfast.GuaranteeError, match="a reader's lease does not write"):
            fence.update(connection, row, {"total": 12}, where, locks.rwlock("r").read().acquire())
    assert totals(site, row) == (11, first.token)


def test_one_statement_with_twenty_writers(site: SqlSite, row: str) -> None:
    def write(token: int) -> None:
        connection = site.connection()
        try:
            site.fence.update(connection, row, {"total": token}, {"id": 42}, token)
            connection.commit()
        except holdfast.StaleToken:
            connection.rollback()

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(write, [*range(1, 20), 20, *range(1, 20)]))
    assert totals(site, row) == (20, 20)


@pytest.mark.parametrize("bad", ["x; DROP TABLE y", "", "a b", "a'", "ä"])
def test_names_that_would_need_quotes_are_refused(site: SqlSite, bad: str) -> None:
    connection = site.connection()
    with pytest.raises(holdfast.ConfigError, match="plain SQL name"):
        site.fence.update(connection, bad, {"a": 1}, {"b": 1}, 1)
    with pytest.raises(holdfast.ConfigError, match="plain SQL name"):
        site.fence.update(connection, "t", {bad: 1}, {"b": 1}, 1)
    if bad:  # no lock's column at all is as good
        with pytest.raises(holdfast.ConfigError, match="plain SQL name"):
            site.fence.update(connection, "t", {"a": 1}, {"b": 1}, 1, lock_column=bad)
    with pytest.raises(holdfast.ConfigError, match="plain SQL name"):
        SqlFence(connection, table=bad)


# What it costs.


def test_round_trips(tmp_path: Path) -> None:
    import psycopg

    said: list[str] = []

    class Counting(psycopg.Cursor[Any]):
        def execute(self, query: Any, *args: Any, **options: Any) -> Any:
            said.append(query)
            return super().execute(query, *args, **options)

    site = PostgresSite(tmp_path)
    connection = postgres_server().connect(cursor_factory=Counting)
    with holdfast.connect("memory://") as locks:
        lease = locks.lock("a").acquire()
        site.write("x", "a", lease)
        for token in (lease.token, lease):
            said.clear()
            site.fence.guard(connection, "x", token)
            assert len(said) == 1
        connection.commit()
        site.execute(connection, "CREATE TABLE {t}_own (id int, n int, fencing_token bigint)")
        site.execute(connection, "INSERT INTO {t}_own VALUES (1, 1, 0)")
        for looks in (1, 0):  # once, whether the column keeps every digit
            said.clear()
            site.fence.update(connection, f"{site.values}_own", {"n": 2}, {"id": 1}, lease)
            assert len(said) == 1 + looks
    connection.close()
    site.close()


# Whose transaction it is.


def test_a_connection_that_commits_each_statement_is_refused(tmp_path: Path) -> None:
    lite = sqlite3.connect(tmp_path / "app.db", isolation_level=None)
    fence = SqlFence(lite)
    with pytest.raises(holdfast.ConfigError, match="begin a transaction"):
        fence.guard(lite, "x", 1)
    lite.execute("BEGIN")
    fence.guard(lite, "x", 1)
    lite.execute("COMMIT")
    lite.close()

    with postgres_server().connect(autocommit=True) as connection:
        fence = SqlFence(connection)
        with pytest.raises(holdfast.ConfigError, match="begin a transaction"):
            fence.guard(connection, "autocommit", 1)
        with connection.transaction():
            fence.guard(connection, "autocommit", 1)

    maria = mariadb_server().connect(autocommit=True)
    fence = SqlFence(maria)
    with pytest.raises(holdfast.ConfigError, match="begin a transaction"):
        fence.guard(maria, "autocommit", 1)
    maria.begin()
    fence.guard(maria, "autocommit", 1)
    maria.commit()
    maria.close()

    from sqlalchemy import create_engine

    for options in ({"isolation_level": "AUTOCOMMIT"}, {}):
        engine = create_engine(f"sqlite:///{tmp_path}/app.db", **options)
        with engine.connect() as alchemy:
            given = alchemy.execution_options(isolation_level="AUTOCOMMIT")
            with pytest.raises(holdfast.ConfigError, match="begin a transaction"):
                SqlFence().guard(given, "x", 1)
        engine.dispose()


def test_the_table_is_not_made_inside_a_transaction(tmp_path: Path) -> None:
    with postgres_server().connect() as connection:
        connection.execute("SELECT 1")
        with pytest.raises(holdfast.ConfigError, match="transaction"):
            SqlFence(connection, table="not_made_here")
        connection.rollback()
        SqlFence(connection, table="made_here")
        connection.execute("SELECT 1")
        SqlFence(connection, table="made_here")  # it is there already
        connection.rollback()


def test_many_make_the_table_at_once() -> None:
    def make(number: int) -> None:
        with postgres_server().connect() as connection:
            SqlFence(connection, table="made_by_many")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(8)))


def test_an_unknown_connection_is_refused() -> None:
    with pytest.raises(holdfast.ConfigError, match="does not know connections"):
        SqlFence(object())


# Is it really installed?


def test_verify_says_what_is_missing(tmp_path: Path) -> None:
    lite = sqlite3.connect(tmp_path / "app.db")
    with pytest.raises(holdfast.GuaranteeError, match="no table holdfast_fences"):
        SqlFence().verify(lite)
    fence = SqlFence(lite)
    with pytest.raises(holdfast.GuaranteeError, match="no table invoices"):
        fence.verify(lite, "invoices")
    lite.close()

    maria = mariadb_server().connect()
    fence = SqlFence(maria)
    cursor = maria.cursor()
    cursor.execute("CREATE OR REPLACE TABLE no_transactions (n INT) ENGINE=MyISAM")
    with pytest.raises(holdfast.GuaranteeError, match="MyISAM"):
        fence.verify(maria, "no_transactions")
    maria.close()


def test_verify_leaves_nothing(site: SqlSite) -> None:
    site.write("x", "a", 33)
    site.verify()
    rows = site.execute(site.connection(), f"SELECT count(*) FROM {site.fences}")
    site.connection().commit()
    assert tuple(rows[0]) == (2,)  # x, and the floors


def test_a_fence_without_its_table_lets_nobody_pass(site: SqlSite) -> None:
    connection = site.connection()
    site.execute(connection, f"DELETE FROM {site.fences}")
    connection.commit()
    with pytest.raises(holdfast.GuaranteeError, match="install"):
        site.write("x", "a", 1)


def test_the_guard_of_a_lease(site: SqlSite) -> None:
    with holdfast.connect(f"sqlite://{site.folder}/locks.db") as locks:
        lock = locks.lock("x", purpose="correctness", protects=site.fence)
        first = lock.acquire()
        first.release()
        with lock as lease:
            lease.guard(site.connection(), "x")
            site.connection().commit()
            with pytest.raises(holdfast.StaleToken):
                first.guard(site.connection(), "x")
            site.connection().rollback()
        assert site.highest("x") == lease.token
