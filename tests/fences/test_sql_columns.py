"""SQL: columns of the application's own that a fence keeps tokens in."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import holdfast
from fences.scenes import StoreLease
from holdfast.fences import SqlFence
from holdfast.fences.sql_columns import refuse_narrow
from holdfast.fences.sql_dialects import POSTGRESQL, Statements
from holdfast.versioned import SqlVersioned
from stores import mariadb_server, postgres_server

LENIENT = "SET SESSION sql_mode = ''"
LATE, NEXT = 1_794_722_314_229_785, 1_794_722_314_229_786


@pytest.fixture
def lenient() -> Iterator[Any]:
    """A MariaDB that cuts off what does not fit, with two databases of one make."""
    connection = mariadb_server().connect()
    cursor = connection.cursor()
    cursor.execute(LENIENT)
    for place, kind in (("wide", "BIGINT"), ("narrow", "INT")):
        cursor.execute(f"DROP DATABASE IF EXISTS {place}_place")
        cursor.execute(f"CREATE DATABASE {place}_place")
        cursor.execute(
            f"CREATE TABLE {place}_place.invoices (id INT PRIMARY KEY, v INT, "
            f"fencing_token {kind} NOT NULL DEFAULT 0, lock_id VARCHAR(250) NOT NULL DEFAULT '')"
        )
        cursor.execute(f"INSERT INTO {place}_place.invoices (id, v) VALUES (1, 0)")
    connection.commit()
    yield connection
    connection.close()


@pytest.mark.parametrize(
    ("kind", "wide"),
    [
        ("decimal(10,0)", False),
        ("decimal(19,0)", True),
        ("decimal(20,10)", False),
        ("numeric", True),
        ("numeric(12,0)", False),
        ("real", False),
        ("bigint(20)", True),
        ("int(11)", False),
    ],
)
def test_a_column_that_does_not_keep_every_digit_is_refused(kind: str, wide: bool) -> None:
    sql = Statements(POSTGRESQL, "fences", "format", False)
    if wide:
        refuse_narrow("t", "fencing_token", kind, sql)
    else:
        with pytest.raises(holdfast.GuaranteeError, match="does not keep every digit"):
            refuse_narrow("t", "fencing_token", kind, sql)


@pytest.mark.parametrize(
    ("kind", "wide"),
    [
        ("real", False),
        ("bigint", True),
        ("tokens", True),
        ("tokens_of_ours", True),
        ("few_of_ours", False),
    ],
)
def test_a_column_of_postgresql_that_rounds_is_refused_by_update_too(kind: str, wide: bool) -> None:
    with postgres_server().connect() as connection:
        fence = SqlFence(connection)
        connection.execute("DROP TABLE IF EXISTS rounded")
        for name, below in (("tokens", "bigint"), ("few", "numeric(12)")):
            connection.execute(f"DROP DOMAIN IF EXISTS {name} CASCADE")
            connection.execute(f"CREATE DOMAIN {name} AS {below}")
            connection.execute(f"CREATE DOMAIN {name}_of_ours AS {name} NOT NULL")
        connection.execute(f"CREATE TABLE rounded (id int, v int, fencing_token {kind} DEFAULT 0)")
        connection.execute("INSERT INTO rounded VALUES (1, 0)")
        if wide:
            fence.update(connection, "rounded", {"v": 1}, {"id": 1}, 34)
        else:
            with pytest.raises(holdfast.GuaranteeError, match="does not keep every digit"):
                fence.update(connection, "rounded", {"v": 1}, {"id": 1}, 34)
        connection.rollback()


def test_a_fence_before_two_databases_looks_at_the_columns_of_both(lenient: Any) -> None:
    """They are reached by connections of one kind, and one has a column that is too narrow."""
    fence = SqlFence()
    wide, narrow = (mariadb_server().connect(database=f"{one}_place") for one in ("wide", "narrow"))
    try:
        narrow.cursor().execute(LENIENT)
        for _ in range(2):
            fence.update(wide, "invoices", {"v": 1}, {"id": 1}, NEXT)
        wide.commit()
        with pytest.raises(holdfast.GuaranteeError, match="does not keep every digit"):
            fence.update(narrow, "invoices", {"v": 1}, {"id": 1}, NEXT)
        narrow.rollback()
        with pytest.raises(holdfast.StaleToken):
            fence.update(wide, "invoices", {"v": 2}, {"id": 1}, LATE)
        wide.rollback()
    finally:
        wide.close()
        narrow.close()


def test_a_connection_that_goes_to_another_database_is_looked_at_again(lenient: Any) -> None:
    fence = SqlFence()
    cursor = lenient.cursor()
    cursor.execute("USE wide_place")
    for _ in range(2):
        fence.update(lenient, "invoices", {"v": 1}, {"id": 1}, NEXT)
    lenient.commit()
    cursor.execute("USE narrow_place")
    with pytest.raises(holdfast.GuaranteeError, match="does not keep every digit"):
        fence.update(lenient, "invoices", {"v": 1}, {"id": 1}, NEXT)
    lenient.rollback()
    cursor.execute("ALTER TABLE invoices MODIFY fencing_token BIGINT NOT NULL DEFAULT 0")
    for value in (1, 1, 2):
        fence.update(lenient, "invoices", {"v": value}, {"id": 1}, NEXT)
    lenient.commit()
    cursor.execute("USE wide_place")
    with pytest.raises(holdfast.StaleToken):
        fence.update(lenient, "invoices", {"v": 2}, {"id": 1}, LATE)
    with pytest.raises(LookupError):
        fence.update(lenient, "invoices", {"v": 2}, {"id": 2}, NEXT)


def test_a_search_path_that_leads_to_another_table_is_looked_at_again() -> None:
    fence = SqlFence()
    with postgres_server().connect() as connection:
        for place, kind in (("tenant_a", "bigint"), ("tenant_b", "real")):
            connection.execute(f"DROP SCHEMA IF EXISTS {place} CASCADE")
            connection.execute(f"CREATE SCHEMA {place}")
            connection.execute(
                f"CREATE TABLE {place}.invoices (id int, v int, fencing_token {kind} DEFAULT 0)"
            )
            connection.execute(f"INSERT INTO {place}.invoices VALUES (1, 0)")
        connection.execute("SET search_path TO tenant_a")
        for _ in range(8):  # often enough for psycopg to prepare it
            fence.update(connection, "invoices", {"v": 1}, {"id": 1}, NEXT)
        connection.execute("SET search_path TO tenant_b")
        with pytest.raises(holdfast.GuaranteeError, match="does not keep every digit"):
            fence.update(connection, "invoices", {"v": 1}, {"id": 1}, NEXT)
        connection.execute("SET search_path TO tenant_a")
        fence.update(connection, "invoices", {"v": 2}, {"id": 1}, NEXT)
        with pytest.raises(holdfast.StaleToken):
            fence.update(connection, "invoices", {"v": 3}, {"id": 1}, LATE)
        connection.rollback()


def test_two_files_of_sqlite_are_two_databases(tmp_path: Path) -> None:
    fence = SqlFence()
    made = []
    for name, kind in (("wide", "BIGINT"), ("narrow", "REAL")):
        connection = sqlite3.connect(tmp_path / name)
        connection.execute(f"CREATE TABLE invoices (id INT, v INT, fencing_token {kind} DEFAULT 0)")
        connection.execute("INSERT INTO invoices VALUES (1, 0, 0)")
        made.append(connection)
    fence.update(made[0], "invoices", {"v": 1}, {"id": 1}, NEXT)
    with pytest.raises(holdfast.GuaranteeError, match="does not keep every digit"):
        fence.update(made[1], "invoices", {"v": 1}, {"id": 1}, NEXT)
    for connection in made:
        connection.close()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_two_databases_behind_sqlalchemy(lenient: Any, asynchronous: bool) -> None:
    from sqlalchemy import create_engine
    from sqlalchemy.ext.asyncio import create_async_engine

    fence = SqlFence()
    driver = "asyncmy" if asynchronous else "pymysql"
    base = mariadb_server().url.replace("mysql:", f"mysql+{driver}:").rpartition("/")[0]

    async def update(place: str) -> None:
        engine = create_async_engine(f"{base}/{place}_place")
        try:
            async with engine.connect() as connection:
                await connection.exec_driver_sql(LENIENT)
                for _ in range(2):
                    await fence.update(connection, "invoices", {"v": 1}, {"id": 1}, NEXT)
                await connection.commit()
        finally:
            await engine.dispose()

    def work(place: str) -> None:
        if asynchronous:
            asyncio.run(update(place))
            return
        engine = create_engine(f"{base}/{place}_place")
        try:
            with engine.connect() as connection:
                connection.exec_driver_sql(LENIENT)
                for _ in range(2):
                    fence.update(connection, "invoices", {"v": 1}, {"id": 1}, NEXT)
                connection.commit()
        finally:
            engine.dispose()

    work("wide")
    with pytest.raises(holdfast.GuaranteeError, match="does not keep every digit"):
        work("narrow")


@pytest.mark.parametrize(
    ("kind", "name", "fits"),
    [
        ("VARCHAR(20)", "a", True),
        ("VARCHAR(20)", "a" * 20, False),
        ("VARBINARY(20)", "é" * 6, False),
        ("VARCHAR(20) CHARACTER SET latin1", "☃", False),
        ("VARCHAR(20) CHARACTER SET latin1", "é", True),
        ("VARCHAR(20) CHARACTER SET utf8mb4", "☃", True),
        ("VARCHAR(20) CHARACTER SET utf8mb3", "☃", True),
        ("VARCHAR(20) CHARACTER SET utf8mb3", "🦀", False),
        ("TINYTEXT", "a" * 250, False),
        ("TEXT", "a" * 250, True),
        ("CHAR(60)", "a", False),  # which 'a ' would be taken for
        ("BINARY(60)", "a", False),
    ],
)
def test_a_column_that_would_cut_the_locks_identity_off_is_refused(
    lenient: Any, kind: str, name: str, fits: bool
) -> None:
    lease = StoreLease("redis", NEXT)
    lease.lock_id = f"redis:app/{name}"
    cursor = lenient.cursor()
    cursor.execute("USE wide_place")
    cursor.execute(f"ALTER TABLE invoices MODIFY lock_id {kind} NOT NULL")
    fence = SqlFence()

    def update() -> None:
        fence.update(lenient, "invoices", {"v": 1}, {"id": 1}, lease, lock_column="lock_id")

    if fits:
        for _ in range(2):
            update()
        cursor.execute("SELECT CAST(CONVERT(lock_id USING utf8mb4) AS BINARY) FROM invoices")
        assert cursor.fetchone()[0].decode() == lease.lock_id
    else:
        with pytest.raises(holdfast.GuaranteeError, match="the column lock_id of invoices"):
            update()
        cursor.execute("SELECT v, fencing_token FROM invoices")
        assert cursor.fetchone() == (0, 0)
    lenient.rollback()


@pytest.mark.parametrize("kind", ["VARBINARY(250)", "VARCHAR(250) CHARACTER SET utf8mb4"])
def test_a_connection_whose_character_set_lacks_letters_of_the_name(
    lenient: Any, kind: str
) -> None:
    import pymysql

    cursor = lenient.cursor()
    cursor.execute(f"ALTER TABLE wide_place.invoices MODIFY lock_id {kind} NOT NULL")
    lenient.commit()
    fence = SqlFence(lenient)
    latin = pymysql.connect(
        host="127.0.0.1",
        port=mariadb_server().port,
        user="root",
        database="wide_place",
        charset="latin1",
    )
    try:
        fence = SqlFence(latin)
        for name in ("é", "☃"):
            mine, other = StoreLease("redis", NEXT), StoreLease("redis", NEXT + 1)
            mine.lock_id, other.lock_id = f"redis:app/{name}", "redis:app/another"
            for _ in range(2):
                fence.update(latin, "invoices", {"v": 1}, {"id": 1}, mine, lock_column="lock_id")
                fence.guard(latin, name, mine)
            with pytest.raises(holdfast.StaleToken, match=name):
                fence.update(latin, "invoices", {"v": 1}, {"id": 1}, other, lock_column="lock_id")
            with pytest.raises(holdfast.StaleToken, match=name):
                fence.guard(latin, name, other)
            latin.rollback()
    finally:
        latin.close()


@pytest.mark.parametrize("kind", ["INT", "DECIMAL(10,0)", "FLOAT", "DOUBLE"])
def test_a_version_that_would_be_cut_off_is_refused(lenient: Any, kind: str) -> None:
    """Each change would leave the version as it is, and a second one from before would pass."""
    cursor = lenient.cursor()
    cursor.execute(
        f"CREATE TABLE wide_place.settings (`key` INT PRIMARY KEY, value INT, version {kind})"
    )
    lenient.commit()
    register = SqlVersioned(lenient, "wide_place.settings")
    with pytest.raises(holdfast.GuaranteeError, match="does not keep every digit"):
        register.put(1, 5, version=None)
    cursor.execute("INSERT INTO wide_place.settings VALUES (1, 5, 1)")
    lenient.commit()
    with pytest.raises(holdfast.GuaranteeError, match="does not keep every digit"):
        register.update(1, lambda value: value + 1)
    assert register.get(1).value == 5
    cursor.execute("ALTER TABLE wide_place.settings MODIFY version BIGINT NOT NULL")
    assert register.update(1, lambda value: value + 1).value == 6


@pytest.mark.parametrize(
    ("kind", "small"), [("real", False), ("numeric(12,0)", True), ("integer", True)]
)
def test_a_version_of_postgresql_that_does_not_keep_every_digit(kind: str, small: bool) -> None:
    """The first version of a row is large. Others may be small: one that does not fit is an error."""
    refused = pytest.raises(holdfast.GuaranteeError, match="the column version of versions")
    with postgres_server().connect() as connection:
        connection.execute("DROP TABLE IF EXISTS versions")
        connection.execute(
            f"CREATE TABLE versions (key int PRIMARY KEY, value int, version {kind})"
        )
        connection.commit()
        register = SqlVersioned(connection, "versions")
        with refused:
            register.put(1, 5, version=None)
        connection.execute("INSERT INTO versions VALUES (1, 5, 1)")
        connection.commit()
        with nullcontext() if small else refused:
            assert register.update(1, lambda value: value + 1) == (6, 2)
        assert register.get(1).value == 5 + small


def test_a_column_of_postgresql_that_knows_no_blanks_is_refused_for_a_lock() -> None:
    lease = StoreLease("redis", NEXT)
    with postgres_server().connect() as connection:
        connection.execute("DROP TABLE IF EXISTS blanks")
        connection.execute(
            "CREATE TABLE blanks (id int, v int, fencing_token bigint DEFAULT 0 NOT NULL, "
            "lock_id character(60) DEFAULT '' NOT NULL)"
        )
        connection.execute("INSERT INTO blanks VALUES (1, 0)")
        with pytest.raises(holdfast.GuaranteeError, match="another that ends in blanks"):
            SqlFence().update(
                connection, "blanks", {"v": 1}, {"id": 1}, lease, lock_column="lock_id"
            )
        connection.execute("ALTER TABLE blanks ALTER lock_id TYPE character varying(200)")
        SqlFence().update(connection, "blanks", {"v": 1}, {"id": 1}, lease, lock_column="lock_id")
