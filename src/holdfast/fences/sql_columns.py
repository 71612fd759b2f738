"""The columns of an application's own tables that tokens, versions and locks are kept in: do they fit?

Some databases cut off in silence what does not fit, or round it. So a column is looked at before it is
written to, once for each connection: another one may lead to another database. And since a session may
go from one database or schema to another, each statement names the one that was looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from ..errors import GuaranteeError
from .sql_connections import ConnectionKind, Request, Steps
from .sql_dialects import POSTGRESQL, SQLITE, Statements, encoder, text_of

WIDE = ("int8", "bigint")
"""Types of columns that keep every digit of a token."""
DECIMAL = re.compile(r"(?:numeric|decimal)(?:\((\d+)(?:,\s*(\d+))?\))?")
FLOATING = ("real", "floa", "doub")
DIGITS = 19
"""Digits of the highest token."""
BOUNDED = re.compile(r"var(char|binary)\((\d+)\)")
FIXED = re.compile(r"(?:char|character|binary|bpchar)\b(?! varying)")
"""Types that fill a text up with blanks, or cut them off."""
TINY = 255
"""Bytes of MySQL's smallest columns for long texts."""
LETTERS: dict[str, Callable[[str], bool]] = {
    "utf8mb4": lambda _: True,
    "utf16": lambda _: True,
    "utf32": lambda _: True,
    "utf8mb3": lambda text: max(text) <= "\uffff",
    "utf8": lambda text: max(text) <= "\uffff",
    "ucs2": lambda text: max(text) <= "\uffff",
    "latin1": lambda text: text.encode("cp1252", "replace").decode("cp1252") == text,
}
"""By character set of a column, whether it has all letters of a text. All others have ASCII's."""


class Columns(NamedTuple):
    """The columns of one table that a fence writes to, as they were found."""

    place: tuple[Any, ...] | None
    """The values of `Dialect.placed`; None if the statement does not ask."""
    lock_type: str
    lock_letters: str


Known = dict[tuple[str, str, str | None], Columns]
"""By table, its column for the token, and that for the lock."""

KEPT = "holdfast_columns"
_known: WeakKeyDictionary[Any, Known] = WeakKeyDictionary()


def known_by(kind: ConnectionKind, connection: Any) -> Known:
    """Returns what was found by this connection; it forgets it where that cannot be kept."""
    if kind.dialect == "sqlite":
        return {}  # a look costs no round trip there
    if kind.alchemy:
        plain = connection.sync_connection if kind.asynchronous else connection
        if plain.invalidated:
            return {}  # the statement connects anew
        info = plain.info
        kept: Known = info.setdefault(
            KEPT, {}
        )  # with the driver's connection, whose life it shares
        return kept
    try:
        return _known.setdefault(connection, {})
    except TypeError:  # its driver, in C, does not allow for that
        return {}


def find(sql: Statements, table: str, column: str, lock_column: str | None) -> Steps[Columns]:
    """Looks at the columns of a table; raises `GuaranteeError` if a token does not fit."""
    token = yield from _look(sql, table, column)
    refuse_narrow(table, column, token[0] if token else None, sql)
    lock_type, lock_letters = "", ""
    if lock_column is not None:
        found = yield from _look(sql, table, lock_column)
        if found:
            lock_type, lock_letters = text_of(found[0]).lower(), text_of(found[2]) or ""
    asked = _placed(sql, table, token[1]) if token and sql.dialect.placed else None
    return Columns(asked, lock_type, lock_letters)


def _placed(sql: Statements, table: str, found: Any) -> tuple[Any, ...]:
    if sql.dialect is not POSTGRESQL:
        return (encoder(sql)(text_of(found)),)
    name, schema = sql.place(table)
    return (f"{schema}.{name}" if schema else name), int(found)


def column_fits(sql: Statements, table: str, column: str) -> Steps[None]:
    """Raises `GuaranteeError` if the column would cut a token off: some databases do so in silence."""
    found = yield from _look(sql, table, column)
    refuse_narrow(table, column, found[0] if found else None, sql)


def column_request(sql: Statements, table: str, column: str) -> Request:
    """Returns the query for the type of a column."""
    (column_name,) = sql.parts(column)
    return Request(sql.column_type, (*sql.place(table), column_name), rows=True)


def _look(sql: Statements, table: str, column: str) -> Steps[tuple[Any, ...]]:
    rows = (yield column_request(sql, table, column)).rows
    return tuple(rows[0]) if rows else ()


def refuse_narrow(table: str, column: str, kind: Any, sql: Statements) -> None:
    """Raises `GuaranteeError` if a column of this type would cut a token off, or round it."""
    if kind is None:
        return  # the statement itself will say that there is no such column
    kind = text_of(kind)
    if not _is_wide(kind.lower(), sql):
        raise GuaranteeError(
            f"the column {column} of {table} is of the type {kind}, which does not keep every digit "
            "of a token: make it BIGINT NOT NULL DEFAULT 0"
        )


def refuse_rounding(table: str, column: str, kind: Any, sql: Statements, first: bool) -> None:
    """Raises `GuaranteeError` if a version in such a column could stay the same when it is counted on.

    `first`: it is the first one of a row, a large number. Others may be small, and so may their column
    be where a number that does not fit is an error.
    """
    if kind is None:
        return  # the statement itself will say that there is no such column
    kind = text_of(kind).lower()
    large = sql.dialect is not SQLITE and (first or sql.dialect is not POSTGRESQL)
    if any(word in kind for word in FLOATING) or (large and not _is_wide(kind, sql)):
        raise GuaranteeError(
            f"the column {column} of {table} is of the type {kind}, which does not keep every digit "
            "of a version: make it BIGINT NOT NULL DEFAULT 1"
        )


def _is_wide(kind: str, sql: Statements) -> bool:
    """Returns True if a column of this type keeps every digit of a token."""
    if sql.dialect is SQLITE:
        return "int" in kind
    decimal = DECIMAL.match(kind)
    if decimal is None:
        return kind.startswith(WIDE)
    digits, behind = decimal.groups(default="0")
    return digits == "0" or int(digits) - int(behind) >= DIGITS


def refuse_short(table: str, column: str, columns: Columns, lock: str) -> None:
    """Raises `GuaranteeError` if the column would cut the lock's identity off, or change a letter."""
    kind, letters = columns.lock_type, columns.lock_letters
    if FIXED.match(kind):
        raise GuaranteeError(
            f"the column {column} of {table} is of the type {kind}, which does not tell a lock from "
            "another that ends in blanks: make it VARCHAR or TEXT"
        )
    bounded = BOUNDED.match(kind.replace("character varying", "varchar"))
    most: int | None = None
    if bounded is not None:
        most = int(bounded[2])
    elif kind.startswith("tiny"):
        most = TINY
    size = len(lock) if bounded is not None and bounded[1] == "char" else len(lock.encode())
    if most is not None and size > most:
        raise GuaranteeError(
            f"the column {column} of {table} is of the type {kind}, which does not keep all of the "
            f"lock's identity, {lock!r:.200}: make it longer, TEXT say"
        )
    if letters and not lock.isascii() and not LETTERS.get(letters, str.isascii)(lock):
        raise GuaranteeError(
            f"the column {column} of {table} is in the character set {letters}, which does not keep "
            f"all letters of the lock's identity, {lock!r:.200}: make it utf8mb4"
        )
