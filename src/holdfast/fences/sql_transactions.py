"""The transaction of a connection that `SqlFence` works on: is one under way, and whose is it?

What a driver believes is not always so. It is asked before the fence's first statement, and again
behind it, when the server has told.
"""

from __future__ import annotations

import sys
from typing import Any

from ..errors import ConfigError
from .sql_connections import DRIVERS, ConnectionKind, Request, execute, module_of

IN_TRANSACTION = Request("SELECT @@in_transaction", rows=True)
UNKNOWN_VARIABLE, UNKNOWN_SAVEPOINT = 1193, 1305
"""MariaDB's and MySQL's numbers of these errors."""
DEAF = ("pymysql", "asyncmy", "aiomysql")
"""Drivers that are not told by a SELECT whether a transaction is under way."""


def in_transaction(kind: ConnectionKind, connection: Any) -> bool:
    """Returns True if a transaction is under way, as far as the driver can tell."""
    if kind.alchemy:
        return bool(connection.in_transaction())
    if kind.driver in ("psycopg", "psycopg2"):
        return int(connection.info.transaction_status) != 0
    if kind.driver in ("pymysql", "asyncmy", "aiomysql", "mariadb"):
        return bool(connection.server_status & 1)
    if kind.driver == "pg8000":
        return bool(connection._in_transaction)
    if kind.driver == "asyncpg":
        return bool(connection.is_in_transaction())
    if kind.driver == "MySQLdb":
        return _server_is_in_transaction(kind, connection)
    return bool(connection.in_transaction)


def _server_is_in_transaction(kind: ConnectionKind, connection: Any) -> bool:
    """Returns True if the server knows of a transaction: mysqlclient itself does not tell.

    MySQL has no variable for it. There a savepoint stays only inside a transaction; but where
    autocommit is off it always stays, and then nobody can tell.
    """
    try:
        return bool(execute(kind, connection, IN_TRANSACTION).rows[0][0])
    except Exception as error:
        if error.args[:1] != (UNKNOWN_VARIABLE,):
            raise
    if not connection.get_autocommit():
        return False
    execute(kind, connection, Request("SAVEPOINT holdfast_probe"))
    try:
        execute(kind, connection, Request("RELEASE SAVEPOINT holdfast_probe"))
    except Exception as error:
        if error.args[:1] != (UNKNOWN_SAVEPOINT,):
            raise
        return False
    return True


def begun(kind: ConnectionKind, connection: Any) -> bool:
    """Returns True if the caller may have begun a transaction, which must not be committed for him."""
    if not in_transaction(kind, connection):
        return False
    if always_open(kind, connection):
        return bool(connection.total_changes)  # one that has changed nothing may be committed
    return True


def always_open(kind: ConnectionKind, connection: Any) -> bool:
    """Returns True for connections of sqlite3 with `autocommit=False`: a commit begins the next."""
    if kind.alchemy or kind.driver not in ("sqlite3", "aiosqlite"):
        return False
    return _autocommit(connection) is False


def _autocommit(connection: Any) -> Any:
    """Returns what a connection of sqlite3 has as `autocommit`: -1 if its isolation level decides.

    It tells its own thread only, which for aiosqlite is not this one. There -1 is assumed; a connection
    that commits each statement all the same is found out behind the first one.
    """
    raw = getattr(connection, "_conn", connection)
    try:
        return getattr(raw, "autocommit", -1)  # since Python 3.12
    except sys.modules["sqlite3"].ProgrammingError:
        return -1


def _commits_each(kind: ConnectionKind, connection: Any) -> bool:
    """Returns True if each statement outside a transaction is committed by itself."""
    if kind.driver in ("sqlite3", "aiosqlite"):
        autocommit = _autocommit(connection)
        return autocommit is True or (autocommit == -1 and connection.isolation_level is None)
    if hasattr(connection, "get_autocommit"):
        return bool(connection.get_autocommit())
    return bool(connection.autocommit)


def in_two_phases(kind: ConnectionKind, connection: Any) -> bool:
    """Returns True if SQLAlchemy will prepare this transaction before it commits it."""
    if not kind.alchemy:
        return False
    if kind.asynchronous:
        connection = connection.sync_connection
    return hasattr(connection.get_transaction(), "xid")


