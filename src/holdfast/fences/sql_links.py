"""How `SqlFence` talks to the connections that people have: DB-API and SQLAlchemy, in both worlds.

The fence's own logic yields `Ask`s and is sent `Answer`s, so it is written once; what is here carries
them to a connection. Nothing here begins, commits or rolls back: the transaction is the caller's.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Generator
from typing import Any, NamedTuple, TypeVar

from ..errors import ConfigError

Result = TypeVar("Result")

DRIVERS = {
    "sqlite3": "sqlite",
    "aiosqlite": "sqlite",
    "psycopg": "postgresql",
    "psycopg2": "postgresql",
    "pg8000": "postgresql",
    "pymysql": "mysql",
    "MySQLdb": "mysql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "asyncmy": "mysql",
    "aiomysql": "mysql",
}
"""Whose connections are of which dialect."""


KEPT = "_holdfast_cursor"


class Ask(NamedTuple):
    sql: str
    values: tuple[Any, ...] = ()
    rows: bool = False
    """Whether rows are wanted, or how many were changed."""


class Answer(NamedTuple):
    changed: int
    rows: list[Any]


Steps = Generator[Ask, Answer, Result]


class Link(NamedTuple):
    """What there is to know of one kind of connection."""

    dialect: str
    style: str
    driver: str
    alchemy: bool = False
    asynchronous: bool = False


_links: dict[Any, Link] = {}


def link_to(connection: Any) -> Link:
    kind = type(connection)
    found = _links.get(kind)
    if found is not None:
        return found
    module = _module(kind)
    waits = inspect.iscoroutinefunction(getattr(kind, "commit", None))
    if module == "sqlalchemy":
        if not hasattr(kind, "exec_driver_sql"):  # an engine, or a session
            raise ConfigError(
                f"SqlFence takes a connection, not SQLAlchemy's {kind.__name__}; "
                "for a session give session.connection()"
            )
        dialect = connection.dialect
        key = (kind, dialect.name, dialect.paramstyle)
        if key not in _links:
            _links[key] = Link(dialect.name, dialect.paramstyle, dialect.driver, True, waits)
        return _links[key]
    name = DRIVERS.get(module)
    if name is None:
        raise ConfigError(
            f"SqlFence does not know connections like {kind.__module__}.{kind.__name__}; it knows "
            f"SQLAlchemy's and those of {', '.join(DRIVERS)}"
        )
    style = getattr(sys.modules.get(module), "paramstyle", "format")
    if module == "mysql":
        style = "format"
    _links[kind] = Link(name, style, module, False, waits)
    return _links[kind]


def _module(kind: type) -> str:
    """Whose it is: the library's, of which it may be a subclass."""
    modules = [base.__module__.partition(".")[0] for base in kind.__mro__]
    return next((one for one in modules if one == "sqlalchemy" or one in DRIVERS), modules[0])


def run(link: Link, connection: Any, steps: Steps[Result]) -> Result:
    refuse_pipeline(link, connection)
    try:
        ask = next(steps)
        while True:
            ask = steps.send(execute(link, connection, ask))
    except StopIteration as stop:
        result: Result = stop.value
        return result


def execute(link: Link, connection: Any, ask: Ask) -> Answer:
    if link.alchemy:
        result = connection.exec_driver_sql(ask.sql, ask.values)
        if ask.rows:
            return Answer(0, [tuple(row) for row in result.fetchall()])
        changed = result.rowcount
        result.close()
        return Answer(changed, [])
    cursor = take_cursor(link, connection)
    cursor.execute(ask.sql, ask.values)
    answer = Answer(cursor.rowcount, _plain(cursor.fetchall()) if ask.rows else [])
    keep_cursor(link, connection, cursor)
    return answer


def take_cursor(link: Link, connection: Any) -> Any:
    """A cursor of our own. psycopg's are dear to make (a tenth of a transaction), so one is kept."""
    if link.driver == "psycopg":
        kept = connection.__dict__.pop(KEPT, None)  # one step: no two threads get the same
        if kept is not None:
            return kept
    return new_cursor(link, connection)


def new_cursor(link: Link, connection: Any) -> Any:
    """One whose rows are tuples, whatever the connection makes of rows for its owner."""
    if link.driver == "psycopg":
        return connection.cursor(row_factory=sys.modules["psycopg.rows"].tuple_row)
    if link.driver == "pymysql":
        return connection.cursor(sys.modules["pymysql.cursors"].Cursor)
    cursor = connection.cursor()
    if link.driver == "sqlite3":
        cursor.row_factory = None
    return cursor


def _plain(rows: Any) -> list[Any]:
    """Of the other drivers some make dicts, in the order of the columns."""
    return [tuple(row.values()) if isinstance(row, dict) else row for row in rows]


