"""SQL: a transaction that is committed half-way, by DDL or by a script, is noticed at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast
from fences.sql_sites import SQL_SITES, AsyncPostgresSite, MariaSite, SqlSite
from holdfast.fences import SqlFence
from stores import mariadb_server

BLOCKING = [name for name, kind in SQL_SITES.items() if not issubclass(kind, AsyncPostgresSite)]


@pytest.fixture(params=BLOCKING)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = SQL_SITES[request.param](tmp_path)
    yield made
    made.close()


def test_a_body_that_keeps_its_transaction(site: SqlSite) -> None:
    connection = site.connection()
    with holdfast.connect("memory://") as locks:
        lease = locks.lock("x", protects=site.fence).acquire()
        for value in ("a", "b"):  # also by the short way for the same holder
            with lease.guard.hold(connection, "x"), site.fence.hold(connection, "y", 34):
                site.execute(connection, site.upsert, (site.name("x"), value))
            connection.commit()
            assert (site.read("x"), site.highest("x")) == (value, lease.token)
        with pytest.raises(holdfast.StaleToken), site.fence.hold(connection, "x", 1):
            raise AssertionError("a stale token was let in")
        connection.rollback()
        with pytest.raises(ZeroDivisionError), site.fence.hold(connection, "x", lease):
            raise ZeroDivisionError
        connection.rollback()
        assert site.read("x") == "b"


def test_a_readers_lease_is_refused(site: SqlSite) -> None:
    connection = site.connection()
    with holdfast.connect("memory://") as locks, locks.rwlock("x").read() as lease:
        with pytest.raises(holdfast.GuaranteeError, match="a reader's lease does not write"):
            site.fence.hold(connection, "x", lease)
        guard = locks.rwlock("x", protects=site.fence).read().acquire().guard
        with pytest.raises(holdfast.GuaranteeError, match="a reader's lease does not write"):
            guard.hold(connection, "x")


def test_a_commit_in_between_is_noticed(site: SqlSite) -> None:
    connection = site.connection()
    held = site.fence.hold(connection, "x", 34)
    held.__enter__()
    site.execute(connection, site.upsert, (site.name("x"), "guarded"))
    connection.commit()
    site.execute(connection, site.upsert, (site.name("x"), "late"))
    with pytest.raises(holdfast.GuaranteeError, match="is over before its end"):
        held.__exit__(None, None, None)
    connection.rollback()
    assert site.read("x") == "guarded"


def test_ddl_commits_on_mariadb_and_not_elsewhere(site: SqlSite) -> None:
    connection = site.connection()
    ddl = f"CREATE TABLE {site.values}_more (id INTEGER)"
    held = site.fence.hold(connection, "x", 34)
    held.__enter__()
    site.execute(connection, ddl)
    if isinstance(site, MariaSite):
        with pytest.raises(holdfast.GuaranteeError, match="DDL"):
            held.__exit__(None, None, None)
    else:
        held.__exit__(None, None, None)
    connection.rollback()


def test_a_script_of_sqlite3(tmp_path: Path) -> None:
    import sqlite3

    connection = sqlite3.connect(tmp_path / "app.db")
    fence = SqlFence(connection)
    held = fence.hold(connection, "x", 34)
    held.__enter__()
    connection.executescript("CREATE TABLE more (id INTEGER); INSERT INTO more VALUES (1);")
    with pytest.raises(holdfast.GuaranteeError, match="executescript"):
        held.__exit__(None, None, None)
    connection.close()


async def test_in_asyncio() -> None:
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    url = mariadb_server().url.replace("mysql:", "mysql+asyncmy:")
    async with create_async_engine(url, poolclass=NullPool).connect() as connection:
        fence = await SqlFence(table="fences_held").install(connection)
        with (
            holdfast.connect("memory://") as locks,
            locks.rwlock("x").read() as lease,
            pytest.raises(holdfast.GuaranteeError, match="a reader's lease does not write"),
        ):
            fence.hold(connection, "x", lease)
        highest = await fence.highest(connection, "x")
        async with fence.hold(connection, "x", highest + 1):
            pass
        await connection.rollback()
        held = fence.hold(connection, "x", highest + 1)
        await held.__aenter__()
        await connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS held_more (id INTEGER)")
        with pytest.raises(holdfast.GuaranteeError, match="DDL"):
            await held.__aexit__(None, None, None)
        await connection.rollback()
