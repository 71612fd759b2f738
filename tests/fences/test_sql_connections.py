"""SQL: the connections that people have. Rows of other shapes, subclasses, commits behind our back."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.fences import SqlFence
from holdfast.versioned import SqlVersioned
from stores import mariadb_server, postgres_server


def dicts(cursor: Any, row: Any) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


def sqlite_dicts(folder: Path) -> Any:
    connection = sqlite3.connect(folder / "app.db")
    connection.row_factory = dicts
    return connection


def postgres_dicts(folder: Path) -> Any:
    from psycopg.rows import dict_row

    return postgres_server().connect(row_factory=dict_row)


def maria_dicts(folder: Path) -> Any:
    from pymysql.cursors import DictCursor

    return mariadb_server().connect(cursorclass=DictCursor)


@pytest.mark.parametrize("connect", [sqlite_dicts, postgres_dicts, maria_dicts])
def test_rows_that_are_dicts(connect: Callable[[Path], Any], tmp_path: Path) -> None:
    connection = connect(tmp_path)
    fence = SqlFence(connection, table="fences_of_dicts")
    fence.guard(connection, "x", 34)
    connection.commit()
    assert fence.highest(connection, "x") == 34
    with pytest.raises(holdfast.StaleToken):
        fence.guard(connection, "x", 33)
    connection.rollback()
    cursor = connection.cursor()
    cursor.execute("DROP TABLE IF EXISTS of_dicts")
    cursor.execute("CREATE TABLE of_dicts (id INTEGER PRIMARY KEY, value INTEGER, version BIGINT)")
    connection.commit()
    register = SqlVersioned(connection, "of_dicts", key="id")
    register.put(1, 5, None)
    register.update(1, lambda value: value + 1)
    assert register.get(1).value == 6
    connection.close()


def test_a_connection_of_a_class_of_your_own(tmp_path: Path) -> None:
    import psycopg

    class Lite(sqlite3.Connection):
        pass

    class Post(psycopg.Connection[Any]):
        pass

    for connection in (
        sqlite3.connect(tmp_path / "app.db", factory=Lite),
        Post.connect(postgres_server().url),
    ):
        SqlFence(connection).guard(connection, "own class", 34)
        connection.commit()
        connection.close()


def unseen_sqlite(folder: Path) -> Any:
    return f"sqlite:///{folder}/app.db", {"isolation_level": None}


def unseen_postgres(folder: Path) -> Any:
    url = postgres_server().url.replace("postgresql:", "postgresql+psycopg:")
    return url, {"autocommit": True}


def unseen_maria(folder: Path) -> Any:
    return mariadb_server().url.replace("mysql:", "mysql+pymysql:"), {"autocommit": True}


@pytest.mark.parametrize("unseen", [unseen_sqlite, unseen_postgres, unseen_maria])
def test_commits_that_sqlalchemy_does_not_know_of(
    unseen: Callable[[Path], Any], tmp_path: Path
) -> None:
    """The driver was told to commit each statement, and SQLAlchemy was not."""
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    url, arguments = unseen(tmp_path)
    engine = create_engine(url, poolclass=NullPool, connect_args=arguments)
    with engine.connect() as connection:
        fence = SqlFence(connection)
        with pytest.raises(holdfast.ConfigError, match="begin a transaction"):
            fence.guard(connection, "x", 34)


def test_the_recipe_for_sqlite_by_which_sqlalchemy_begins_itself(tmp_path: Path) -> None:
    from sqlalchemy import create_engine, event

    engine = create_engine(f"sqlite:///{tmp_path}/app.db")

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begun(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")

    with engine.connect() as connection:
        fence = SqlFence(connection)
        fence.guard(connection, "x", 34)
        connection.rollback()
        assert fence.highest(connection, "x") == 0
    engine.dispose()


async def test_commits_that_sqlalchemy_does_not_know_of_in_asyncio() -> None:
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    url = postgres_server().url.replace("postgresql:", "postgresql+psycopg:")
    engine = create_async_engine(url, poolclass=NullPool, connect_args={"autocommit": True})
    async with engine.connect() as connection:
        fence = await SqlFence().install(connection)
        with pytest.raises(holdfast.ConfigError, match="begin a transaction"):
            await fence.guard(connection, "x", 34)


@pytest.mark.parametrize("alchemy", [False, True])
def test_a_readers_check_is_part_of_its_transaction_in_sqlite_too(
    alchemy: bool, tmp_path: Path
) -> None:
    """sqlite3 begins nothing for a SELECT: the check would be over before the work."""
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    def connect() -> Any:
        if alchemy:
            return create_engine(
                f"sqlite:///{tmp_path}/app.db?timeout=0", poolclass=NullPool
            ).connect()
        return sqlite3.connect(tmp_path / "app.db", timeout=0)

    def execute(connection: Any, sql: str) -> Any:
        return connection.exec_driver_sql(sql) if alchemy else connection.execute(sql)

    reading, writing = connect(), connect()
    execute(writing, "PRAGMA journal_mode=WAL")
    execute(writing, "CREATE TABLE seen (by_whom TEXT)")
    writing.commit()
    fence = SqlFence(writing)
    with holdfast.connect("memory://") as locks:
        book = locks.rwlock("book")
        reader = book.read().acquire()
        fence.guard(reading, "page", reader)
        reading.commit()
        fence.guard(
            reading, "page", reader
        )  # it is remembered: this is a look, which locks nobody out
        reader.release()
        with book.write() as writer:
            fence.guard(writing, "page", writer)
            writing.commit()
        with pytest.raises(Exception, match="locked"):
            execute(reading, "INSERT INTO seen VALUES ('the late reader')")
        reading.rollback()
        with pytest.raises(holdfast.StaleToken):
            fence.guard(reading, "page", reader)
        reading.rollback()
    reading.close()
    writing.close()


def test_a_pipeline_sends_the_write_before_the_fence_has_answered() -> None:
    connection = postgres_server().connect()
    fence = SqlFence(connection, table="fences_and_pipelines")
    for known in (False, True):
        with pytest.raises(holdfast.ConfigError, match="before you"), connection.pipeline():
            fence.guard(connection, "x", 34)
        connection.rollback()
        assert fence.highest(connection, "x") == (33 if known else 0)
        fence.guard(connection, "x", 33)
        with connection.pipeline():  # as the message says
            connection.execute("SELECT 1")
        connection.commit()
    connection.execute("DROP TABLE IF EXISTS of_pipelines")
    connection.execute(
        "CREATE TABLE of_pipelines (id INTEGER PRIMARY KEY, value INTEGER, version BIGINT)"
    )
    connection.commit()
    register = SqlVersioned(connection, "of_pipelines", key="id")
    register.put(1, 5, None)
    with pytest.raises(holdfast.ConfigError, match="pipeline"), connection.pipeline():
        register.update(1, lambda value: value + 1)
    connection.rollback()
    assert register.get(1).value == 5
    connection.close()


async def test_a_pipeline_in_asyncio() -> None:
    import psycopg

    connection = await psycopg.AsyncConnection.connect(postgres_server().url)
    fence = await SqlFence(table="fences_and_pipelines").install(connection)
    with pytest.raises(holdfast.ConfigError, match="before you enter the pipeline"):
        async with connection.pipeline():
            await fence.guard(connection, "y", 34)
    await connection.rollback()
    assert await fence.highest(connection, "y") == 0
    await connection.close()
