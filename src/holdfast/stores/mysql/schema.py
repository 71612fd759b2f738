"""The tables and procedures on a MySQL or MariaDB: created by the first users, or by a script."""

from __future__ import annotations

import re
from importlib.resources import files

from ...errors import ConfigError
from ..sql.refusals import check_format
from .connection import MysqlConnection

FORMAT = 1
"""The number of the tables' layout. A database with a higher one is refused."""
OLDEST = {"MySQL": (8, 0), "MariaDB": (10, 6)}
"""The first versions with all that the procedures use: JSON_TABLE, SKIP LOCKED, window functions."""
TABLES = (
    "holdfast_audit",
    "holdfast_change",
    "holdfast_entry",
    "holdfast_lock",
    "holdfast_observer",
    "holdfast_store",
)
MODE = "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'"
"""Procedures keep the mode in which they were created."""
LAST = f"INSERT IGNORE INTO holdfast_store VALUES (0, {FORMAT}, 0, '')"
"""Says that all the rest is there."""
TABLE_MISSING, ROUTINE_EXISTS = 1146, 1304


def script() -> str:
    """Returns all that a database needs, as SQL for the programs `mysql` and `mariadb`."""
    return "\n".join(
        [
            MODE + ";\n",
            _read("tables.sql"),
            "DELIMITER $$\n",
            *map(_read, PROCEDURES),
            "DELIMITER ;\n",
            f"-- Last: it says that all of the above is there.\n{LAST};\n",
        ]
    )


PROCEDURES = ("rules.sql", "steps.sql", "leases.sql", "elections.sql", "views.sql")


def _read(name: str) -> str:
    return (files(__package__) / "scripts" / name).read_text("utf-8")


def _statements(anew: bool) -> list[str]:
    """Returns the statements that create the tables and procedures; `anew`: in place of others."""
    tables = [part for part in re.split(r";\n", _read("tables.sql")) if "CREATE" in part]
    procedures = [part for name in PROCEDURES for part in _read(name).split("\n$$\n")]
    names = re.findall(
        r"^CREATE PROCEDURE .*?(holdfast_\w+)\(", "\n".join(procedures), re.MULTILINE
    )
    dropped = [f"DROP PROCEDURE IF EXISTS {name}" for name in names if anew]
    return [MODE, *tables, *dropped, *(part for part in procedures if "CREATE" in part), LAST]


def install(connection: MysqlConnection, deadline: float) -> None:
    """Creates what is missing; refuses a layout that is newer than ours, and an unfit server."""
    ((version, engines),) = connection.run(
        "SELECT VERSION(), (SELECT GROUP_CONCAT(CONCAT(table_name, ' ', engine)) FROM "
        "information_schema.tables WHERE table_schema = DATABASE() AND table_name IN "
        f"({', '.join(repr(name) for name in TABLES)}))",
        deadline,
    )
    refuse_old(version)
    _refuse_engines(engines or "")
    complete = len((engines or "").split(",")) == len(TABLES)
    found = stored_format(connection, deadline)
    if found is None or (found == FORMAT and not complete):
        for statement in _statements(found is not None):
            connection.run(statement, deadline)
        found = stored_format(connection, deadline)
    check_format(found, FORMAT, "another database")


def stored_format(connection: MysqlConnection, deadline: float) -> int | None:
    """Returns the format of the tables that are there; None if they are not complete."""
    there = connection.run(
        "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() "
        "AND table_name = 'holdfast_store'",
        deadline,
    )
    rows = there and connection.run("SELECT format FROM holdfast_store", deadline)
    return int(rows[0][0]) if rows else None


def refuse_old(version: str) -> None:
    kind = "MariaDB" if "mariadb" in version.lower() else "MySQL"
    numbers = re.match(r"(?:5\.5\.5-)?(\d+)\.(\d+)", version)
    if numbers is None or tuple(map(int, numbers.groups())) < OLDEST[kind]:
        oldest = ".".join(map(str, OLDEST[kind]))
        raise ConfigError(
            f"this server is {kind} {version:.40}; holdfast needs {kind} {oldest} or newer"
        )


def _refuse_engines(engines: str) -> None:
    for table, _, engine in (text.partition(" ") for text in engines.split(",") if text):
        if engine.lower() != "innodb":
            raise ConfigError(
                f"the table {table} of this database has the engine {engine}, which has no "
                f"transactions; locks need InnoDB: ALTER TABLE {table} ENGINE = InnoDB"
            )
