"""One connection to a PostgreSQL, over libpq: every wait on it has a deadline."""

from __future__ import annotations

import select
from collections.abc import Sequence
from functools import cache
from typing import Any

from psycopg import OperationalError, pq

from ...clock import Clock
from ...errors import ConfigError
from ...forked_sockets import end_in_children
from ...interrupts import let_through
from ..sql.connections import Row, Value
from ..sql.failures import Late, Lost, Unready
from .address import Address
from .failures import ISOLATION, READ_ONLY, RECOVERING, credentials_refused, refusal, unreachable

INTEGERS, BOOLEAN = frozenset({20, 21, 23}), 16
"""The numbers of PostgreSQL's types."""
ENCODINGS = ("UTF8", "SQL_ASCII")
PREPARE_AFTER = 3
"""Calls of a procedure on one connection, after which its statement is prepared there."""
UNPREPARED = ("26000", "0A000")
"""A prepared statement is not there: a pooler has another server's connection, or forgot it; or its
result has changed."""
CONNECT_SHARE = 2.0
"""Seconds that one of several hosts has to answer, at most: the next one may be the primary."""


class PostgresConnection:
    """A connection, and the calls of procedures on it. One caller at a time.

    A call is a statement that commits by itself. Where another isolation level than READ COMMITTED is
    the default, or transactions are read-only by default, it has a transaction around it, and all of
    that is sent at once. A statement that is sent often is prepared, until one turns out to be lost:
    a pooler may have no room for them.
    """

    def __init__(self, address: Address, clock: Clock) -> None:
        self._address = address
        self._clock = clock
        self._connection: pq.abc.PGconn | None = None
        self._reading: select.poll | None = None
        """The poll object that waits until the socket of an open connection is readable."""
        self._explicit = False
        """True if a call needs a transaction that says how it is to be."""
        self._prepares = True
        self._calls: dict[bytes, int] = {}
        """The calls of each statement, up to the one that prepared it."""
        end_in_children(self)

    def open(self, deadline: float) -> None:
        """Connects, to the first host that answers and is as it has to be."""
        reason: Exception = Lost("it has no address")
        try:
            attempts = list(self._address.attempts(deadline, self._clock.now))
        except OSError as error:
            let_through(error)
            raise Lost(f"the name of the host cannot be resolved: {error}") from error
        for number, conninfo in enumerate(attempts, start=1):
            until = deadline
            if number < len(attempts):
                until = min(deadline, self._clock.now() + CONNECT_SHARE)
            try:
                self._connect(conninfo, until)
                return
            except (Lost, Unready) as error:
                self.close()
                reason = error
        raise reason

    def _connect(self, conninfo: bytes, deadline: float) -> None:
        connection = self._connection = pq.PGconn.connect_start(conninfo)
        if connection.status == pq.ConnStatus.BAD:
            raise self._unreachable(connection)
        polling: int = pq.PollingStatus.WRITING
        while polling != pq.PollingStatus.OK:
            if polling == pq.PollingStatus.FAILED:
                raise self._unreachable(connection)
            writing = polling == pq.PollingStatus.WRITING
            self._until_ready(connection, select.POLLOUT if writing else select.POLLIN, deadline)
            polling = connection.connect_poll()
        connection.nonblocking = 1
        if connection.parameter_status(b"in_hot_standby") == b"on":
            raise refusal(READ_ONLY, "", self._address)
        self._reading = select.poll()
        self._reading.register(connection.socket, select.POLLIN)
        encoding = (connection.parameter_status(b"server_encoding") or b"UTF8").decode()
        if encoding not in ENCODINGS:
            raise ConfigError(
                f"the database at {self._address} has the encoding {encoding}, which cannot hold every "
                "name; create one with ENCODING 'UTF8'"
            )

    def _unreachable(self, connection: pq.abc.PGconn) -> Exception:
        if connection.needs_password:
            return credentials_refused(self._address)
        names = tuple(name.decode() for name in (connection.user, connection.db) if name)
        return unreachable(connection.get_error_message(), self._address, names)

    def fileno(self) -> int:
        return self._usable().socket

    @property
    def process(self) -> int:
        """The id of the server's process, as the greeting told it. A pooler tells one of its own."""
        return self._usable().backend_pid

    def call(self, procedure: str, values: Sequence[Value], deadline: float) -> list[Row]:
        """Calls a procedure in a transaction of its own; returns its rows."""
        statement, name = _statement(procedure, len(values))
        texts = [value.encode() if isinstance(value, str) else _text(value) for value in values]
        return self.run(statement, texts, deadline, self._prepared(statement, name, deadline))

    def run(
        self, statement: bytes, values: Sequence[bytes], deadline: float, name: bytes = b""
    ) -> list[Row]:
        """Runs one statement, which is prepared if it has a name; returns its rows."""
        result = self._send(statement, values, deadline, name)
        code = _code(result)
        if name and code in UNPREPARED:
            self._prepares, name = False, b""
            result = self._send(statement, values, deadline, name)
            code = _code(result)
        if code in (ISOLATION, READ_ONLY) and not self._explicit:
            self._explicit = True
            result = self._send(statement, values, deadline, name)
            code = _code(result)
        if code == RECOVERING and self._explicit:
            code = READ_ONLY
        if code:
            raise refusal(code, _message(result), self._address)
        return _rows(result)

    def script(self, text: str, deadline: float) -> None:
        """Runs several statements in one transaction, whatever the defaults for transactions are."""
        connection = self._usable()
        mode = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;\n"
        connection.send_query((mode + text).encode())
        results = self._results(connection, deadline)
        if _code(results[0]) == RECOVERING:
            raise refusal(READ_ONLY, "", self._address)
        for result in results:
            code = _code(result)
            if code:
                raise refusal(code, _message(result), self._address)

    def notes(self) -> list[tuple[str, str]]:
        """Returns the channels and texts of the messages that have come; raises `Lost`."""
        connection = self._usable()
        try:
            connection.consume_input()
        except OperationalError as error:
            raise Lost("the connection that listens broke") from error
        notes = []
        while (note := connection.notifies()) is not None:
            notes.append((note.relname.decode(), note.extra.decode()))
        return notes

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._reading = None
        if connection is not None:
            connection.finish()

    def _usable(self) -> pq.abc.PGconn:
        if self._connection is None:
            raise Lost("the connection is closed")
        return self._connection

    def _prepared(self, statement: bytes, name: bytes, deadline: float) -> bytes:
        """Returns `name` if the statement is prepared, or is so now; else nothing."""
        calls = self._calls.get(statement, 0)
        if not self._prepares or calls > PREPARE_AFTER:
            return name if self._prepares else b""
        self._calls[statement] = calls + 1
        if calls < PREPARE_AFTER:
            return b""
        connection = self._usable()
        connection.send_prepare(name, statement)
        self._prepares = not _code(self._results(connection, deadline)[-1])
        return name if self._prepares else b""

    def _send(
        self, statement: bytes, values: Sequence[bytes], deadline: float, name: bytes
    ) -> pq.abc.PGresult:
        """Sends a statement and waits for its result, or for the refusal of it or of its commit."""
        connection = self._usable()
        if not self._explicit:
            self._send_one(connection, statement, values, name)
            return self._results(connection, deadline)[-1]
        # In one round trip: nothing is locked while this client stands still.
        connection.enter_pipeline_mode()
        connection.send_query_params(b"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", [])
        self._send_one(connection, statement, values, name)
        connection.send_query_params(b"COMMIT", [])
        connection.pipeline_sync()
        results = self._results(connection, deadline, until_sync=True)
        connection.exit_pipeline_mode()
        if connection.transaction_status == pq.TransactionStatus.INERROR:
            # The COMMIT was skipped, as all that follows a refusal in a pipeline.
            connection.send_query_params(b"ROLLBACK", [])
            self._results(connection, deadline)
        for result in results:
            if _code(result):
                return result
        return results[1]

    @staticmethod
    def _send_one(
        connection: pq.abc.PGconn, statement: bytes, values: Sequence[bytes], name: bytes
    ) -> None:
        if name:
            connection.send_query_prepared(name, values)
        else:
            connection.send_query_params(statement, values)

    def _results(
        self, connection: pq.abc.PGconn, deadline: float, until_sync: bool = False
    ) -> list[pq.abc.PGresult]:
        """Writes what is to be sent, and reads all results of it."""
        results: list[pq.abc.PGresult] = []
        try:
            while connection.flush():
                self._until_ready(connection, select.POLLOUT | select.POLLIN, deadline)
                connection.consume_input()
            while True:
                while connection.is_busy():
                    self._until_ready(connection, select.POLLIN, deadline)
                    connection.consume_input()
                result = connection.get_result()
                if result is not None:
                    if result.status == pq.ExecStatus.PIPELINE_SYNC:
                        return results
                    results.append(result)
                elif not until_sync:
                    break
        except OperationalError as error:
            raise Lost("the connection broke") from error
        if not results:
            raise Lost("the connection broke")
        return results

    def _until_ready(self, connection: pq.abc.PGconn, events: int, deadline: float) -> None:
        """Waits until the socket is ready; raises `Late` at the deadline.

        If that is over already, this process may have stood still: what has come meanwhile is read.
        """
        left = max(deadline - self._clock.now(), 0.0)
        if events != select.POLLIN or self._reading is None:
            poll = select.poll()
            poll.register(connection.socket, events)
        else:
            poll = self._reading
        if not poll.poll(left * 1000 + 1):
            raise Late("it did not answer in time")


