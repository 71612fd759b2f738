"""One connection to a MySQL or MariaDB, over PyMySQL: every wait on it has a deadline."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pymysql

from ...clock import Clock
from ...errors import ConfigError
from ...interrupts import let_through
from ...refusals import reason
from ..sql.connections import Row, Value
from ..sql.failures import Late, Lost, Unready
from .address import Address
from .failures import refusal
from .sockets import Deadline, connect

CONNECT_SHARE = 2.0
"""Seconds that one of several addresses has to answer, at most."""
SESSION = (
    "SET SESSION autocommit = 1, completion_type = 0, sql_mode = ''",
    "SET SESSION sql_safe_updates = 0, sql_big_selects = 1, sql_select_limit = 18446744073709551615, "
    "group_concat_max_len = 16777216",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
)
"""The statements that begin every connection, whatever the server's defaults are."""


class MysqlConnection:
    """A connection, and the calls of procedures on it. One caller at a time."""

    def __init__(self, address: Address, clock: Clock) -> None:
        self._address = address
        self._clock = clock
        self._deadline = Deadline(clock.now)
        self._connection: Any = None

    def open(self, deadline: float) -> None:
        """Connects, to the first address that answers."""
        try:
            places = self._address.places(deadline, self._clock.now)
        except OSError as error:
            let_through(error)
            raise Lost(f"the name of the host cannot be resolved: {error}") from error
        reason: Exception = Lost("it has no address")
        for number, place in enumerate(places, start=1):
            until = deadline
            if number < len(places):
                until = min(deadline, self._clock.now() + CONNECT_SHARE)
            self._deadline.at = until
            try:
                self._connect(place.family, place.where)
                self._deadline.at = deadline
                for statement in SESSION:
                    self.run(statement, deadline)
                return
            except (Lost, Unready) as error:
                self.close()
                reason = error
        raise reason

    def _connect(self, family: int, where: Any) -> None:
        address = self._address
        settings = dict(address.settings)
        if address.tls == "required":
            settings["ssl"] = address.tls_context()
        else:  # PyMySQL's own context would read the certificates of all the world's authorities
            settings["ssl_disabled"] = True
        try:
            sock = connect(family, where, self._deadline)
        except TimeoutError as error:
            let_through(error)
            raise Late("it did not answer in time") from error
        except OSError as error:
            let_through(error)
            raise Lost(f"it cannot be reached: {reason(error)}") from error
        try:
            connection = self._connection = pymysql.Connection(
                host=address.host,
                port=address.port,
                charset="utf8mb4",
                autocommit=None,
                defer_connect=True,
                program_name="holdfast",
                **settings,
            )
            if address.tls == "preferred" and hasattr(connection, "_ssl_required"):  # since 1.2
                connection.ssl, connection.ctx = True, address.tls_context()
            connection._secure = bool(address.unix_socket)
            connection.connect(sock)
        except pymysql.err.MySQLError as error:
            sock.close()
            raise self._failure(error) from None
        except (OSError, RuntimeError) as error:  # a login that needs another package
            sock.close()
            let_through(error)
            raise Lost(f"it cannot be logged in to: {error}") from error
        except BaseException:
            sock.close()
            raise

    def call(self, procedure: str, values: Sequence[Value], deadline: float) -> list[Row]:
        """Calls a procedure, which has a transaction of its own; returns its rows."""
        arguments: list[str] = []
        for is_list, group in groupby(values, lambda value: not isinstance(value, str | int)):
            beside = list(group)
            # Lists beside each other are the columns of one list.
            arguments += [_table(beside)] if is_list else map(_literal, beside)
        return self.run(f"CALL holdfast_{procedure}({', '.join(arguments)})", deadline)

    def run(self, statement: str, deadline: float) -> list[Row]:
        """Runs one statement; returns its rows, once all of it has been done."""
        connection = self._connection
        if connection is None:
            raise Lost("the connection is closed")
        self._deadline.at = deadline
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                rows = cursor.fetchall()
                while cursor.nextset():
                    pass
        except pymysql.err.MySQLError as error:
            raise self._failure(error) from None
        return [tuple(map(_value, row)) for row in rows or ()]

    def _failure(self, error: pymysql.err.MySQLError) -> Exception:
        """Returns the exception to raise for one of PyMySQL's."""
        if error.__context__ is not None and _caught_within(error.__context__, error):
            let_through(error.__context__)  # which PyMySQL took for one of the socket
        cause: Any = getattr(error, "original_exception", None)
        if getattr(cause, "verify_message", ""):
            return ConfigError(
                f"{self._address} shows a certificate that is refused: {cause.verify_message}"
            )
        code, message = error.args[:2] if len(error.args) > 1 else (0, "")
        failure = refusal(code, str(message), self._address)
        if isinstance(failure, Lost) and self._clock.now() >= self._deadline.at:
            return Late("it did not answer in time")
        return failure

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection._force_close()  # without a word: a peer that vanished would not read it


def _caught_within(context: BaseException, error: BaseException) -> bool:
    """Returns whether the code that raised `error` has caught `context`, and not a caller before it."""
    caught, trace = context.__traceback__, error.__traceback__
    while trace is not None and caught is not None:
        if trace.tb_frame is caught.tb_frame:
            return True
        trace = trace.tb_next
    return False


def _value(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _literal(value: Any) -> str:
    """Returns a value as no mode or character set of the server reads otherwise: by its digits."""
    return f"X'{value.encode().hex()}'" if isinstance(value, str) else str(int(value))


def _table(columns: Any) -> str:
    """Returns lists as one list of rows, in JSON, with hexadecimal digits in place of text."""
    rows = (",".join(map(_cell, row)) for row in zip(*columns, strict=True))
    return "'[" + ",".join(f"[{row}]" for row in rows) + "]'"


def _cell(value: Any) -> str:
    return f'"{value.encode().hex()}"' if isinstance(value, str) else str(int(value))
