"""The connections that `SqlFence` works on: DB-API and SQLAlchemy, in both worlds.

The fence's own logic yields a `Request` and is sent its `Reply`, so it is written once for both worlds.
Nothing here begins, commits or rolls back: the transaction is the caller's.
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
"""The dialect of each driver's connections."""


_MAKES = {"mysql": "that of mysql.connector.connect(), without a pool"}
"""How a connection with cursors is had, where it is not by `connect()` of the driver's package."""
KEPT = "_holdfast_cursor"
WHOLE = {"stream_results": False, "yield_per": None}
"""SQLAlchemy's options for a statement of ours: a cursor of the server's own is for queries only, and
the connection may have been told to use one."""


class Request(NamedTuple):
    sql: str
    values: tuple[Any, ...] = ()
    rows: bool = False
    """True if rows are wanted, and not how many were changed."""


class Reply(NamedTuple):
    changed: int
    rows: list[Any]


Steps = Generator[Request, Reply, Result]


class ConnectionKind(NamedTuple):
    """The dialect and the driver of a connection, and its ways."""

    dialect: str
    style: str
    driver: str
    alchemy: bool = False
    asynchronous: bool = False


_kinds: dict[Any, ConnectionKind] = {}


def kind_of(connection: Any) -> ConnectionKind:
    cls = type(connection)
    found = _kinds.get(cls)
    if found is not None:
        return found
    module = module_of(cls)
    waits = inspect.iscoroutinefunction(getattr(cls, "commit", None))
    if module == "sqlalchemy":
        if not hasattr(cls, "exec_driver_sql"):  # an engine; or a session, where none is taken
            raise ConfigError(
                f"this takes a connection, not SQLAlchemy's {cls.__name__}: give it that of "
                "`with engine.connect() as connection:`"
            )
        dialect = connection.dialect
        key = (cls, dialect.name, dialect.paramstyle, dialect.driver)
        if key not in _kinds:
            _kinds[key] = ConnectionKind(
                dialect.name, dialect.paramstyle, dialect.driver, True, waits
            )
        return _kinds[key]
    name = DRIVERS.get(module)
    if module == "django":
        raise ConfigError(
            "SqlFence takes the driver's connection, not Django's: inside of atomic() give it "
            "holdfast.fences.django.database()"
        )
    if name is None:
        raise ConfigError(
            f"SqlFence does not know connections like {cls.__module__}.{cls.__name__}; it knows "
            f"SQLAlchemy's and those of {', '.join(DRIVERS)}"
        )
    if not hasattr(cls, "cursor"):
        raise ConfigError(
            f"SqlFence takes connections as DB-API has them, with cursors, not {cls.__module__}."
            f"{cls.__name__}: give it {_MAKES.get(module, f'that of {module}.connect()')}"
        )
    style = getattr(sys.modules.get(module), "paramstyle", "format")
    if module == "mysql":
        style = "format"
    _kinds[cls] = ConnectionKind(name, style, module, False, waits)
    return _kinds[cls]


def module_of(cls: type) -> str:
    """Returns the library that a connection is from, of whose class its own may be a subclass."""
    modules = [base.__module__.partition(".")[0] for base in cls.__mro__]
    if "django" in modules:
        return "django"  # also the wrapper that is in a driver's own package
    return next((one for one in modules if one == "sqlalchemy" or one in DRIVERS), modules[0])


def run(kind: ConnectionKind, connection: Any, steps: Steps[Result]) -> Result:
    refuse_pipeline(kind, connection)
    try:
        request = next(steps)
        while True:
            request = steps.send(execute(kind, connection, request))
    except StopIteration as stop:
        result: Result = stop.value
        return result


def execute(kind: ConnectionKind, connection: Any, request: Request) -> Reply:
    if kind.alchemy:
        result = connection.exec_driver_sql(request.sql, request.values, WHOLE)
        if request.rows:
            return Reply(0, [tuple(row) for row in result.fetchall()])
        changed = result.rowcount
        result.close()
        return Reply(changed, [])
    cursor = take_cursor(kind, connection)
    cursor.execute(request.sql, request.values)
    reply = Reply(cursor.rowcount, _plain(cursor.fetchall()) if request.rows else [])
    keep_cursor(kind, connection, cursor)
    return reply


def take_cursor(kind: ConnectionKind, connection: Any) -> Any:
    """Returns a cursor of our own. psycopg's are dear (a tenth of a transaction), so one is kept."""
    if kind.driver == "psycopg":
        kept = connection.__dict__.pop(KEPT, None)  # one step: no two threads get the same
        if kept is not None:
            return kept
    return new_cursor(kind, connection)


def new_cursor(kind: ConnectionKind, connection: Any) -> Any:
    """Returns a cursor whose rows are tuples, whatever the connection makes of rows for its owner."""
    if kind.driver == "psycopg":
        rows = sys.modules["psycopg.rows"].tuple_row
        if "RawCursor" in connection.cursor_factory.__name__:  # which marks values in another way
            psycopg = sys.modules["psycopg"]
            plain = psycopg.AsyncCursor if kind.asynchronous else psycopg.Cursor
            return plain(connection, row_factory=rows)
        return connection.cursor(row_factory=rows)
    if kind.driver == "pymysql":
        return connection.cursor(sys.modules["pymysql.cursors"].Cursor)
    cursor = connection.cursor()
    if kind.driver == "sqlite3":
        cursor.row_factory = None
    return cursor


def _plain(rows: Any) -> list[Any]:
    """Returns `rows` as tuples: some drivers make dicts, in the order of the columns."""
    return [tuple(row.values()) if isinstance(row, dict) else row for row in rows]


def keep_cursor(kind: ConnectionKind, connection: Any, cursor: Any) -> None:
    """Keeps a cursor that was used without an error; one that failed is left to the garbage."""
    if kind.driver == "psycopg":
        connection.__dict__[KEPT] = cursor  # with the connection, whose life it shares
    else:
        cursor.close()


async def run_async(kind: ConnectionKind, connection: Any, steps: Steps[Result]) -> Result:
    refuse_pipeline(kind, connection)
    try:
        request = next(steps)
        while True:
            request = steps.send(await execute_async(kind, connection, request))
    except StopIteration as stop:
        result: Result = stop.value
        return result


async def execute_async(kind: ConnectionKind, connection: Any, request: Request) -> Reply:
    if kind.alchemy:
        result = await connection.exec_driver_sql(request.sql, request.values, WHOLE)
        if request.rows:
            return Reply(0, [tuple(row) for row in result.fetchall()])
        changed = result.rowcount
        result.close()
        return Reply(changed, [])
    cursor = await _settled(new_cursor(kind, connection))
    try:
        await _settled(cursor.execute(request.sql, request.values))
        rows = _plain(await _settled(cursor.fetchall())) if request.rows else []
        return Reply(cursor.rowcount, rows)
    finally:
        await _settled(cursor.close())


async def _settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def refuse_pipeline(kind: ConnectionKind, connection: Any) -> None:
    """Refuses a pipeline: the next statement is sent before anybody knows that the token passed."""
    if kind.driver == "psycopg" and not kind.alchemy and connection.pgconn.pipeline_status:
        raise ConfigError(
            "this connection is in psycopg's pipeline mode, where the next statement is sent before "
            "anybody knows whether this one passed: do this before you enter the pipeline, a guard in "
            "the same transaction"
        )