@cache
def _statement(procedure: str, parameters: int) -> tuple[bytes, bytes]:
    """Returns the statement that calls a procedure, and the name under which it is prepared.

    Whoever uses the same connection of a pooler may have prepared it: the same name is the same
    statement.
    """
    marks = ", ".join(f"${number}" for number in range(1, parameters + 1))
    name = f"holdfast_{procedure}_{parameters}"
    return f"SELECT * FROM holdfast_{procedure}({marks})".encode(), name.encode()


def _code(result: pq.abc.PGresult) -> str:
    """Returns the SQLSTATE of a refusal; empty if it is none."""
    if result.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        return ""
    return (result.error_field(pq.DiagnosticField.SQLSTATE) or b"08006").decode()


def _message(result: pq.abc.PGresult) -> str:
    text = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"the connection broke"
    return text.decode(errors="replace")


def _rows(result: pq.abc.PGresult) -> list[Row]:
    columns = [(column, result.ftype(column)) for column in range(result.nfields)]
    return [
        tuple([_value(result.get_value(row, column), kind) for column, kind in columns])
        for row in range(result.ntuples)
    ]


def _value(text: bytes | None, kind: int) -> Any:
    if text is None:
        return None
    if kind in INTEGERS:
        return int(text)
    if kind == BOOLEAN:
        return text == b"t"
    return text.decode()


def _text(value: Value) -> bytes:
    """Returns a value as PostgreSQL reads it: a parameter, which is never part of the statement."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if isinstance(value, int):
        return b"%d" % value
    return ("{" + ",".join(map(_element, value)) + "}").encode()


def _element(value: str | int) -> str:
    if isinstance(value, int):
        return str(value)
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
