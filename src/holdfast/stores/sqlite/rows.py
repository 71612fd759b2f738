"""The ledger's rows in SQLite, inside the transaction that is open on the connection."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from ...clock import BootClock
from ...entries import Claim, Entry, WakeUp
from ...model import Change, Label, in_free_slot
from ...settlement import ELECTION
from . import changes, tokens
from .presence import Presence

COLUMNS = (
    "owner, name, seq, token, expires, ttl, weight, capacity, kind, barge, confirmed, claim, "
    "patience, since, process, address, tether, kept_until, host, pid, label"
)
_OF = f"SELECT {COLUMNS} FROM entry WHERE name = ? ORDER BY waiting, seq"
# The holder of a mutex has a key of its own; all others are found by their owner.
_FIND = (
    f"SELECT {COLUMNS} FROM entry WHERE name = ? AND waiting = 0 AND seq = 0 AND owner = ? "
    f"UNION ALL SELECT {COLUMNS} FROM entry INDEXED BY entry_by_owner "
    "WHERE name = ? AND owner = ? AND (waiting = 1 OR capacity > 1)"
)
_TOGETHER = 32
"""Waiters in one statement, which takes half the time of one statement for each."""
_KEEP_WAITING = (
    "UPDATE entry INDEXED BY entry_by_owner SET expires = ? + patience "
    "WHERE name = ? AND waiting = 1 AND barge = 0 AND expires > ? "
    f"AND owner IN ({', '.join('?' * _TOGETHER)})"
)
_ARRIVAL = "SELECT coalesce(max(seq), 0) + 1 FROM entry WHERE name = ? AND waiting = 1"
_DROP_HELD = (
    "DELETE FROM entry WHERE name = ? AND waiting = 0 AND owner = ? AND expires > ? "
    f"AND kind <> '{ELECTION}'"
)
_ADD = (
    f"INSERT INTO entry ({COLUMNS}, waiting) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_SAVE = (
    "UPDATE entry SET waiting = ?, seq = ?, token = ?, expires = ?, confirmed = ?, since = ? "
    "WHERE name = ? AND waiting = ? AND seq = ? AND owner = ?"
)
_REWRITE = (
    "UPDATE entry SET weight = ?, label = ?, expires = ?, confirmed = ?, process = ?, tether = ?, "
    "kept_until = ? WHERE name = ? AND waiting = 0 AND seq = ? AND owner = ?"
)
_DROP = "DELETE FROM entry WHERE name = ? AND waiting = ? AND seq = ? AND owner = ?"
_HELD = (
    "SELECT token, seq FROM entry WHERE name = ? AND waiting = 0 AND seq = 0 AND owner = ? "
    "AND confirmed = 1 AND expires > ? "
    "UNION ALL SELECT token, seq FROM entry INDEXED BY entry_by_owner "
    "WHERE name = ? AND owner = ? AND waiting = 0 AND capacity > 1 "
    "AND confirmed = 1 AND expires > ?"
)
_RENEW_HELD = (
    "UPDATE entry SET expires = max(expires, ?) WHERE name = ? AND waiting = 0 AND seq = ?"
)

_clock = BootClock()


class SqliteRows:
    """The rows of the store, see `entries.Rows`. Made for each transaction; `now` is its beginning."""

    __slots__ = (
        "_alive",
        "_base",
        "_ceiling",
        "_durable",
        "_execute",
        "_last",
        "_now",
        "_presence",
    )

    def __init__(
        self,
        connection: sqlite3.Connection,
        presence: Presence,
        counters: Sequence[int],
        durable: bool,
    ) -> None:
        self._execute = connection.execute
        self._presence = presence
        self._alive: dict[str, bool] = {}
        """The processes that were asked about in this transaction."""
        self._last, self._base, self._ceiling = counters
        self._durable = durable
        self._now = _clock.now()

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return time.time()

    def of(self, name: str) -> Iterator[Entry]:
        cursor = self._execute(_OF, (name,))
        try:
            for row in cursor:
                yield _entry(row)
        finally:
            cursor.close()

    def find(self, name: str, owner: str) -> Entry | None:
        row = self._execute(_FIND, (name, owner, name, owner)).fetchone()
        return None if row is None else _entry(row)

    def renew_held(self, claim: Claim) -> int | None:
        name, owner, ttl = claim
        row = self._execute(_HELD, (name, owner, self._now) * 2).fetchone()
        if row is None:
            return None
        token: int
        token, seq = row
        self._execute(_RENEW_HELD, (self._now + ttl, name, seq))
        return token

    def keep_waiting(self, name: str, owners: Sequence[str]) -> bool:
        kept = 0
        for start in range(0, len(owners), _TOGETHER):
            some = owners[start : start + _TOGETHER]
            rest = [some[0]] * (_TOGETHER - len(some))  # named twice, and counted once
            done = self._execute(_KEEP_WAITING, (self._now, name, self._now, *some, *rest))
            kept += done.rowcount
        return kept == len(owners)

    def alive(self, entry: Entry) -> bool:
        process = entry.process
        if not process:
            return True
        if process not in self._alive:
            self._alive[process] = self._presence.is_alive(process)
        return self._alive[process] or (
            bool(entry.tether) and self._presence.is_tethered(entry.tether)
        )

    def arrival(self, name: str) -> int:
        number: int
        (number,) = self._execute(_ARRIVAL, (name,)).fetchone()
        return number

    def mint(self, taken: Container[int] = (), permits: int = 1, above: int = 0) -> int:
        clock = self._base + tokens.boot_microseconds()
        token = in_free_slot(max(self._last + 1, above + 1, clock), taken, permits)
        if token >= self._ceiling:
            if not self._durable:
                raise tokens.CeilingReached
            self._ceiling = max(clock + tokens.HEADROOM, token + tokens.LEAST_HEADROOM)
            self._execute("UPDATE store SET ceiling = ?", (self._ceiling,))
        self._last = token
        self._execute("UPDATE store SET token = ?", (token,))
        return token

    def add(self, entry: Entry) -> None:
        entry.seq = _key_number(entry)
        host, pid, text = entry.label
        self._execute(
            _ADD,
            (
                entry.owner,
                entry.name,
                entry.seq,
                entry.token,
                entry.expires,
                entry.ttl,
                entry.weight,
                entry.capacity,
                entry.kind,
                entry.barge,
                entry.confirmed,
                entry.claim,
                entry.patience,
                entry.since,
                entry.process,
                entry.address,
                entry.tether,
                entry.kept_until,
                host,
                pid,
                text,
                entry.token == 0,
            ),
        )

    def save(self, entry: Entry, was_waiting: bool) -> None:
        seq = _key_number(entry)
        self._execute(
            _SAVE,
            (
                entry.token == 0,
                seq,
                entry.token,
                entry.expires,
                entry.confirmed,
                entry.since,
                entry.name,
                was_waiting,
                entry.seq,
                entry.owner,
            ),
        )
        entry.seq = seq

    def rewrite(self, entry: Entry) -> None:
        self._execute(
            _REWRITE,
            (
                entry.weight,
                entry.label.text,
                entry.expires,
                entry.confirmed,
                entry.process,
                entry.tether,
                entry.kept_until,
                entry.name,
                entry.seq,
                entry.owner,
            ),
        )

    def note(self, name: str, change: Change) -> Iterable[WakeUp]:
        return changes.note(self._execute, name, change, self._now)

    def changes(self, name: str, after: int) -> Iterable[Change]:
        return changes.since(self._execute, name, after)

    def observe(self, name: str, observer: WakeUp, until: float) -> None:
        changes.observe(self._execute, name, observer, until)

    def unobserve(self, name: str, owner: str) -> None:
        changes.unobserve(self._execute, name, owner)

    def drop_held(self, name: str, owner: str) -> bool:
        return self._execute(_DROP_HELD, (name, owner, self._now)).rowcount == 1

    def drop(self, entry: Entry) -> None:
        self._execute(_DROP, (entry.name, entry.token == 0, entry.seq, entry.owner))


def entries_of(connection: sqlite3.Connection) -> list[Entry]:
    """Returns the entries of all locks."""
    return [_entry(row) for row in connection.execute(f"SELECT {COLUMNS} FROM entry")]


def _key_number(entry: Entry) -> int:
    """Returns the number in the key of the entry's row: unique among holders, and among waiters."""
    if entry.token == 0:
        return entry.seq
    return 0 if entry.capacity == 1 else entry.token


def _entry(row: tuple[Any, ...]) -> Entry:
    *fields, host, pid, text = row
    fields.append(Label(host, pid, text))
    return Entry(*fields)
