"""The tables and procedures on a PostgreSQL: created on first use, by many at once, or by a script."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING

from ..sql.refusals import check_format

if TYPE_CHECKING:
    from .connection import PostgresConnection

FORMAT = 1
"""The number of the tables' layout. A database with a higher one is refused."""
SCRIPTS = ("tables.sql", "procedures.sql", "leases.sql", "elections.sql")
INSTALLING = 0x486F6C64
"""The number of the advisory lock that is held, in a transaction, while the tables are created."""


def script() -> str:
    """Returns all that a database needs, as SQL: to be run as one transaction, again without harm."""
    folder = files(__package__) / "scripts"
    return "\n".join(
        [
            f"SELECT pg_advisory_xact_lock({INSTALLING});\n",
            *((folder / name).read_text() for name in SCRIPTS),
            "-- Last: it says that all of the above is there.",
            f"INSERT INTO holdfast_store VALUES (0, {FORMAT}, 0, '') ON CONFLICT DO NOTHING;\n",
        ]
    )


def install(connection: PostgresConnection, deadline: float) -> None:
    """Creates what is missing, and refuses a layout that is newer than ours."""
    found = stored_format(connection, deadline)
    if found is None or (found == FORMAT and is_incomplete(connection, deadline)):
        connection.script(script(), deadline)
        found = stored_format(connection, deadline)
    check_format(found, FORMAT, "another database or schema")


def stored_format(connection: PostgresConnection, deadline: float) -> int | None:
    """Returns the format of the tables that are there; None if there are none."""
    there = connection.run(b"SELECT to_regclass('holdfast_store') IS NOT NULL", [], deadline)
    if not there[0][0]:
        return None
    rows = connection.run(b"SELECT format FROM holdfast_store", [], deadline)
    return int(rows[0][0]) if rows else None


def is_incomplete(connection: PostgresConnection, deadline: float) -> bool:
    """Tells whether a table or a procedure is not there: somebody may have dropped it alone."""
    tables = set(re.findall(r"^CREATE TABLE IF NOT EXISTS (\w+)", script(), re.MULTILINE))
    procedures = set(re.findall(r"^CREATE OR REPLACE FUNCTION (\w+)", script(), re.MULTILINE))
    query = (
        b"SELECT relname FROM pg_class WHERE relname LIKE 'holdfast%' AND pg_table_is_visible(oid) "
        b"UNION "
        b"SELECT proname FROM pg_proc WHERE proname LIKE 'holdfast%' AND pg_function_is_visible(oid)"
    )
    return not tables | procedures <= {row[0] for row in connection.run(query, [], deadline)}
