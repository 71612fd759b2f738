"""The ledger's rows in SQLite, inside the transaction that is open on the connection."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from typing import Any

from ..clock import BootClock
from ..errors import ConfigError
from ..ledger import Entry
from ..model import Label
from .presence import Presence

HEADROOM = 60_000_000
"""How far ahead of the tokens, in µs, the ceiling is put on the disk: one write in a minute."""

_COLUMNS = (
    "owner, name, seq, token, expires, ttl, weight, capacity, kind, barge, confirmed, since, "
    "process, address, tether, host, pid, label"
)
_OF = f"SELECT {_COLUMNS} FROM entry WHERE name = ? ORDER BY waiting, seq"
_FIND = f"SELECT {_COLUMNS} FROM entry WHERE owner = ?"
_ARRIVAL = "SELECT coalesce(max(seq), 0) + 1 FROM entry WHERE name = ? AND waiting = 1"
_MINT = "UPDATE store SET token = max(token + 1, ?) RETURNING token, ceiling"
_ADD = (
    f"INSERT INTO entry ({_COLUMNS}, waiting) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_SAVE = (
    "UPDATE entry SET waiting = ?, token = ?, expires = ?, confirmed = ?, since = ? WHERE owner = ?"
)
_DROP = "DELETE FROM entry WHERE owner = ?"

_clock = BootClock()


class CeilingReached(Exception):
    """The next token needs a higher ceiling on the disk first: begin again, durably."""


class SqliteRows:
    """See `ledger.Rows`. One for each transaction; `now` is read once, when it begins."""

    __slots__ = ("_durable", "_execute", "_now", "_presence")

    def __init__(
        self, connection: sqlite3.Connection, presence: Presence, durable: bool
    ) -> None:
        self._execute = connection.execute
        self._presence = presence
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

    def find(self, owner: str) -> Entry | None:
        row = self._execute(_FIND, (owner,)).fetchone()
        return None if row is None else _entry(row)

    def alive(self, entry: Entry) -> bool:
        return (
            not entry.process
            or self._presence.is_alive(entry.process)
            or (bool(entry.tether) and self._presence.is_tethered(entry.tether))
        )

    def arrival(self, name: str) -> int:
        number: int
        (number,) = self._execute(_ARRIVAL, (name,)).fetchone()
        return number

    def mint(self) -> int:
        token: int
        token, ceiling = self._execute(_MINT, (time.time_ns() // 1000,)).fetchone()
        if token >= ceiling:
            if not self._durable:
                raise CeilingReached
            self._execute("UPDATE store SET ceiling = ?", (token + HEADROOM,))
        return token

    def add(self, entry: Entry) -> None:
        host, pid, text = entry.label
        try:
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
                    entry.since,
                    entry.process,
                    entry.address,
                    entry.tether,
                    host,
                    pid,
                    text,
                    int(entry.token == 0),
                ),
            )
        except sqlite3.IntegrityError:
            raise ConfigError(
                f"the owner id {entry.owner!r} is already used for another lock; every attempt "
                "needs an owner id of its own",
                owner=entry.owner,
            ) from None

    def save(self, entry: Entry) -> None:
        self._execute(
            _SAVE,
            (
                int(entry.token == 0),
                entry.token,
                entry.expires,
                entry.confirmed,
                entry.since,
                entry.owner,
            ),
        )

    def drop(self, entry: Entry) -> None:
        self._execute(_DROP, (entry.owner,))


def _entry(row: tuple[Any, ...]) -> Entry:
    return Entry(*row[:15], Label(*row[15:]))
