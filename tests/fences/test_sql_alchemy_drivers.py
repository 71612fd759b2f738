"""SQL: SQLAlchemy over each driver. What commits each statement is refused, whatever came before."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.fences import SqlFence
from stores import mariadb_server, postgres_server

BLOCKING = {
    "mysql+mysqlconnector": {"autocommit": True},
    "mysql+pymysql": {"autocommit": True},
    "postgresql+pg8000": {},
    "postgresql+psycopg": {"autocommit": True},
    "postgresql+psycopg2": {},
    "sqlite+pysqlite": {"isolation_level": None},
}
if find_spec("MySQLdb"):  # which has to be compiled: see CONTRIBUTING
    BLOCKING["mysql+mysqldb"] = {"autocommit": True}
ASYNCHRONOUS = {
    "mysql+asyncmy": {"autocommit": True},
    "postgresql+asyncpg": {},
    "postgresql+psycopg": {"autocommit": True},
    "sqlite+aiosqlite": {"isolation_level": None},
}
TELLS = {"postgresql+pg8000", "postgresql+psycopg2"}
"""Drivers that are told to commit each statement not when they connect, but afterwards."""


def url_of(name: str, folder: Path) -> str:
    if name.startswith("sqlite"):
        return f"{name}:///{folder}/app.db"
    if name.startswith("mysql"):
        return mariadb_server().url.replace("mysql:", f"{name}:")
    place = f"postgres@127.0.0.1:{postgres_server().port}/postgres"
    return f"{name}://{place}"


def engine_of(name: str, folder: Path, commits_each: bool) -> Any:
    from sqlalchemy import create_engine, event
    from sqlalchemy.pool import NullPool

    arguments = BLOCKING[name] if commits_each else {}
    engine = create_engine(url_of(name, folder), poolclass=NullPool, connect_args=arguments)
    if commits_each and name in TELLS:

        @event.listens_for(engine, "connect")
        def connected(connection: Any, _: Any) -> None:
            connection.autocommit = True

    return engine


@pytest.mark.parametrize("name", sorted(BLOCKING))
def test_a_driver_behind_sqlalchemy(name: str, tmp_path: Path) -> None:
    """Both kinds in one process, in both orders: what was found out of one says nothing of the next."""
    table = "fences_behind_alchemy"
    with engine_of(name, tmp_path, False).connect() as connection:
        fence = SqlFence(connection, table=table)
        before = fence.highest(connection, name)
    for _ in range(2):
        with engine_of(name, tmp_path, True).connect() as connection:
            with pytest.raises(holdfast.ConfigError, match="begin a transaction"):
                fence.guard(connection, f"{name} refused", before + 34)
            connection.rollback()
        with engine_of(name, tmp_path, False).connect() as connection:
            fence.guard(connection, name, before + 34)
            connection.rollback()
            assert fence.highest(connection, name) == before
            connection.rollback()
            with holdfast.connect("memory://") as locks, locks.rwlock("book").read() as reader:
                fence.guard(connection, f"{name} read", reader)
            connection.rollback()


@pytest.mark.parametrize("name", sorted(ASYNCHRONOUS))
async def test_a_driver_behind_sqlalchemy_in_asyncio(name: str, tmp_path: Path) -> None:
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    def engine_of(commits_each: bool) -> Any:
        arguments = ASYNCHRONOUS[name] if commits_each else {}
        url = url_of(name, tmp_path)
        return create_async_engine(url, poolclass=NullPool, connect_args=arguments)

    async with engine_of(False).connect() as connection:
        fence = await SqlFence(table="fences_behind_alchemy").install(connection)
        before = await fence.highest(connection, name)
    for _ in range(2):
        if ASYNCHRONOUS[name]:
            async with engine_of(True).connect() as connection:
                with pytest.raises(holdfast.ConfigError, match="begin a transaction"):
                    await fence.guard(connection, f"{name} refused", before + 34)
                await connection.rollback()
        async with engine_of(False).connect() as connection:
            await fence.guard(connection, name, before + 34)
            await connection.rollback()
            assert await fence.highest(connection, name) == before


STREAMS: list[dict[str, Any]] = [{"stream_results": True}, {"yield_per": 2}]
"""Options by which SQLAlchemy reads every result by a cursor of the server's, which no UPDATE has."""


@pytest.mark.parametrize("name", sorted(BLOCKING))
@pytest.mark.parametrize("options", STREAMS, ids=str)
def test_a_connection_that_streams_results(
    name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    with engine_of(name, tmp_path, False).connect() as connection:
        fence = SqlFence(connection, table="fences_of_streams")
        connection.rollback()
        connection.execution_options(**options)
        newer = fence.highest(connection, "streamed") + 34
        fence.guard(connection, "streamed", newer)
        assert fence.highest(connection, "streamed") == newer
        with pytest.raises(holdfast.StaleToken):
            fence.guard(connection, "streamed", newer - 1)
        connection.rollback()
        fence.verify(connection)
        fence.prune(connection, 100.0)
        connection.rollback()


@pytest.mark.parametrize("name", sorted(ASYNCHRONOUS))
@pytest.mark.parametrize("options", STREAMS, ids=str)
async def test_a_connection_that_streams_results_in_asyncio(
    name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    engine = create_async_engine(url_of(name, tmp_path), poolclass=NullPool)
    async with engine.connect() as connection:
        fence = await SqlFence(table="fences_of_streams").install(connection)
        await connection.execution_options(**options)
        newer = await fence.highest(connection, "streamed") + 34
        await fence.guard(connection, "streamed", newer)
        with pytest.raises(holdfast.StaleToken):
            await fence.guard(connection, "streamed", newer - 1)
        await connection.rollback()


def test_sqlalchemys_own_autocommit_is_refused(tmp_path: Path) -> None:
    for name in sorted(BLOCKING):
        engine = engine_of(name, tmp_path, False)
        with engine.connect() as connection:
            fence = SqlFence(connection, table="fences_behind_alchemy")
        with (
            engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
            pytest.raises(holdfast.ConfigError, match="begin a transaction"),
        ):
            fence.guard(connection, name, 34)


def test_a_driver_that_cannot_be_asked_is_refused(tmp_path: Path) -> None:
    """Nobody knows whether it has begun a transaction, so nothing is sent."""
    from sqlalchemy import create_engine, event

    sent: list[str] = []
    engine = create_engine(f"sqlite:///{tmp_path}/app.db")
    event.listen(engine, "before_cursor_execute", lambda *what: sent.append(what[2]))
    with engine.connect() as connection:
        fence = SqlFence(connection)
        sent.clear()

        class Unknown:
            """A driver's connection of which SqlFence has never heard."""

        dialect: Any = connection.dialect
        dialect.get_driver_connection = lambda _: Unknown()
        with pytest.raises(holdfast.ConfigError, match="cannot find out whether"):
            fence.guard(connection, "x", 34)
        assert sent == []
