"""SQLite with several files: is a transaction over the fence's file and the data's committed at once?

SQLite makes a commit over several files one step by a journal that names them all. There is none if one
of the files has a write-ahead log, or keeps its journal in memory, or is not synchronized, or if the
main database is no file. A crash may then leave the data without the mark.
"""

from __future__ import annotations

from typing import Any

from .fence import not_installed
from .sql_connections import Request, Steps
from .sql_dialects import Statements

DATABASES = "SELECT name, file FROM pragma_database_list ORDER BY seq"
AT_ONCE = ("delete", "truncate", "persist")
"""Modes of a journal that can be part of a commit over several files."""
HINT = (
    "keep the fence's table in the same file as what it protects, or use PRAGMA journal_mode=DELETE"
)


def refuse_split_commits(sql: Statements, table: str, tables: tuple[str, ...]) -> Steps[None]:
    """Raises `GuaranteeError` if a crash can part the mark from what was written to `tables`.

    If none are named, they are taken to be in the main file.
    """
    files = dict((yield Request(DATABASES, rows=True)).rows)
    own = yield from _database_of(sql, table, files)
    others = set()
    for one in tables:
        others.add((yield from _database_of(sql, one, files)))
    others = (others or {"main"}) - {own}
    if not others:
        return
    for name in sorted({own, "main"} | others):
        why = yield from _shortcoming(name, files[name], name == own or name in others)
        if why:
            raise not_installed(
                f"the table {table}",
                f"it is in the database {own}, what it protects in {', '.join(sorted(others))}: "
                f"a crash may keep the one and lose the other, since {name} {why}; {HINT}",
            )


def _shortcoming(name: str, file: Any, written: bool) -> Steps[str]:
    """Returns what keeps a commit over several files from being one step; empty if nothing does.

    `written` is false for a main database that has no part in it, and only has to be a file.
    """
    if not file:
        return "is no file"
    if not written:
        return ""
    quoted = "`" + name.replace("`", "``") + "`"
    ((mode,),) = (yield Request(f"PRAGMA {quoted}.journal_mode", rows=True)).rows
    if mode not in AT_ONCE:
        return f"is in the journal mode {mode}"
    ((level,),) = (yield Request(f"PRAGMA {quoted}.synchronous", rows=True)).rows
    return "" if level else "is not synchronized (PRAGMA synchronous=OFF)"


def _database_of(sql: Statements, table: str, files: dict[str, Any]) -> Steps[str]:
    """Returns the name of the database that a table is found in, in the order in which SQLite looks."""
    name, schema = sql.place(table)
    if schema is None:
        for candidate in sorted(files, key=lambda one: one != "temp"):  # else as they were attached
            if (yield Request(sql.exists, (name, candidate), rows=True)).rows:
                return candidate
        return "main"
    return next((one for one in files if one.lower() == schema.lower()), schema)
