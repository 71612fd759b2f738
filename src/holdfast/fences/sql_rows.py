"""The one-statement form of `SqlFence`: the row that is written has a column of its own for the token.

So there is no other table and no further round trip. Only when nothing was changed, a look tells why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..errors import ConfigError, GuaranteeError
from . import rules
from .rules import Credential, Mark
from .sql_columns import Columns, Known, find, refuse_short
from .sql_connections import Request, Steps
from .sql_dialects import (
    QUALIFIED,
    Statements,
    encoder,
    identifier,
    text_of,
)

KNOWN_LIMIT = 10_000


class FencedRow(NamedTuple):
    """A row of the application's own table that carries its token, and the values to set in it."""

    table: str
    values: Mapping[str, Any]
    where: Mapping[str, Any]
    column: str
    lock_column: str | None

    def check(self) -> None:
        if not self.values or not self.where:
            raise ConfigError("update needs values to set, and where to set them")
        own = [_plain(self.column), _plain(self.lock_column or self.column)]
        for name in self.values:
            if _plain(str(name)) in own:
                raise ConfigError(f"the column {name} is set by the fence itself")

    def update(
        self,
        sql: Statements,
        given: Credential,
        texts: dict[Any, str],
        known: Known,
        single_use: bool,
    ) -> Steps[None]:
        """Returns the steps of the update.

        `texts` has the statements that were made before, `known` the columns that were looked at by
        this connection.
        """
        where = (self.table, self.column, self.lock_column)
        columns = known.get(where)
        if columns is None:
            self._check_names()
            columns = yield from self._find(sql, known)
        for _ in range(3):
            try:
                text = self._text(sql, given, texts, single_use, columns)
            except GuaranteeError:
                known.pop(where, None)  # a column that is refused is looked at again
                raise
            if (yield from self._update(sql, text, given, single_use, columns)):
                return
            # Nothing keeps it from being written; perhaps this is another table than was looked at.
            last, columns = columns, (yield from self._find(sql, known))
            if columns.place == last.place:
                break
        raise GuaranteeError(
            f"{self._what()} was not changed, though its token does not forbid it: look for a trigger, "
            "or a policy, that keeps rows from being updated"
        )

    def _find(self, sql: Statements, known: Known) -> Steps[Columns]:
        where = (self.table, self.column, self.lock_column)
        known.pop(where, None)
        columns = yield from find(sql, *where)
        if columns.place is not None:
            if len(known) >= KNOWN_LIMIT:
                known.clear()
            known[where] = columns
        return columns

    def _text(
        self,
        sql: Statements,
        given: Credential,
        texts: dict[Any, str],
        single_use: bool,
        columns: Columns,
    ) -> str:
        if self.lock_column and given.lock:
            refuse_short(self.table, self.lock_column, columns, given.lock)
        own = (self.column, self.lock_column, bool(given.lock), columns.place is None)
        key = (sql.dialect.name, sql.style, self.table, *self.values, None, *self.where, *own)
        text = texts.get(key)
        if text is None:
            if len(texts) >= KNOWN_LIMIT:
                texts.clear()
            text = texts[key] = self._compose(sql, given, single_use, columns.place is not None)
        return text

    def _check_names(self) -> None:
        identifier("the table", self.table, QUALIFIED)
        lock_columns = [self.lock_column] if self.lock_column else []
        for name in (*self.values, *self.where, self.column, *lock_columns):
            identifier("a column", name)

    def _compose(self, sql: Statements, given: Credential, single_use: bool, placed: bool) -> str:
        self._check_names()
        settings = [f"{sql.quoted(name)} = ?" for name in (*self.values, self.column)]
        fenced = [f"{sql.quoted(name)} = ?" for name in self.where]
        fenced.append(f"{sql.quoted(self.column)} {'<' if single_use else '<='} ?")
        if self.lock_column and given.lock:
            settings.append(f"{sql.quoted(self.lock_column)} = {sql.dialect.text}")
            exactly = sql.dialect.exactly.format(sql.quoted(self.lock_column))
            fenced.append(f"{exactly} IN ('', ?)")
        if placed:
            fenced.append(sql.dialect.placed)
        setting, meeting = ", ".join(settings), " AND ".join(fenced)
        return sql.mark(f"UPDATE {sql.quoted(self.table)} SET {setting} WHERE {meeting}")

    def _update(
        self, sql: Statements, text: str, given: Credential, single_use: bool, columns: Columns
    ) -> Steps[bool]:
        """Writes the row; returns False if it was not written, and nothing is known against it."""
        setting = [*self.values.values(), given.token]
        meeting = [*self.where.values(), given.token]
        if self.lock_column and given.lock:
            lock = encoder(sql)(given.lock)
            setting.append(lock)
            meeting.append(lock)
        look = self._look(sql)
        for _ in range(2):
            values = (*setting, *meeting, *(columns.place or ()))
            if (yield Request(text, values)).changed > 0:
                return True
            # Why? It is refused; or there is no row; or there was none, and now there is.
            rows = (yield Request(look, tuple(self.where.values()), rows=True)).rows
            if not rows:
                raise LookupError(f"there is no row to update: {self._what()}")
            marks = self._marks(rows)
            for mark in marks:
                refused = rules.refusal(self._what(), mark, given, single_use)
                if refused is not None:
                    raise refused
            if sql.dialect.counts_changes and all(mark.highest == given.token for mark in marks):
                # Perhaps all was as it should be, and only rows that really changed are counted.
                again = yield from find(sql, self.table, self.column, self.lock_column)
                return again.place == columns.place
        return False

    def _look(self, sql: Statements) -> str:
        """Returns the query for the marks of the rows, locked."""
        lock = (
            sql.dialect.exactly.format(sql.quoted(self.lock_column)) if self.lock_column else "''"
        )
        conditions = " AND ".join(f"{sql.quoted(name)} = ?" for name in self.where)
        return sql.mark(
            f"SELECT {sql.quoted(self.column)}, {lock} FROM {sql.quoted(self.table)} "
            f"WHERE {conditions}{sql.dialect.own}"
        )

    def _marks(self, rows: list[Any]) -> list[Mark]:
        if any(row[0] is None for row in rows):
            raise GuaranteeError(
                f"{self.column} is NULL in {self._what()}: make it NOT NULL DEFAULT 0"
            )
        return [Mark(int(row[0]), text_of(row[1])) for row in rows]

    def _what(self) -> str:
        named = ", ".join(f"{name}={value!r}" for name, value in self.where.items())
        return f"{self.table} {named}"


def _plain(name: str) -> str:
    return name.strip('"').lower()
