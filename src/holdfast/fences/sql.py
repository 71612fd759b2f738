"""A fence in the database that it protects: the check is part of the caller's own transaction.

Its verbs, how its tables are made, and how it is proved to work. `sql_guard` lets tokens pass.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from ..errors import ConfigError, StaleToken
from . import floors, rules
from .fence import Fence, not_installed, refuse_high_floors
from .rules import Credential, FencedLease, Token
from .sql_columns import column_fits, known_by
from .sql_connections import (
    ConnectionKind,
    Request,
    Steps,
    keep_cursor,
    kind_of,
    run,
    run_async,
    take_cursor,
)
from .sql_dialects import (
    DIALECTS,
    QUALIFIED,
    SQLITE,
    Statements,
    encoder,
    fence_table,
    identifier,
    text_of,
)
from .sql_files import refuse_split_commits
from .sql_guard import SqlGuard
from .sql_hold import HeldTransaction
from .sql_marks import prune, read_floors, reset, reset_floors
from .sql_rows import FencedRow
from .sql_sessions import takes_sessions
from .sql_transactions import (
    begun,
    begun_at_driver,
    hears_of_reads,
    in_two_phases,
    open_at_driver,
    refuse_autocommit,
    refuse_committed,
)


class SqlFence(Fence):
    """A fence in PostgreSQL, MySQL, MariaDB or SQLite, by DB-API or SQLAlchemy.

    `SqlFence(connection)` makes its table if it is not there, outside of any transaction; the
    connection is not kept. `table` may have a schema, which must be there (`billing.fences`), and
    double quotes (`"My Schema"."Fences"`), on every database. With an asynchronous connection use
    `await SqlFence().install(connection)`, and await every other verb too.
    """

    def __init__(
        self, connection: Any = None, *, table: str = "holdfast_fences", single_use: bool = False
    ) -> None:
        super().__init__(single_use=single_use)
        self._table = fence_table(table)
        self._statements: dict[tuple[str, str], Statements] = {}
        self._guard = SqlGuard(single_use)
        self._installed = False
        self._updates: dict[Any, str] = {}
        """Statements of the one-statement form, as they were made."""
        if connection is not None:
            if kind_of(connection).asynchronous:
                raise ConfigError(
                    "this connection is asynchronous: fence = SqlFence(), then "
                    "await fence.install(connection)"
                )
            self.install(connection)

    # Verbs. Each returns a coroutine if the connection is asynchronous. In place of a connection it may
    # be a session of SQLAlchemy's.

    @takes_sessions
    def guard(self, connection: Any, resource: str, token: Token) -> Any:
        """Lets this token pass for the transaction that is under way; raises `StaleToken` otherwise.

        Until you commit, other writers to the resource wait. Call it first in the transaction; if it
        raises, roll back. A reader commits too: what is rolled back is not remembered.
        """
        resource = rules.resource_name(resource)
        given = rules.credential(token)
        kind = kind_of(connection)
        refuse_autocommit(kind, connection)
        statements = self._of(kind)
        tried = False
        shown = given.reader and self._guard.shown(resource, given)
        if shown and statements.dialect.forgets_shares and in_two_phases(kind, connection):
            shown = False
        request = None if shown else self._guard.request(statements, resource, given)
        unknown = statements.dialect.gaps and not shown and request is None
        first = unknown and not begun_at_driver(kind, connection)
        if request is not None and not kind.asynchronous and not kind.alchemy:
            # The common case at once: the resource is known, and the token good.
            cursor = take_cursor(kind, connection)
            cursor.execute(request.sql, request.values)
            changed = cursor.rowcount
            keep_cursor(kind, connection, cursor)
            if changed == 1:
                refuse_committed(kind, connection)
                self._guard.passed(resource, given)
                return None
            tried = True
        if shown:
            is_open = partial(open_at_driver, kind, connection)
            steps = self._guard.compare(statements, resource, given, is_open)
            if not hears_of_reads(kind, connection):
                steps = _behind_a_word(steps)
        else:
            steps = self._guard.let_pass(statements, resource, given, tried, first=first)
        return self._run(kind, connection, _in_its_transaction(kind, connection, steps))

    def hold(self, connection: Any, resource: str, token: Token) -> HeldTransaction:
        """`with fence.hold(connection, resource, token):` guards, and at the end looks once more.

        Raises `GuaranteeError` if the transaction was committed in between, as DDL does on MySQL and
        MariaDB, and `executescript` of sqlite3: roll back then. Two round trips more than `guard`.
        Commit it yourself, behind the body. In asyncio: `async with`.
        """
        rules.writer(token)  # a reader's lease has no body to hold for
        guard = partial(self.guard, resource=resource, token=token)
        return HeldTransaction(connection, resource, guard)

    @takes_sessions
    def update(
        self,
        connection: Any,
        table: str,
        values: Mapping[str, Any],
        where: Mapping[str, Any],
        token: Token,
        *,
        column: str = "fencing_token",
        lock_column: str | None = None,
    ) -> Any:
        """Checks and writes at once: `UPDATE table SET values WHERE where AND column <= token`.

        For a row that has a column (`BIGINT NOT NULL DEFAULT 0`) for the token, and perhaps one
        (text, `NOT NULL DEFAULT ''`) for the lock's identity. No other table and no further round
        trip. Raises `StaleToken`, or `LookupError` if there is no such row.
        """
        given = rules.writer(token)
        what = FencedRow(table, values, where, column, lock_column)
        what.check()
        kind = kind_of(connection)
        known = known_by(kind, connection)
        steps = what.update(self._of(kind), given, self._updates, known, self.single_use)
        return self._run(kind, connection, steps)

    @takes_sessions
    def highest(self, connection: Any, resource: str) -> Any:
        """Returns the highest token of a writer; 0 if none was seen. It locks nothing."""
        kind = kind_of(connection)
        steps = self._highest(self._of(kind), rules.resource_name(resource))
        return self._run(kind, connection, steps)

    @takes_sessions
    def reset(self, connection: Any, resource: str, *, by: str, to: int = 0) -> Any:
        """Forgets the highest token and the lock, and begins again at `to`; returns the old token.

        For when a store's tokens have fallen, or the resource moved to another lock. Stop the
        writers first. It is kept in the table `…_resets`. Commit it yourself.
        """
        kind = kind_of(connection)
        resource = rules.resource_name(resource)
        steps = reset(self._of(kind), resource, *rules.beginning(by, to))
        return self._run(kind, connection, steps)

    @takes_sessions
    def prune(self, connection: Any, older_than: float) -> Any:
        """Forgets resources at which no token was shown for so many seconds; returns how many.

        Old tokens are kept out all the same: what is forgotten counts as the least that a
        resource new to this fence has seen. So give it longer than a holder goes without a write.
        Commit it yourself.
        """
        kind = kind_of(connection)
        refuse_autocommit(kind, connection)
        check = partial(refuse_committed, kind, connection)
        steps = prune(self._of(kind), rules.age(older_than), check)
        return self._run(kind, connection, steps)

    @takes_sessions
    def reset_floors(
        self,
        connection: Any,
        *,
        by: str,
        lock: str | FencedLease | None = None,
        to: int = 0,
    ) -> Any:
        """Sets what pruned resources have left behind, for one lock or for all, to `to`.

        For when a number that no store has granted was pruned, and shuts out everybody. Stop the
        writers first: until holders have written, old tokens may pass. It is kept in the table
        `…_resets`, with an empty resource. Commit it yourself.
        """
        by, to = rules.beginning(by, to)
        kind = kind_of(connection)
        refuse_autocommit(kind, connection)
        check = partial(refuse_committed, kind, connection)
        steps = reset_floors(self._of(kind), by, floors.lock_named(lock), to, check)
        return self._run(kind, connection, steps)

    def install(self, connection: Any) -> Any:
        """Makes the tables if they are not there, and commits."""
        kind = kind_of(connection)
        busy = begun(kind, connection)
        steps = self._install(self._of(kind), busy)
        if kind.asynchronous:
            return self._install_async(kind, connection, steps, busy)
        self._run(kind, connection, steps)
        if not busy:
            connection.commit()
        return self

    @takes_sessions
    def verify(self, connection: Any, *tables: str, column: str = "fencing_token") -> Any:
        """Proves that the fence works here; raises `GuaranteeError` otherwise, and says why.

        It runs in the transaction under way, or begins one, and leaves nothing behind. `tables` are
        those that it protects: they must be in the same database (on SQLite, in files that are
        committed at once) and know transactions, and if they have a `column` for tokens, it must keep
        every digit.
        """
        kind = kind_of(connection)
        refuse_autocommit(kind, connection)
        for table in tables:
            identifier("a table", table, QUALIFIED)
        identifier("a column", column)
        return self._run(kind, connection, self._verify(self._of(kind), tables, column))

    def shortcoming(self) -> str:
        if self._installed:
            return ""
        return "a SqlFence whose table is there: SqlFence(connection), or install(connection)"

    # What they do, step by step.

    def _of(self, kind: ConnectionKind) -> Statements:
        key = (kind.dialect, kind.style)
        found = self._statements.get(key)
        if found is None:
            if kind.dialect not in DIALECTS:
                raise ConfigError(f"SqlFence does not know the database {kind.dialect!r}")
            dialect = DIALECTS[kind.dialect]
            found = Statements(dialect, self._table, kind.style, self.single_use)
            self._statements[key] = found
        return found

    def _run(self, kind: ConnectionKind, connection: Any, steps: Steps[Any]) -> Any:
        if kind.asynchronous:
            return run_async(kind, connection, steps)
        return run(kind, connection, steps)

    def _highest(self, sql: Statements, resource: str) -> Steps[int]:
        rows = (yield Request(sql.peek, (encoder(sql)(resource),), rows=True)).rows
        return int(rows[0][0]) if rows else 0

    def _install(self, sql: Statements, busy: bool) -> Steps[None]:
        # Where DDL commits by itself the table may stand, and its first row not yet.
        create = (
            not (yield Request(sql.exists, sql.place(self._table), rows=True)).rows
            or not (yield Request(sql.installed, rows=True)).rows
        )
        if create:
            self._refuse_busy(busy)
            for text in sql.create:
                yield Request(text)
            yield Request(sql.first_floors, (encoder(sql)("{}"),))
        for query, change in sql.changes:
            if not (yield Request(query, sql.place(self._table), rows=True)).rows:
                self._refuse_busy(busy)
                yield Request(change)
        self._installed = True

    def _refuse_busy(self, busy: bool) -> None:
        if busy:
            raise ConfigError(
                f"the table {self._table} has to be made, which is not done inside your "
                "transaction: give SqlFence a connection that has none under way"
            )

    async def _install_async(
        self, kind: ConnectionKind, connection: Any, steps: Steps[None], busy: bool
    ) -> SqlFence:
        await run_async(kind, connection, steps)
        if not busy:
            await connection.commit()
        return self

    def _verify(self, sql: Statements, tables: tuple[str, ...], column: str) -> Steps[None]:
        for table in (self._table, *tables):
            if not (yield Request(sql.exists, sql.place(table), rows=True)).rows:
                raise not_installed("this database", f"it has no table {table}")
            if sql.engine:
                ((engine,),) = (yield Request(sql.engine, sql.place(table), rows=True)).rows
                if engine is None:
                    raise not_installed(
                        f"the table {table}", "it is a view: name the tables that are behind it"
                    )
                if text_of(engine).lower() not in ("innodb", "rocksdb"):
                    raise not_installed(
                        f"the table {table}",
                        f"its engine, {text_of(engine)}, has no transactions",
                    )
        if sql.dialect is SQLITE:
            yield from refuse_split_commits(sql, self._table, tables)
        yield from column_fits(sql, self._table, "token")
        yield from column_fits(sql, self._table, "reader")
        for table in tables:
            yield from column_fits(sql, table, column)
        refuse_high_floors(f"the table {self._table}", (yield from read_floors(sql)))
        probe = f"holdfast probe {os.urandom(6).hex()}"
        yield Request(sql.begin, (encoder(sql)(probe), 0, 0))
        guard = SqlGuard(self.single_use)
        yield from guard.let_pass(sql, probe, Credential(2**62), there=True)
        try:
            yield from guard.let_pass(sql, probe, Credential(2**62 - 1), there=True)
        except StaleToken:
            yield Request(sql.forget(1), (encoder(sql)(probe),))
            return
        raise not_installed(f"the table {self._table}", "it let an older token pass")


def _behind_a_word(steps: Steps[None]) -> Steps[None]:
    """Sends a statement that does nothing first: from its reply the driver learns of an end."""
    yield Request("DO 0")
    yield from steps


def _in_its_transaction(kind: ConnectionKind, connection: Any, steps: Steps[None]) -> Steps[None]:
    yield from steps
    refuse_committed(kind, connection)
