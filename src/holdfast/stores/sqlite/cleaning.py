"""Removal of what is of no use any more: rows that ended long ago, files of dead processes."""

from __future__ import annotations

import os
import sqlite3
import time

from ...interrupts import let_through
from ...settlement import ELECTION
from . import changes
from .lockfiles import age, unlink
from .presence import Presence

EVERY = 60.0
"""Seconds between two rounds of `clean` by one process that renews leases, or detaches them."""

_ABANDONED_AFTER = 3600.0  # seconds; a draft of this age was left by a process that was killed


def clean(connection: sqlite3.Connection, presence: Presence, now: float) -> list[str]:
    """Removes rows that ended long ago, and files of dead processes. Called inside a transaction.

    Returns the elections with such rows: to be settled, since the end of a term is noted.
    """
    execute = connection.execute
    # Only what ended some time ago: the steps themselves see to the rest, and hand over.
    ended = f"SELECT DISTINCT name FROM entry WHERE expires < ? AND kind = '{ELECTION}'"
    elections = {name for (name,) in execute(ended, (now - EVERY,))}
    execute(f"DELETE FROM entry WHERE expires < ? AND kind <> '{ELECTION}'", (now - EVERY,))
    processes = execute("SELECT DISTINCT process FROM entry WHERE process <> ''").fetchall()
    for (process,) in processes:
        if not presence.is_alive(process):
            # Not where there are waiters: their heartbeats remove it, and admit the next.
            held = (
                "SELECT name, owner, tether, kind FROM entry AS e WHERE process = ? AND waiting = 0 "
                "AND NOT EXISTS (SELECT 1 FROM entry WHERE name = e.name AND waiting = 1)"
            )
            for name, owner, tether, kind in execute(held, (process,)).fetchall():
                if tether and presence.is_tethered(tether):
                    continue
                if kind == ELECTION:
                    elections.add(name)
                else:
                    execute("DELETE FROM entry WHERE name = ? AND owner = ?", (name, owner))
    changes.clean(execute, now, time.time())
    sweep(presence)
    return sorted(elections)


def sweep(presence: Presence) -> int:
    """Removes what dead processes have left in the folder; returns how many files.

    To be called inside the gate, now and then: it lists the folder and probes every process in it.
    """
    removed = 0
    alive: dict[str, bool] = {}
    try:
        files = os.listdir(presence.directory)
    except OSError as error:
        let_through(error)
        return 0
    for file in files:
        stem, _, kind = file.rpartition(".")
        path = f"{presence.directory}/{file}"
        if kind == "new":
            # Not probed: it may be a draft of our own process, in another thread.
            dead = age(path) > _ABANDONED_AFTER
        elif kind == "tether":
            dead = not presence.is_tethered(stem)
        elif kind in ("live", "sock"):
            process = stem.rpartition("-")[0] if kind == "sock" else stem
            if process not in alive:
                alive[process] = presence.is_alive(process)
            dead = not alive[process]
        else:
            continue
        if dead and unlink(path):
            removed += 1
    return removed
