"""SQL: drivers that tell less than others, or have a transaction under way at all times."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path
from threading import get_ident
from typing import Any

import aiosqlite
import pytest

import holdfast
from holdfast.fences import SqlFence, sql_connections, sql_transactions
from holdfast.versioned import SqlVersioned
from stores import mariadb_server


class Connection:
    """A connection as mysqlclient has it: it says whether it commits each statement, and no more."""

    __module__ = "MySQLdb.connections"

    def __init__(self, **options: Any) -> None:
        self._real = mariadb_server().connect(**options)
        for name in ("cursor", "commit", "rollback", "get_autocommit", "autocommit", "close"):
            setattr(self, name, getattr(self._real, name))

    def cursor(self) -> Any:
        raise NotImplementedError

    def commit(self) -> None:
        raise NotImplementedError


@pytest.fixture
def connection() -> Any:
    made: Any = Connection()
    yield made
    made.close()


def test_mysqlclient_does_not_tell_whether_a_transaction_is_open(connection: Any) -> None:
    fence = SqlFence(connection, table="fences_by_habit")
    before = fence.highest(connection, "x")
    connection.rollback()
    fence.guard(connection, "x", before + 1)
    connection.rollback()
    with holdfast.connect("memory://") as locks, locks.rwlock("book").read() as reader:
        fence.guard(connection, "read", reader)
    connection.rollback()
    connection.autocommit(True)
    with pytest.raises(holdfast.ConfigError, match="commits each statement"):
        fence.guard(connection, "x", before + 1)
    connection.cursor().execute("BEGIN")
    fence.guard(connection, "x", before + 1)
    connection.rollback()
    assert fence.highest(connection, "x") == before


def test_the_transaction_of_mysqlclient_is_not_committed_for_its_owner(connection: Any) -> None:
    fence = SqlFence(connection, table="fences_by_habit")
    before = fence.highest(connection, "y")
    connection.rollback()
    fence.guard(connection, "y", before + 1)
    SqlFence(connection, table="fences_by_habit")
    with pytest.raises(holdfast.ConfigError, match="not done inside your transaction"):
        SqlFence(connection, table="never_made")
    with pytest.raises(holdfast.ConfigError, match="transaction under way"):
        SqlVersioned(connection, "never_made").get("y")
    connection.rollback()
    assert fence.highest(connection, "y") == before


def test_a_server_that_has_no_variable_for_transactions(
    connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MySQL, unlike MariaDB. There mysqlclient can be asked only where it commits each statement."""
    asked = sql_connections.Request("SELECT @@no_such_variable", rows=True)
    monkeypatch.setattr(sql_transactions, "IN_TRANSACTION", asked)
    kind = sql_connections.kind_of(connection)
    assert not sql_transactions.in_transaction(kind, connection)
    connection.autocommit(True)
    assert not sql_transactions.in_transaction(kind, connection)
    connection.cursor().execute("BEGIN")
    assert sql_transactions.in_transaction(kind, connection)
    connection.rollback()
    assert not sql_transactions.in_transaction(kind, connection)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has no autocommit=False there")
def test_a_connection_of_sqlite3_with_a_transaction_at_all_times(tmp_path: Path) -> None:
    def connect() -> Any:
        options: dict[str, Any] = {"autocommit": False}
        return sqlite3.connect(tmp_path / "app.db", timeout=0, **options)

    connection, other = connect(), connect()
    fence = SqlFence(connection)  # makes its table, though a transaction is open
    SqlFence(other)
    fence.guard(connection, "x", 34)
    connection.rollback()
    assert fence.highest(connection, "x") == 0
    fence.guard(connection, "x", 34)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        fence.guard(other, "x", 35)
    other.rollback()
    with pytest.raises(holdfast.ConfigError, match="not done inside your transaction"):
        SqlFence(connection, table="another")
    connection.commit()
    assert fence.highest(other, "x") == 34
    with pytest.raises(holdfast.ConfigError, match="at all times"):
        SqlVersioned(connection, "register").get(1)
    connection.close()
    other.close()


class Wary(sqlite3.Connection):
    """A connection as Python 3.12 has it: its own thread alone is told of `autocommit`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._thread = get_ident()

    @property
    def autocommit(self) -> int:
        if get_ident() != self._thread:
            raise sqlite3.ProgrammingError("SQLite objects created in a thread")
        return -1


async def test_a_connection_of_aiosqlite_that_tells_its_own_thread_only(tmp_path: Path) -> None:
    async with aiosqlite.connect(tmp_path / "app.db", factory=Wary) as connection:
        fence = await SqlFence().install(connection)
        await fence.guard(connection, "x", 34)
        with pytest.raises(holdfast.ConfigError, match="not done inside your transaction"):
            await SqlFence(table="another").install(connection)
        await connection.rollback()
        assert await fence.highest(connection, "x") == 0
        async with fence.hold(connection, "x", 34):
            pass
        await connection.commit()
        with pytest.raises(holdfast.StaleToken):
            await fence.guard(connection, "x", 33)
        await connection.rollback()
        await fence.verify(connection)
        await fence.prune(connection, 100.0)
        await connection.rollback()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has no autocommit=True there")
async def test_a_connection_of_aiosqlite_that_commits_each_statement(tmp_path: Path) -> None:
    options: dict[str, Any] = {"autocommit": True}
    async with aiosqlite.connect(tmp_path / "app.db", **options) as connection:
        fence = await SqlFence().install(connection)
        with pytest.raises(holdfast.ConfigError, match="begin a transaction"):
            await fence.guard(connection, "x", 34)
        await connection.execute("BEGIN")
        await fence.guard(connection, "x", 34)
        await connection.rollback()
