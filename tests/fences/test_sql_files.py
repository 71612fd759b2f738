"""SQLite with several files, and views: `verify` finds out what is not committed with the mark."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from mysql.connector.pooling import PooledMySQLConnection

from holdfast import ConfigError, GuaranteeError
from holdfast.fences import SqlFence
from stores import mariadb_server


def two_files(folder: Path, main: str = "delete", more: str = "delete") -> sqlite3.Connection:
    connection = sqlite3.connect(folder / "app.db")
    connection.execute("ATTACH ? AS more", (str(folder / "more.db"),))
    connection.execute(f"PRAGMA main.journal_mode = {main}")
    connection.execute(f"PRAGMA more.journal_mode = {more}")
    for table in ("main.orders", "more.bills"):
        connection.execute(f"CREATE TABLE {table} (id INTEGER)")
    connection.commit()
    return connection


@pytest.mark.parametrize("modes", [("wal", "wal"), ("wal", "delete"), ("delete", "wal")])
@pytest.mark.parametrize(
    ("fence", "table"),
    [("more.fences", "orders"), ("fences", "bills"), ("fences", "More.bills")],
)
def test_a_commit_over_two_files_that_a_crash_can_part(
    fence: str, table: str, modes: tuple[str, str], tmp_path: Path
) -> None:
    with closing(two_files(tmp_path, *modes)) as connection:
        made = SqlFence(connection, table=fence)
        with pytest.raises(GuaranteeError, match="in the journal mode wal; keep the fence's table"):
            made.verify(connection, table)
        connection.rollback()
        same = "more.bills" if fence.startswith("more") else "orders"
        made.verify(connection, same)
        connection.rollback()


def test_without_tables_they_are_taken_to_be_in_the_main_file(tmp_path: Path) -> None:
    with closing(two_files(tmp_path, "wal", "wal")) as connection:
        SqlFence(connection).verify(connection)
        connection.rollback()
        with pytest.raises(GuaranteeError, match="journal mode wal"):
            SqlFence(connection, table="more.fences").verify(connection)


def test_a_commit_over_two_files_that_is_one_step(tmp_path: Path) -> None:
    with closing(two_files(tmp_path, "truncate", "persist")) as connection:
        fence = SqlFence(connection, table="more.fences")
        fence.verify(connection, "orders", "bills")
        connection.rollback()
        connection.execute("PRAGMA main.synchronous = OFF")
        with pytest.raises(GuaranteeError, match="not synchronized"):
            fence.verify(connection, "orders")


def test_a_main_database_that_is_no_file(tmp_path: Path) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE notes (id INTEGER)")
        SqlFence(connection).verify(connection, "notes")
        connection.commit()
        for name in ("one", "two"):
            connection.execute(f"ATTACH ? AS {name}", (str(tmp_path / name),))
            connection.execute(f"CREATE TABLE {name}.orders (id INTEGER)")
        connection.commit()
        fence = SqlFence(connection, table="one.fences")
        fence.verify(connection, "one.orders")
        connection.rollback()
        with pytest.raises(GuaranteeError, match="main is no file"):
            fence.verify(connection, "two.orders")


async def test_in_asyncio(tmp_path: Path) -> None:
    import aiosqlite

    two_files(tmp_path, "wal", "wal").close()
    async with aiosqlite.connect(tmp_path / "app.db") as connection:
        await connection.execute("ATTACH ? AS more", (str(tmp_path / "more.db"),))
        fence = await SqlFence(table="more.fences").install(connection)
        with pytest.raises(GuaranteeError, match="journal mode wal"):
            await fence.verify(connection, "orders")
        await connection.rollback()
        await fence.verify(connection, "bills")


def test_a_view_of_mariadb_is_no_table() -> None:
    with mariadb_server().connect() as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE IF NOT EXISTS viewed (id INTEGER)")
        cursor.execute("CREATE OR REPLACE VIEW views AS SELECT * FROM viewed")
        fence = SqlFence(connection)
        with pytest.raises(GuaranteeError, match="it is a view"):
            fence.verify(connection, "views")
        connection.rollback()
        fence.verify(connection, "viewed")
        connection.rollback()


def test_a_connection_of_a_pool_that_has_no_cursors() -> None:
    pooled = PooledMySQLConnection.__new__(PooledMySQLConnection)
    with pytest.raises(ConfigError, match=r"that of mysql\.connector\.connect\(\), without a pool"):
        SqlFence(pooled)
