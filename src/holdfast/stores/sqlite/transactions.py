"""The frame of every step: through the gate, one write transaction, then the wake-ups.

A step is over in some ten microseconds; a process that is frozen inside one holds up the others, which
is declared and bounded by their own deadlines. Wake-ups are sent after the transaction stands and the
gate is open again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, TypeVarTuple

from ...entries import Entry, WakeUp
from ...ledger import Ledger
from .connection import StoreConnection, roll_back
from .file import unavailable
from .mailbox import send
from .rows import SqliteRows
from .tokens import CeilingReached

Result = TypeVar("Result")
Args = TypeVarTuple("Args")
Blockers = Mapping[str, Sequence[Entry]]
"""For each owner that is first in its queue, the holders on whose death it would be next."""

_NO_BLOCKERS: Blockers = {}


class FolderReplaced(Exception):
    """Raised inside a transaction that finds the store bound to another "-live" folder than ours."""


class Transactions(StoreConnection):
    """The transactions on one connection, for any number of threads."""

    def _step(
        self,
        step: Callable[[Ledger, SqliteRows, *Args], Result],
        args: tuple[*Args],
        deadline: float,
        shortcut: Callable[[sqlite3.Connection, *Args], Result | None] | None = None,
    ) -> tuple[Result, Blockers]:
        """Runs `step` in one transaction: everything that it does, or nothing of it.

        `shortcut` is tried before it: the same step for the common case, see `shortcuts`. If it
        returns None it has done nothing.
        """
        self._refuse_fork()
        self._gate.enter(deadline)
        try:
            connection = self._checked_connection()
            if shortcut is not None:
                quick = shortcut(connection, *args)
                if quick is not None:
                    return quick, _NO_BLOCKERS
            result, ledger = self._transaction(connection, step, args)
        except sqlite3.Error as error:
            self._refuse_fork()
            raise unavailable(self.path, error) from error
        finally:
            # Here, and not in a method: an interrupt may come at the very entry of one.
            try:
                self._gate.leave()
            except BaseException:
                try:
                    self._gate.leave()
                finally:
                    self._gate.leave()
                raise
        for wakeup in ledger.wakeups:
            self._send(wakeup)
        return result, ledger.blockers

    def _send(self, wakeup: WakeUp) -> str | None:
        """Sends a wake-up; returns what became of it, or None if the waiter has no address."""
        if not wakeup.address:
            return None
        return send(self.folder, wakeup.address, b"%s %d" % (wakeup.owner.encode(), wakeup.token))

    def _transaction(
        self,
        connection: sqlite3.Connection,
        step: Callable[[Ledger, SqliteRows, *Args], Result],
        args: tuple[*Args],
    ) -> tuple[Result, Ledger]:
        """Runs `step` in one transaction, on a new connection if the store's folder was replaced."""
        try:
            return self._durable_if_needed(connection, step, args)
        except FolderReplaced:
            return self._durable_if_needed(self._reopen(), step, args)

    def _durable_if_needed(
        self,
        connection: sqlite3.Connection,
        step: Callable[[Ledger, SqliteRows, *Args], Result],
        args: tuple[*Args],
    ) -> tuple[Result, Ledger]:
        """Runs `step`; and again, with a commit that waits for the disk, if it raises the ceiling."""
        try:
            return self._attempt(connection, step, args, durable=False)
        except CeilingReached:
            connection.execute("PRAGMA synchronous = FULL")
            try:
                return self._attempt(connection, step, args, durable=True)
            finally:
                connection.execute("PRAGMA synchronous = NORMAL")

    def _attempt(
        self,
        connection: sqlite3.Connection,
        step: Callable[[Ledger, SqliteRows, *Args], Result],
        args: tuple[*Args],
        durable: bool,
    ) -> tuple[Result, Ledger]:
        assert self._presence is not None
        try:
            connection.execute("BEGIN IMMEDIATE")
            folder_id, *counters = connection.execute(
                "SELECT live, token, base, ceiling FROM store"
            ).fetchone()
            if folder_id != self._folder_id:
                raise FolderReplaced
            self._mint.remember(*counters[1:])
            rows = SqliteRows(connection, self._presence, counters, durable)
            ledger = Ledger(rows)
            result = step(ledger, rows, *args)
            connection.execute("COMMIT")
        except BaseException:
            try:
                roll_back(connection)
            finally:  # another interrupt may come at the very entry of it
                roll_back(connection)
            raise
        return result, ledger