def keep_cursor(link: Link, connection: Any, cursor: Any) -> None:
    """After it was used without an error; one that failed is left to the garbage."""
    if link.driver == "psycopg":
        connection.__dict__[KEPT] = cursor  # with the connection, whose life it shares
    else:
        cursor.close()


async def run_async(link: Link, connection: Any, steps: Steps[Result]) -> Result:
    refuse_pipeline(link, connection)
    try:
        ask = next(steps)
        while True:
            ask = steps.send(await execute_async(link, connection, ask))
    except StopIteration as stop:
        result: Result = stop.value
        return result


async def execute_async(link: Link, connection: Any, ask: Ask) -> Answer:
    if link.alchemy:
        result = await connection.exec_driver_sql(ask.sql, ask.values)
        if ask.rows:
            return Answer(0, [tuple(row) for row in result.fetchall()])
        changed = result.rowcount
        result.close()
        return Answer(changed, [])
    cursor = await _settled(new_cursor(link, connection))
    try:
        await _settled(cursor.execute(ask.sql, ask.values))
        rows = _plain(await _settled(cursor.fetchall())) if ask.rows else []
        return Answer(cursor.rowcount, rows)
    finally:
        await _settled(cursor.close())


async def _settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def in_transaction(link: Link, connection: Any) -> bool:
    """Whether something is under way that has still to be committed, as far as can be told."""
    if link.alchemy:
        return bool(connection.in_transaction())
    if link.driver in ("psycopg", "psycopg2"):
        return int(connection.info.transaction_status) != 0
    if link.driver in ("pymysql", "asyncmy", "aiomysql", "mariadb"):
        return bool(connection.server_status & 1)
    if link.driver == "pg8000":
        return bool(connection._in_transaction)
    return bool(getattr(connection, "in_transaction", False))


def _commits_each(link: Link, connection: Any) -> bool:
    """Whether each statement is committed by itself, where no transaction is under way."""
    if link.driver in ("sqlite3", "aiosqlite"):
        return connection.isolation_level is None or getattr(connection, "autocommit", -1) is True
    if hasattr(connection, "get_autocommit"):
        return bool(connection.get_autocommit())
    return bool(connection.autocommit)


def refuse_pipeline(link: Link, connection: Any) -> None:
    """There the next statement is sent before anybody knows whether the token has passed."""
    if link.driver == "psycopg" and not link.alchemy and connection.pgconn.pipeline_status:
        raise ConfigError(
            "this connection is in psycopg's pipeline mode, where the next statement is sent before "
            "anybody knows whether this one passed: do this before you enter the pipeline, a guard in "
            "the same transaction"
        )


def refuse_autocommit(link: Link, connection: Any) -> None:
    """A check that is committed by itself says nothing about the write that comes after it."""
    if link.alchemy:
        if link.asynchronous:
            connection = connection.sync_connection
        level = connection.get_execution_options().get("isolation_level")
        if level is None:  # as the engine was made with
            level = getattr(connection.dialect, "_on_connect_isolation_level", None)
        alone = level == "AUTOCOMMIT"
    elif link.driver == "mysql":  # whose connector asks the server
        alone = not in_transaction(link, connection) and _commits_each(link, connection)
    else:
        alone = _commits_each(link, connection) and not in_transaction(link, connection)
    if alone:
        raise _alone()


ALCHEMY_DRIVERS = {
    "pysqlite": "sqlite3",
    **{name: name for name in ("aiosqlite", "psycopg", "psycopg2", "pymysql")},
}
"""Those of SQLAlchemy's that can be asked, by their name as `in_transaction` knows it."""


def open_at_driver(link: Link, connection: Any) -> bool:
    """Whether a transaction is open once a statement has been run; True also if nobody can tell.

    What SQLAlchemy believes is not enough: its driver may have been told to commit each statement.
    """
    if not link.alchemy:
        return in_transaction(link, connection)
    driver = ALCHEMY_DRIVERS.get(link.driver)
    if driver is None:
        return True
    if link.asynchronous:
        connection = connection.sync_connection
    raw = connection.connection.driver_connection
    if driver == "pymysql" and not raw.get_autocommit():
        return True  # of a SELECT it does not hear that it has begun one
    return in_transaction(link._replace(driver=driver, alchemy=False), raw)


def refuse_committed(link: Link, connection: Any) -> None:
    if not open_at_driver(link, connection):
        raise _alone()


def _alone() -> ConfigError:
    return ConfigError(
        "a fence guards a transaction, and this connection commits each statement by itself: "
        "begin a transaction, guard, write, commit"
    )
