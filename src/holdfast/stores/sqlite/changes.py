"""The changes of elections, and those who observe them, inside the transaction that is open."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import Any

from ...entries import CHANGES_KEPT, CHANGES_KEPT_FOR, HIGHEST_CHANGE, WakeUp
from ...model import Change, Label

Execute = Callable[[str, tuple[Any, ...]], sqlite3.Cursor]

_ADD = (
    "INSERT INTO change (name, number, token, owner, host, pid, label, since) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_PRUNE = (
    "DELETE FROM change WHERE name = ? AND number <= "
    "(SELECT number FROM change WHERE name = ? ORDER BY number DESC LIMIT 1 OFFSET ?)"
)
_COLUMNS = "number, token, owner, host, pid, label, since"
_SINCE = f"SELECT {_COLUMNS} FROM change WHERE name = ? AND number > ? ORDER BY number"
_LAST = f"SELECT {_COLUMNS} FROM change WHERE name = ? ORDER BY number DESC LIMIT 1"
_OBSERVERS = (
    "SELECT owner, process, address FROM observer WHERE name = ? AND expires > ? ORDER BY owner"
)


def note(execute: Execute, name: str, change: Change, now: float) -> Iterable[WakeUp]:
    """Adds a change, keeps the last ones, and returns the wake-ups of the observers."""
    number, token, owner, (host, pid, text), since = change
    execute(_ADD, (name, number, token, owner, host, pid, text, since))
    execute(_PRUNE, (name, name, CHANGES_KEPT))
    rows = execute(_OBSERVERS, (name, now)).fetchall()
    return [WakeUp(name, owner, process, address, 0) for owner, process, address in rows]


def since(execute: Execute, name: str, after: int) -> Iterable[Change]:
    """Returns the changes above the number `after`, in order; for 0 the last alone."""
    known = min(after, HIGHEST_CHANGE)
    rows = execute(_SINCE, (name, known)) if after else execute(_LAST, (name,))
    return [
        Change(number, token, owner, Label(host, pid, text), since)
        for number, token, owner, host, pid, text, since in rows.fetchall()
    ]


def observe(execute: Execute, name: str, observer: WakeUp, until: float) -> None:
    """Has `observer` woken by the next change, until that time on the boot clock."""
    execute(
        "INSERT OR REPLACE INTO observer (name, owner, process, address, expires) "
        "VALUES (?, ?, ?, ?, ?)",
        (name, observer.owner, observer.process, observer.address, until),
    )


def unobserve(execute: Execute, name: str, owner: str) -> None:
    """Ends what `observe` began."""
    execute("DELETE FROM observer WHERE name = ? AND owner = ?", (name, owner))


def clean(execute: Execute, now: float, wall: float) -> None:
    """Removes observers that have not asked again, and the changes of elections of long ago."""
    execute("DELETE FROM observer WHERE expires <= ?", (now,))
    execute(
        "DELETE FROM change WHERE name IN "
        "(SELECT name FROM change GROUP BY name HAVING max(since) < ?)",
        (wall - CHANGES_KEPT_FOR,),
    )
