"""The tables and procedures on a MySQL or MariaDB: created by the first users, or by a script."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from importlib.resources import files
from typing import NamedTuple

from ...errors import BackendUnavailable, ConfigError
from ..sql.failures import Again, Unready
from ..sql.refusals import check_format
from .connection import MysqlConnection
from .failures import Denied, RoutineExists

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
CREATE = r"(?m)^CREATE PROCEDURE (?:/\*.*?\*/ )*"
"""How the statement begins that creates a procedure unless it is there."""
TURN, LONGEST_TURN = "LEFT(CONCAT('holdfast ', DATABASE()), 64)", 5
"""The server's lock that is held while procedures are replaced; and the seconds for which others wait
for it, at most."""


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
        name = re.search(CREATE + r"(holdfast_\w+)\(", part)
        if name is not None:
            found[name.group(1)] = part
    return found


def _drop(name: str) -> str:
    return f"DROP PROCEDURE IF EXISTS {name}"


def _statements(anew: bool, in_place: bool = False) -> list[str]:
    """Returns the statements that create the tables and procedures; `anew`: in place of others.

    The last procedure is the first to go, then, before any table comes: if this is cut off, that
    procedure is missing, and the next manager begins again. (It is the cleaning, which can wait.)
    `in_place` says that the server replaces a procedure in one step: whoever calls it meanwhile finds
    the one or the other.
    """
    tables = [part for part in re.split(r";\n", _read("tables.sql")) if "CREATE" in part]
    made = procedures()
    if not anew:
        return [MODE, *tables, *made.values(), LAST]
    if in_place:
        replaced = [re.sub(CREATE, "CREATE OR REPLACE PROCEDURE ", text) for text in made.values()]
    else:
        replaced = [step for name, text in made.items() for step in (_drop(name), text)]
    return [MODE, _drop(list(made)[-1]), *tables, *replaced, LAST]


class _Found(NamedTuple):
    """The tables and procedures that are there, as far as this user sees them."""

    mariadb: bool
    format: int | None
    tables: bool
    procedures: bool

    @property
    def is_incomplete(self) -> bool:
        return self.format == FORMAT and not (self.tables and self.procedures)


def install(connection: MysqlConnection, deadline: float) -> None:
    """Creates what is missing; refuses a layout that is newer than ours, and an unfit server."""
    found = _look(connection, deadline)
    if found.format is None:
        _run(connection, _statements(anew=False), deadline)
    elif found.is_incomplete:
        _finish(connection, deadline)
    else:
        check_format(found.format, FORMAT, "another database")
        return
    check_format(stored_format(connection, deadline), FORMAT, "another database")


def _look(connection: MysqlConnection, deadline: float) -> _Found:
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
    return _Found(
        mariadb="mariadb" in version.lower(),
        format=stored_format(connection, deadline),
        tables=len((engines or "").split(",")) == len(TABLES),
        procedures=routines == len(names),
    )


def _finish(connection: MysqlConnection, deadline: float) -> None:
    """Finishes an installation or an upgrade that was cut off, unless others have done so meanwhile.

    One manager at a time: one that is done already must not lose its procedures to the next.
    """
    with suppress(BackendUnavailable):  # some clusters refuse such locks
        connection.run(f"SELECT GET_LOCK({TURN}, {LONGEST_TURN})", deadline)
    try:
        found = _look(connection, deadline)
        if found.is_incomplete:
            _replace(connection, found, deadline)
    except Again as error:
        raise Unready(str(error)) from error  # this connection is closed, which ends its turn
    with suppress(BackendUnavailable):
        connection.run(f"SELECT RELEASE_LOCK({TURN})", deadline)


def _replace(connection: MysqlConnection, found: _Found, deadline: float) -> None:
    """Replaces all procedures: nobody knows which of them an older release has made."""
    try:
        _run(connection, _statements(anew=True, in_place=found.mariadb), deadline)
    except Denied:
        if not found.tables:
            raise
        return  # this user may only call procedures, and does not see those that it may not call


def _run(connection: MysqlConnection, statements: list[str], deadline: float) -> None:
    for statement in statements:
        with suppress(RoutineExists):  # another manager has made it meanwhile
            connection.run(statement, deadline)


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
