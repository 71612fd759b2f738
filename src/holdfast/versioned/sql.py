"""A row with a column for its version: `UPDATE … SET version = version + 1 WHERE version = ?`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ..errors import ConfigError
from ..fences.sql_columns import column_request, refuse_rounding
from ..fences.sql_connections import (
    Reply,
    Request,
    execute,
    execute_async,
    kind_of,
    refuse_pipeline,
)
from ..fences.sql_dialects import DIALECTS, QUALIFIED, Statements, identifier
from ..fences.sql_transactions import always_open, in_transaction
from .register import Conflict, Register, Steps, Versioned


class SqlVersioned(Register):
    """Rows of one table of yours, by DB-API or SQLAlchemy, in both worlds.

    The table has a unique `key`, a `value`, and a `version` (`BIGINT NOT NULL DEFAULT 1`). Every verb
    is a transaction of its own on the given connection, which must have none under way: a change
    that is part of a larger transaction needs no version, only `SELECT … FOR UPDATE`.
    """

    def __init__(
        self,
        connection: Any,
        table: str,
        *,
        key: str = "key",
        value: str = "value",
        version: str = "version",
    ) -> None:
        identifier("the table", table, QUALIFIED)
        for name in (key, value, version):
            identifier("a column", name)
        self._connection = connection
        self._kind = kind_of(connection)
        self.asynchronous = self._kind.asynchronous
        self._table = table
        sql = Statements(DIALECTS[self._kind.dialect], "unused", self._kind.style, False)
        self._sql = sql
        self._version = version
        self._version_type: Sequence[Any] = ()
        """The row that tells it, once it was asked for."""
        table, key, value, version = map(sql.quoted, (table, key, value, version))
        self._select = sql.mark(f"SELECT {value}, {version} FROM {table} WHERE {key} = ?")
        self._replace = sql.mark(
            f"UPDATE {table} SET {value} = ?, {version} = {version} + 1 "
            f"WHERE {key} = ? AND {version} = ?"
        )
        # How MySQL counts a row that was there already depends on how its client connected; so
        # there we have it say so.
        absent = "" if sql.dialect.name == "mysql" else sql.dialect.absent
        self._insert = sql.mark(
            f"INSERT INTO {table} ({key}, {value}, {version}) VALUES (?, ?, ?){absent}"
        )

    def _get(self, key: Any) -> Steps[Versioned]:
        reply = yield from self._alone(Request(self._select, (key,), rows=True))
        return Versioned(*reply.rows[0]) if reply.rows else Versioned(None, None)

    def _check_version(self, first: bool) -> Steps[None]:
        """Raises `GuaranteeError` if a version would be cut off, or rounded: it would stay the same."""
        rows = self._version_type
        if not rows:
            request = column_request(self._sql, self._table, self._version)
            rows = (yield from self._alone(request)).rows
        kind = rows[0][0] if rows else None
        self._version_type = ()  # one that is refused is looked at again
        refuse_rounding(self._table, self._version, kind, self._sql, first)
        self._version_type = rows

    def _put(self, key: Any, value: Any, version: Any) -> Steps[int]:
        yield from self._check_version(version is None)
        if version is None:
            # Not from 1: a row that was deleted and made again must not be taken for the old one.
            first = time.time_ns() // 1000
            made = Conflict(f"{self._table} {key}", "somebody else has made it")
            try:
                reply = yield from self._alone(Request(self._insert, (key, value, first)))
            except Exception as error:
                if type(error).__name__ != "IntegrityError":
                    raise
                if (yield from self._get(key)).version is None:
                    raise
                raise made from None
            if reply.changed != 1:
                raise made
            return first
        reply = yield from self._alone(Request(self._replace, (value, key, version)))
        if reply.changed != 1:
            raise Conflict(f"{self._table} {key}", f"its version is not {version} any more")
        return int(version) + 1

    def _alone(self, request: Request) -> Steps[Reply]:
        """In a transaction of its own."""
        connection, kind = self._connection, self._kind
        refuse_pipeline(kind, connection)
        if always_open(kind, connection):
            raise ConfigError(
                "this connection has a transaction under way at all times (autocommit=False), and each "
                "verb of SqlVersioned is one of its own: give it a connection of the other kind"
            )
        if in_transaction(kind, connection):
            raise ConfigError(
                "this connection has a transaction under way; commit it first, since each verb of "
                "SqlVersioned is a transaction of its own"
            )
        perform = execute_async if self.asynchronous else execute
        try:
            reply: Reply = yield lambda: perform(kind, connection, request)
            yield connection.commit
        except Exception as error:
            yield self._roll_back
            if collided(error):
                why = "another transaction was in its way, and the database ended this one"
                raise Conflict(self._table, why) from error
            raise
        except GeneratorExit:  # nobody takes requests any more
            if not self.asynchronous:
                with suppress(Exception):
                    connection.rollback()
            raise
        except BaseException:
            with suppress(Exception):  # the interrupt, or the cancellation, is what counts
                yield self._roll_back
            raise
        return reply

    def _roll_back(self) -> Any:
        """Ends the transaction, in asyncio even if the caller is cancelled once more."""
        if not self.asynchronous:
            return self._connection.rollback()
        from asyncio import ensure_future, shield

        return shield(ensure_future(self._connection.rollback()))


COLLISIONS = ("40001", "40P01")
"""SQL states of a serialization failure and a deadlock: nothing was done, and it may be tried again."""
MYSQL_COLLISIONS = (1213, 1205, 1020)
"""A deadlock; a lock that was waited for too long; a row that has changed since it was read."""


def collided(error: BaseException) -> bool:
    """Returns True if the database undid a transaction because of another one at the same time."""
    error = getattr(error, "orig", None) or error  # as SQLAlchemy wraps it
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if state is None and error.args and isinstance(error.args[0], dict):
        state = error.args[0].get("C")  # pg8000
    number = getattr(error, "errno", None) or (error.args[0] if error.args else None)
    return state in COLLISIONS or (isinstance(number, int) and number in MYSQL_COLLISIONS)
