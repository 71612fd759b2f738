"""The tables and procedures on a MySQL or MariaDB: created by the first users, or by a script."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from importlib.resources import files

from ...errors import ConfigError
from ..sql.refusals import check_format
from .connection import MysqlConnection
from .failures import RoutineExists

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


def script() -> str:
    """Returns all that a database needs, as SQL for the programs `mysql` and `mariadb`."""
    return "\n".join(
        [
            MODE + ";\n",
            _read("tables.sql"),
            "DELIMITER $$\n",
            *(f"{_drop(name)}\n$$\n{text}\n$$\n" for name, text in procedures().items()),
            "DELIMITER ;\n",
            f"-- Last: it says that all of the above is there.\n{LAST};\n",
        ]
    )


PROCEDURES = ("rules.sql", "steps.sql", "leases.sql", "elections.sql", "views.sql")


def _read(name: str) -> str:
    return (files(__package__) / "scripts" / name).read_text("utf-8")


def procedures() -> dict[str, str]:
    """Returns the statements that create the procedures, by their names."""
    parts = [part.strip() for file in PROCEDURES for part in _read(file).split("\n$$\n")]
    found = {}
    for part in parts:
        name = re.search(r"^CREATE PROCEDURE .*?(holdfast_\w+)\(", part, re.MULTILINE)
        if name is not None:
            found[name.group(1)] = part
    return found


def _drop(name: str) -> str:
    return f"DROP PROCEDURE IF EXISTS {name}"


def _statements(anew: bool) -> list[str]:
    """Returns the statements that create the tables and procedures; `anew`: in place of others.

    The last procedure is the first to go, then: if this is cut off, that is missing, and the next
    manager begins again.
    """
    tables = [part for part in re.split(r";\n", _read("tables.sql")) if "CREATE" in part]
    made = procedures()
    if not anew:
        return [MODE, *tables, *made.values(), LAST]
    replaced = [step for name, text in made.items() for step in (_drop(name), text)]
    return [MODE, *tables, _drop(list(made)[-1]), *replaced, LAST]


def install(connection: MysqlConnection, deadline: float) -> None:
    """Creates what is missing; refuses a layout that is newer than ours, and an unfit server."""
    names = procedures()
    ((version, engines, routines),) = connection.run(
        "SELECT VERSION(), (SELECT GROUP_CONCAT(CONCAT(table_name, ' ', engine)) FROM "
        "information_schema.tables WHERE table_schema = DATABASE() AND table_name IN "
        f"({_listed(TABLES)})), (SELECT COUNT(*) FROM information_schema.routines "
        f"WHERE routine_schema = DATABASE() AND routine_name IN ({_listed(names)}))",
        deadline,
    )
    refuse_old(version)
    _refuse_engines(engines or "")
    complete = len((engines or "").split(",")) == len(TABLES) and routines == len(names)
    found = stored_format(connection, deadline)
    if found is None or (found == FORMAT and not complete):
        for statement in _statements(found is not None):
            with suppress(RoutineExists):  # another manager has made it meanwhile
                connection.run(statement, deadline)
        found = stored_format(connection, deadline)
    check_format(found, FORMAT, "another database")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


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
