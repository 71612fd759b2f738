"""SQL: the other drivers that people have, each by itself: what it does, and what it must not do."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.fences import SqlFence
from stores import mariadb_server, postgres_server


def psycopg2(folder: Path) -> Any:
    return import_module("psycopg2").connect(postgres_server().url)


def pg8000(folder: Path) -> Any:
    place = {"host": "127.0.0.1", "port": postgres_server().port, "database": "postgres"}
    return import_module("pg8000.dbapi").connect(user="postgres", **place)


def mysql_connector(folder: Path) -> Any:
    place = {"host": "127.0.0.1", "port": mariadb_server().port, "database": "app"}
    return import_module("mysql.connector").connect(user="root", **place)


def mysql_connector_pure(folder: Path) -> Any:
    place = {"host": "127.0.0.1", "port": mariadb_server().port, "database": "app"}
    return import_module("mysql.connector").connect(user="root", use_pure=True, **place)


async def asyncmy(folder: Path) -> Any:
    place = {"host": "127.0.0.1", "port": mariadb_server().port, "database": "app"}
    return await import_module("asyncmy").connect(user="root", **place)


async def aiosqlite(folder: Path) -> Any:
    return await import_module("aiosqlite").connect(folder / "app.db")


def mysqlclient(folder: Path) -> Any:
    place = {"host": "127.0.0.1", "port": mariadb_server().port, "database": "app"}
    return import_module("MySQLdb").connect(user="root", **place)


DRIVERS = [psycopg2, pg8000, mysql_connector, mysql_connector_pure, asyncmy, aiosqlite]
if find_spec("MySQLdb"):  # which has to be compiled: see CONTRIBUTING
    DRIVERS.append(mysqlclient)


class Stage:
    """One connection, whose calls are waited for if that is needed."""

    def __init__(
        self, connect: Callable[[Path], Any], folder: Path, table: str = "fences_by"
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self.table = f"{table}_{connect.__name__}"
        self.connection = self(connect(folder))
        self.fence: SqlFence = self(SqlFence(table=self.table).install(self.connection))

    def __call__(self, result: Any) -> Any:
        return self._loop.run_until_complete(result) if inspect.isawaitable(result) else result

    def execute(self, sql: str) -> None:
        cursor = self(self.connection.cursor())
        self(cursor.execute(sql))
        self(cursor.close())

    def guard(self, token: Any) -> None:
        self(self.fence.guard(self.connection, "x", token))

    def commit(self) -> None:
        self(self.connection.commit())

    def rollback(self) -> None:
        self(self.connection.rollback())

    def close(self) -> None:
        end = getattr(self.connection, "ensure_closed", self.connection.close)
        self(end())
        self(asyncio.sleep(0))  # for a transport to let go of its socket
        self._loop.close()


@pytest.fixture(params=DRIVERS, ids=lambda one: one.__name__)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = Stage(request.param, tmp_path)
    yield made
    made.close()


def test_a_driver(stage: Stage) -> None:
    connection, fence = stage.connection, stage.fence
    rows = f"{stage.table}_rows"
    stage.execute(
        f"CREATE TABLE {rows} (id INTEGER PRIMARY KEY, total INTEGER, "
        "fencing_token BIGINT NOT NULL DEFAULT 0, fencing_lock VARCHAR(200) NOT NULL DEFAULT '')"
    )
    stage.execute(f"INSERT INTO {rows} (id, total) VALUES (42, 1)")
    stage.commit()
    with holdfast.connect("memory://") as locks:
        lease, other = locks.lock("a").acquire(), locks.lock("b").acquire()
        for _ in range(2):
            stage.guard(lease)
            stage.commit()
        for refused in (lease.token - 1, other):
            with pytest.raises(holdfast.StaleToken):
                stage.guard(refused)
            stage.rollback()
        stage.guard(lease.token + 1)
        stage.rollback()
        assert stage(fence.highest(connection, "x")) == lease.token
        lock = {"lock_column": "fencing_lock"}
        for total in (10, 10, 11):  # also where nothing changes
            stage(fence.update(connection, rows, {"total": total}, {"id": 42}, lease, **lock))
            stage.commit()
        with pytest.raises(holdfast.StaleToken):
            stage(fence.update(connection, rows, {"total": 12}, {"id": 42}, lease.token - 1))
        stage.rollback()
        stage(fence.verify(connection, rows))
        assert stage(fence.prune(connection, 1e-6)) == 1
        stage.commit()
        with pytest.raises(holdfast.StaleToken):
            stage.guard(lease.token - 1)
        stage.rollback()


def commit_each(connection: Any) -> Any:
    if hasattr(connection, "get_autocommit"):
        return connection.autocommit(True)
    if type(connection).__module__.startswith("aiosqlite"):  # in the thread that it has for it
        return connection._execute(setattr, connection._conn, "isolation_level", None)
    connection.autocommit = True
    return None


def test_a_driver_that_commits_each_statement(stage: Stage) -> None:
    stage(commit_each(stage.connection))
    with pytest.raises(holdfast.ConfigError, match="commits each statement"):
        stage.guard(2**62)
    stage.execute("BEGIN")  # which is as good
    stage.guard(2**62)
    stage.execute("ROLLBACK")
    assert stage(stage.fence.highest(stage.connection, "x")) < 2**62


def test_a_driver_whose_transaction_is_under_way(stage: Stage) -> None:
    """The transaction is not committed by the way."""
    stage.execute(f"UPDATE {stage.table} SET writes = writes")
    stage(SqlFence(table=stage.table).install(stage.connection))
    with pytest.raises(holdfast.ConfigError, match="not done inside your transaction"):
        stage(SqlFence(table="never_made").install(stage.connection))
    stage.rollback()


@pytest.mark.parametrize("sql", ["BEGIN; SELECT 1; COMMIT", "ROLLBACK", "BEGIN; COMMIT"])
@pytest.mark.parametrize("known", [False, True])
def test_psycopg2_that_has_begun_nothing_is_refused(tmp_path: Path, sql: str, known: bool) -> None:
    """After a COMMIT by hand it believes itself in a transaction, and begins none."""
    connection = psycopg2(tmp_path)
    fence = SqlFence(connection)
    if known:
        fence.guard(connection, "by hand", 34)
        connection.commit()
    connection.cursor().execute(sql)
    with pytest.raises(holdfast.ConfigError, match="commits each statement by itself"):
        fence.guard(connection, "by hand", 34)
    connection.commit()
    fence.guard(connection, "by hand", 34)
    connection.rollback()
    connection.close()


def test_a_connection_of_psycopg_whose_cursors_are_raw() -> None:
    psycopg = import_module("psycopg")
    with postgres_server().connect(cursor_factory=psycopg.RawCursor) as connection:
        fence = SqlFence(connection, table="raw_fences")
        fence.guard(connection, "x", 34)
        with pytest.raises(holdfast.StaleToken):
            fence.guard(connection, "x", 33)
        connection.rollback()


async def test_an_asynchronous_one_whose_cursors_are_raw() -> None:
    psycopg = import_module("psycopg")
    connection = await psycopg.AsyncConnection.connect(
        postgres_server().url, cursor_factory=psycopg.AsyncRawCursor
    )
    async with connection:
        fence = await SqlFence(table="raw_fences").install(connection)
        await fence.guard(connection, "x", 34)
        with pytest.raises(holdfast.StaleToken):
            await fence.guard(connection, "x", 33)
        await connection.rollback()


def test_a_connection_without_cursors_is_refused() -> None:
    place = {"host": "127.0.0.1", "port": postgres_server().port, "database": "postgres"}
    native = import_module("pg8000.native").Connection("postgres", **place)
    try:
        with pytest.raises(holdfast.ConfigError, match=r"pg8000\.connect"):
            SqlFence(native)
    finally:
        native.close()
