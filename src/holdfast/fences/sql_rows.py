"""The one-statement form of `SqlFence`: the row that is written has a column of its own for the token.

So there is no other table and no further round trip. Only when nothing was changed, a look tells why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..errors import ConfigError, GuaranteeError
from . import rules
from .rules import Credential, Mark
from .sql_connections import Request, Steps
from .sql_dialects import (
    QUALIFIED,
    Statements,
    encoder,
    identifier,
    refuse_narrow,
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
        self, sql: Statements, given: Credential, known: dict[Any, str], single_use: bool
    ) -> Steps[None]:
        """Returns the steps of the update. `known` has the statements that were made before."""
        columns = (self.column, self.lock_column, bool(given.lock))
        key = (sql.dialect.name, sql.style, self.table, *self.values, None, *self.where, *columns)
        text = known.get(key)
        if text is None:
            if len(known) >= KNOWN_LIMIT:
                known.clear()
            text = self._compose(sql, given, single_use)
            yield from column_fits(sql, self.table, self.column)
            known[key] = text
        yield from self._update(sql, text, given, single_use)

    def _compose(self, sql: Statements, given: Credential, single_use: bool) -> str:
        identifier("the table", self.table, QUALIFIED)
        lock_columns = [self.lock_column] if self.lock_column else []
        for name in (*self.values, *self.where, self.column, *lock_columns):
            identifier("a column", name)
        settings = [f"{sql.quoted(name)} = ?" for name in (*self.values, self.column)]
        fenced = [f"{sql.quoted(name)} = ?" for name in self.where]
        fenced.append(f"{sql.quoted(self.column)} {'<' if single_use else '<='} ?")
        if self.lock_column and given.lock:
            settings.append(f"{sql.quoted(self.lock_column)} = ?")
            exactly = sql.dialect.exactly.format(sql.quoted(self.lock_column))
            fenced.append(f"{exactly} IN ('', ?)")
        setting, meeting = ", ".join(settings), " AND ".join(fenced)
        return sql.mark(f"UPDATE {sql.quoted(self.table)} SET {setting} WHERE {meeting}")

    def _update(
        self, sql: Statements, text: str, given: Credential, single_use: bool
    ) -> Steps[None]:
        setting = [*self.values.values(), given.token]
        meeting = [*self.where.values(), given.token]
        if self.lock_column and given.lock:
            setting.append(given.lock)
            meeting.append(encoder(sql)(given.lock))
        lock = sql.quoted(self.lock_column) if self.lock_column else "''"
        conditions = " AND ".join(f"{sql.quoted(name)} = ?" for name in self.where)
        look = sql.mark(
            f"SELECT {sql.quoted(self.column)}, {lock} FROM {sql.quoted(self.table)} "
            f"WHERE {conditions}{sql.dialect.own}"
        )
        named = ", ".join(f"{name}={value!r}" for name, value in self.where.items())
        what = f"{self.table} {named}"
        for _ in range(2):
            if (yield Request(text, (*setting, *meeting))).changed > 0:
                return
            # Why? It is refused; or there is no row; or there was none, and now there is.
            rows = (yield Request(look, tuple(self.where.values()), rows=True)).rows
            if not rows:
                raise LookupError(f"there is no row to update: {what}")
            if any(row[0] is None for row in rows):
                raise GuaranteeError(f"{self.column} is NULL in {what}: make it NOT NULL DEFAULT 0")
            marks = [Mark(int(row[0]), text_of(row[1])) for row in rows]
            for mark in marks:
                refused = rules.refusal(what, mark, given, single_use)
                if refused is not None:
                    raise refused
            if sql.dialect.counts_changes and all(mark.highest == given.token for mark in marks):
                return  # all was as it should be, and only rows that really changed are counted
        raise GuaranteeError(
            f"{what} was not changed, though its token does not forbid it: look for a trigger, or a "
            "policy, that keeps rows from being updated"
        )


def column_fits(sql: Statements, table: str, column: str) -> Steps[None]:
    """Raises `GuaranteeError` if the column would cut a token off: some databases do so in silence."""
    (column_name,) = sql.parts(column)
    rows = (yield Request(sql.column_type, (*sql.place(table), column_name), rows=True)).rows
    refuse_narrow(table, column, text_of(rows[0][0]) if rows else None, sql)


def _plain(name: str) -> str:
    return name.strip('"').lower()