def refuse_autocommit(kind: ConnectionKind, connection: Any) -> None:
    """Refuses autocommit: a check that is committed by itself says nothing about the write after it."""
    if kind.alchemy:
        _driver_of(kind, connection)
        if kind.asynchronous:
            connection = connection.sync_connection
        level = connection.get_execution_options().get("isolation_level")
        if level is None:  # as the engine was made with
            level = getattr(connection.dialect, "_on_connect_isolation_level", None)
        alone = level == "AUTOCOMMIT"
        if kind.dialect == "sqlite" and connection.in_nested_transaction():
            _refuse_savepoint(kind, connection)
    elif kind.driver == "mysql":  # whose connector asks the server
        alone = not in_transaction(kind, connection) and _commits_each(kind, connection)
    else:
        alone = _commits_each(kind, connection) and not in_transaction(kind, connection)
    if alone:
        raise _alone()


def _driver_of(kind: ConnectionKind, connection: Any) -> tuple[ConnectionKind, Any]:
    """Returns the driver's own connection behind SQLAlchemy's; raises if it cannot be asked.

    What SQLAlchemy believes is not enough: its driver may have been told to commit each statement.
    """
    if kind.asynchronous:
        connection = connection.sync_connection
    raw = connection.connection.driver_connection
    driver = module_of(type(raw))
    if driver not in DRIVERS and driver != "asyncpg":
        raise ConfigError(
            f"SqlFence cannot find out whether {driver}, behind SQLAlchemy, has begun a transaction; "
            f"it can ask asyncpg, {', '.join(DRIVERS)}"
        )
    return kind._replace(driver=driver, alchemy=False), raw


def open_at_driver(kind: ConnectionKind, connection: Any) -> bool:
    """Returns True if a transaction is open once a statement has been run."""
    if kind.alchemy:
        kind, connection = _driver_of(kind, connection)
    if kind.driver in (*DEAF, "MySQLdb") and not _commits_each(kind, connection):
        return True  # which they do not know after a SELECT, or never
    return in_transaction(kind, connection)


def hears_of_reads(kind: ConnectionKind, connection: Any) -> bool:
    """Returns True unless the driver, after a SELECT, goes by what it was told before that.

    The transaction may have been ended by the server, with an error that told the driver nothing.
    """
    if kind.alchemy:
        kind, connection = _driver_of(kind, connection)
    return kind.driver not in DEAF or not _commits_each(kind, connection)


def begun_at_driver(kind: ConnectionKind, connection: Any) -> bool:
    """Returns True if something was written in a transaction that is under way, or may have been."""
    if kind.alchemy:
        kind, connection = _driver_of(kind, connection)
    return in_transaction(kind, connection)


def refuse_committed(kind: ConnectionKind, connection: Any) -> None:
    """Refuses, once a statement was run, a connection that has committed it by itself.

    Before that nobody knows. SQLAlchemy believes in transactions that its driver has not begun,
    psycopg2 in one that was ended by a COMMIT or a ROLLBACK as SQL, and the drivers of MySQL and
    MariaDB in one that the server has ended, with an error, as that of a deadlock's victim.
    """
    if not open_at_driver(kind, connection):
        raise _alone()


def _refuse_savepoint(kind: ConnectionKind, connection: Any) -> None:
    """Refuses a savepoint for which no transaction was begun: its end would commit the guard.

    Python's sqlite3 begins one for a write, and not for a savepoint; whether there was such a write
    before, it does not tell.
    """
    raw = connection.connection.driver_connection
    driver = kind._replace(driver="sqlite3", alchemy=False)
    if not (_commits_each(driver, raw) or always_open(driver, raw)):
        raise ConfigError(
            "inside of begin_nested() Python's sqlite3 may have begun no transaction, and the end of "
            "the savepoint would commit the guard alone: guard before begin_nested()"
        )


def _alone() -> ConfigError:
    return ConfigError(
        "a fence guards a transaction, and this connection commits each statement by itself: "
        "begin a transaction, guard, write, commit"
    )
