"""The marks and floors in the table of a `SqlFence`: how they are read, reset and pruned."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from . import floors, rules
from .fence import not_installed
from .floors import Floor
from .rules import Mark
from .sql_connections import Request, Steps
from .sql_dialects import Statements, encoder, text_of

BATCH = 500
"""Rows that one statement deletes."""


def mark_of(token: Any, lock: Any, reader: Any) -> Mark:
    return Mark(int(token), text_of(lock), int(reader))


def look(sql: Statements, name: Any, own: bool = False) -> Steps[Mark | None]:
    """Returns the mark of a resource, locked against writers; with `own`, against everybody."""
    rows = (yield Request(sql.look_own if own else sql.look, (name,), rows=True)).rows
    return mark_of(*rows[0]) if rows else None


def read_floors(sql: Statements) -> Steps[dict[str, Floor]]:
    rows = (yield Request(sql.floors, rows=True)).rows
    if not rows:
        raise not_installed(f"the table {sql.table}", "its first row is missing: install()")
    return floors.loaded(json.loads(text_of(rows[0][0])))


def _set_floors(sql: Statements, were: dict[str, Floor], become: dict[str, Floor]) -> Steps[None]:
    for contents in (become, were):
        text = json.dumps(contents)
        yield Request(sql.set_floors, (encoder(sql)(text),))
        kept = text_of((yield Request(sql.floors, rows=True)).rows[0][0])
        if contents is become and kept == text:
            return
    raise not_installed(
        f"the table {sql.table}", "its column lock_id is too small for the floors: install()"
    )


def reset(sql: Statements, resource: str, by: str, to: int) -> Steps[int]:
    text = encoder(sql)
    name = text(resource)
    mark = yield from look(sql, name)
    if mark is None:
        yield Request(sql.begin, (name, to, 0))
        mark = Mark()
    yield Request(sql.reset, (to, name))
    yield Request(sql.audit, (text(by), name, mark.highest, text(mark.lock)))
    return mark.highest


def reset_floors(
    sql: Statements, by: str, lock: str | None, to: int, check: Callable[[], None]
) -> Steps[None]:
    """Sets floors anew. `check` raises if no transaction keeps them locked meanwhile."""
    text = encoder(sql)
    yield Request(sql.lock_floors)
    check()
    known = yield from read_floors(sql)
    become, were = floors.reset(known, lock, to)
    yield from _set_floors(sql, known, become)
    for of, floor in were:
        highest = max(floor.highest, floor.reader)
        yield Request(sql.audit, (text(by), text(""), highest, text(of)))


def prune(sql: Statements, older_than: float, check: Callable[[], None]) -> Steps[int]:
    """Forgets old marks. `check` raises if no transaction keeps them locked meanwhile."""
    text = encoder(sql)
    yield Request(sql.lock_floors)
    check()
    known = yield from read_floors(sql)
    latest = rules.latest()
    rows = (yield Request(sql.old, (older_than, latest, latest), rows=True)).rows
    if sql.dialect.gaps:
        found, rows = rows, []
        for name, *_ in found:
            request = Request(sql.lock_old, (older_than, latest, latest, name), rows=True)
            rows += (yield request).rows
    pruned = [mark_of(*mark) for _, *mark in rows]
    # The floors first: whatever fails from here on, no mark is gone without having raised them.
    risen = floors.raised(known, pruned)
    yield from _set_floors(sql, known, risen)
    # All at once would be too many values for some databases. InnoDB may read a list of keys by a scan
    # of the table, and lock all of it: there one by one.
    batch = 1 if sql.dialect.gaps else BATCH
    for start in range(0, len(rows), batch):
        names = tuple(text(text_of(name)) for name, *_ in rows[start : start + batch])
        yield Request(sql.forget(len(names)), names)
    highest = max(floors.highest(risen.values())[:2])
    rows = (yield Request(sql.living, (highest, highest), rows=True)).rows
    living = [mark_of(*mark) for mark in rows]
    settled = floors.raised(known, pruned, living)
    if settled != risen:
        yield from _set_floors(sql, risen, settled)
    return len(pruned)
