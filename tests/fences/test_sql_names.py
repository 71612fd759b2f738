"""SQL: fences in another schema, and names in quotes, on every database."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.fences import SqlFence
from stores import mariadb_server, postgres_server

NAMES = [
    "billing.fences",
    '"Billing Dept"."Fences of 2026"',
    'billing."order"',
    '"Fences.All"',
    "fences",
]


def sqlite(folder: Path) -> Any:
    connection = sqlite3.connect(folder / "app.db")
    connection.execute("ATTACH ? AS billing", (str(folder / "billing.db"),))
    connection.execute("ATTACH ? AS `Billing Dept`", (str(folder / "dept.db"),))
    return connection


def postgres(folder: Path) -> Any:
    connection = postgres_server().connect()
    for schema in ("billing", '"Billing Dept"'):
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    connection.commit()
    return connection


def mariadb(folder: Path) -> Any:
    connection = mariadb_server().connect()
    with connection.cursor() as cursor:
        for schema in ("billing", "`Billing Dept`"):
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {schema}")
    return connection


@pytest.fixture(params=[sqlite, postgres, mariadb], ids=lambda one: one.__name__)
def connection(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = request.param(tmp_path)
    yield made
    made.close()


def execute(connection: Any, text: str) -> list[Any]:
    if type(connection).__module__.startswith("pymysql"):
        text = text.replace('"', "`")
    cursor = connection.cursor()
    cursor.execute(text)
    return list(cursor.fetchall()) if cursor.description else []


@pytest.mark.parametrize("table", NAMES)
def test_a_fence_of_that_name(connection: Any, table: str) -> None:
    fence = SqlFence(connection, table=table)
    SqlFence(connection, table=table)  # which finds it
    before = fence.highest(connection, "x")
    fence.guard(connection, "x", before + 34)
    connection.commit()
    with pytest.raises(holdfast.StaleToken):
        fence.guard(connection, "x", before + 33)
    connection.rollback()
    fence.verify(connection)
    connection.rollback()
    assert fence.reset(connection, "x", by="a test", to=before) == before + 34
    connection.commit()
    (row,) = execute(connection, f"SELECT token FROM {table} WHERE resource = 'x'")
    assert int(row[0]) == before
    resets = f'{table[:-1]}_resets"' if table.endswith('"') else f"{table}_resets"
    assert execute(connection, f"SELECT token FROM {resets}")
    connection.rollback()


@pytest.mark.parametrize("table", ["billing.invoices", '"Billing Dept"."Invoices"'])
def test_a_row_of_that_name(connection: Any, table: str) -> None:
    fence = SqlFence(connection)
    execute(connection, f"DROP TABLE IF EXISTS {table}")
    execute(
        connection,
        f'CREATE TABLE {table} (id INTEGER PRIMARY KEY, "Total" INTEGER, '
        '"Token" BIGINT NOT NULL DEFAULT 0)',
    )
    execute(connection, f'INSERT INTO {table} (id, "Total") VALUES (42, 1)')
    connection.commit()
    fence.update(connection, table, {'"Total"': 10}, {"id": 42}, 34, column='"Token"')
    with pytest.raises(holdfast.StaleToken):
        fence.update(connection, table, {'"Total"': 11}, {"id": 42}, 33, column='"Token"')
    with pytest.raises(holdfast.ConfigError, match="by the fence itself"):
        fence.update(connection, table, {'"Token"': 11}, {"id": 42}, 34, column='"Token"')
    fence.verify(connection, table, column='"Token"')
    assert execute(connection, f'SELECT "Total" FROM {table}')[0][0] == 10
    connection.rollback()


def test_a_schema_that_is_not_there_is_told(connection: Any) -> None:
    with pytest.raises(Exception, match=r"nowhere|(?i:unknown database)"):
        SqlFence(connection, table="nowhere.fences")
    connection.rollback()


@pytest.mark.parametrize(
    "table",
    ["", "a.b.c", ".a", "a.", 'a"', '"', '""', '"a`b"', '"a?"', '"50%"', "a b", "a" * 57, 7],
)
def test_what_is_no_name_is_refused(table: Any) -> None:
    with pytest.raises(holdfast.ConfigError, match=r"table must"):
        SqlFence(table=table)
