"""The ledger's rows in SQLite, inside the transaction that is open on the connection."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Container, Iterator, Sequence
from typing import Any

from ...clock import BootClock
from ...entries import Ask, Claim, Entry, Wake
from ...model import Label, in_free_slot
from .presence import Presence

HEADROOM = 60_000_000
"""How far ahead of the tokens, in µs, the ceiling is put on the disk: one write in a minute."""

_COLUMNS = (
    "owner, name, seq, token, expires, ttl, weight, capacity, kind, barge, confirmed, claim, "
    "patience, since, process, address, tether, host, pid, label"
)
_OF = f"SELECT {_COLUMNS} FROM entry WHERE name = ? ORDER BY waiting, seq"
_FIND = f"SELECT {_COLUMNS} FROM entry WHERE name = ? AND owner = ?"
_ARRIVAL = "SELECT coalesce(max(seq), 0) + 1 FROM entry WHERE name = ? AND waiting = 1"
COUNTERS = "SELECT live, token, base, ceiling FROM store"
_DROP_HELD = "DELETE FROM entry WHERE name = ? AND waiting = 0 AND owner = ? AND expires > ?"
_RAISE = "UPDATE store SET token = ?"
_ADD = (
    f"INSERT INTO entry ({_COLUMNS}, waiting) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_SAVE = (
    "UPDATE entry SET waiting = ?, seq = ?, token = ?, expires = ?, confirmed = ?, since = ? "
    "WHERE name = ? AND waiting = ? AND seq = ? AND owner = ?"
)
_DROP = "DELETE FROM entry WHERE name = ? AND waiting = ? AND seq = ? AND owner = ?"

# What `Ledger.acquire`, `release` and `renew` do in the common case, in as few statements as can be.
# Where they answer no row, it is not that case, and the ledger decides.

_GRANT_ALONE = (
    # OR IGNORE: where there is no fresh token, the row may not be NULL there, and is left out.
    f"INSERT OR IGNORE INTO entry ({_COLUMNS}, waiting) "
    "SELECT ?, ?, 0, fresh_token(token, base, ceiling), ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, '', ?, ?, "
    "?, 0 FROM store WHERE live = ? AND NOT EXISTS (SELECT 1 FROM entry WHERE name = ?)"
)
_RELEASE_ALONE = (
    "DELETE FROM entry WHERE name = ? AND waiting = 0 AND owner = ? AND expires > ? "
    "AND NOT EXISTS (SELECT 1 FROM entry WHERE name = ? AND waiting = 1)"
)
# The holder's row is the one that the waiter's, with its new key, replaces. The clock is read inside,
# when we have the right to write: whoever is handed the lock counts on the claim window from its
# last heartbeat on, and that may have come while we waited.
_HAND_OVER = (
    "UPDATE OR REPLACE entry SET waiting = 0, seq = 0, confirmed = 0, "
    "expires = boot_clock() + min(claim, ttl), since = ?, "
    # No token, and so no change at all, if the holder's row is not there.
    "token = handed(owner, process, address, (SELECT token FROM entry "
    "WHERE name = ? AND waiting = 0 AND seq = 0 AND owner = ? AND expires > ?)) "
    # By its whole key: SQLite then needs no table of its own for the rows that it will change.
    "WHERE name = ? AND waiting = 1 AND seq = "
    "(SELECT seq FROM entry WHERE name = ? AND waiting = 1 AND expires > ? ORDER BY seq LIMIT 1) "
    "AND capacity = 1 AND barge = 0"
)
_HELD = (
    "SELECT token FROM entry WHERE name = ? AND waiting = 0 AND owner = ? AND confirmed = 1 "
    "AND expires > ?"
)
_RENEW_HELD = (
    "UPDATE entry SET expires = max(expires, ?) WHERE name = ? AND waiting = 0 AND owner = ?"
)

_clock = BootClock()
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_microseconds() -> int:
    """The boot clock, on which all processes of the machine agree and which never goes back."""
    return time.clock_gettime_ns(_BOOTTIME) // 1000


class Mint:
    """Makes the token of a grant that is one statement, inside that statement.

    That is, after SQLite has given us the right to write: a number that was read before might be
    lower than one which was granted meanwhile. From one grant to the next more than a microsecond
    passes, so the clock alone makes it rise, and nothing has to be written back; where the clock is
    too coarse for that, or a burst of grants has run ahead of it, the ledger takes the long way.
    """

    __slots__ = ("_base", "_ceiling", "_coarse", "interrupt", "receiver", "token")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.token: int | None = None
        self._base = self._ceiling = 0
        """As last seen. The one stays the same for this connection, the other only rises."""
        self.receiver = ("", "", "")
        """To whom the lock was handed: its owner, its process, and where that is woken."""
        self.interrupt: BaseException | None = None
        self._coarse = time.clock_getres(_BOOTTIME) > 1e-6
        connection.create_function("fresh_token", 3, self._fresh)
        connection.create_function("handed", 4, self._handed)
        connection.create_function("boot_clock", 0, _clock.now)

    def note(self, base: int, ceiling: int) -> None:
        """What the counters were in the present transaction."""
        self._base, self._ceiling = base, ceiling

    def raised(self) -> BaseException:
        """What interrupted it."""
        return KeyboardInterrupt() if self.interrupt is None else self.interrupt

    def _handed(self, owner: str, process: str, address: str, holder: int | None) -> int | None:
        if holder is None:
            return None
        # Above the holder's is above all of this lock's, so the counters need not be read.
        self.receiver = (owner, process, address)
        return self._fresh(holder, self._base, self._ceiling)

    def _fresh(self, last: int, base: int, ceiling: int) -> int | None:
        try:
            token = base + boot_microseconds()
            if last < token < ceiling and not self._coarse:
                self.token = token
        except (
            BaseException
        ) as interrupt:  # a signal's handler; SQLite would swallow what it raised
            self.interrupt = interrupt
            raise
        return self.token


def grant_alone(
    connection: sqlite3.Connection, mint: Mint, ask: Ask, process: str, address: str, live: str
) -> int | None:
    """The token, if nobody holds this lock or waits for it, and `live` is still the store's folder.

    One statement, and so a transaction by itself.
    """
    mint.token = mint.interrupt = None
    host, pid, text = ask.label
    try:
        done = connection.execute(
            _GRANT_ALONE,
            (
                ask.owner,
                ask.name,
                _clock.now() + ask.ttl,
                ask.ttl,
                ask.weight,
                ask.capacity,
                ask.kind,
                ask.barge,
                ask.claim,
                ask.patience,
                time.time(),
                process,
                address,
                host,
                pid,
                text,
                live,
                ask.name,
            ),
        )
    except sqlite3.OperationalError as error:
        raise _interrupted(mint, error) from None
    return mint.token if done.rowcount == 1 else None


def release_alone(connection: sqlite3.Connection, name: str, owner: str) -> bool | None:
    """True if a lease that had not ended was freed, and nobody waits for the lock; or else None.

    One statement, and so a transaction by itself.
    """
    done = connection.execute(_RELEASE_ALONE, (name, owner, _clock.now(), name))
    return True if done.rowcount == 1 else None


def hand_over(connection: sqlite3.Connection, mint: Mint, name: str, owner: str) -> Wake | None:
    """Free the lock and grant it to the first who waits for it; None if it is not as simple as that.

    One statement, and so a transaction by itself. It asks nobody whether the process of that waiter
    is alive: the one who wakes it will see.
    """
    mint.token = mint.interrupt = None
    now = _clock.now()
    try:
        done = connection.execute(_HAND_OVER, (time.time(), name, owner, now, name, name, now))
    except sqlite3.IntegrityError:
        return None  # there was no fresh token, or no holder
    except sqlite3.OperationalError as error:
        raise _interrupted(mint, error) from None
    if done.rowcount != 1 or mint.token is None:
        return None
    return Wake(name, *mint.receiver, mint.token)


def _interrupted(mint: Mint, error: sqlite3.OperationalError) -> BaseException:
    """What a signal's handler raised inside the mint; nothing else makes it fail."""
    # At its very entry it could not note what was raised.
    return mint.raised() if "user-defined function" in str(error) else error


class CeilingReached(Exception):
    """The next token needs a higher ceiling on the disk first: begin again, durably."""


class SqliteRows:
    """See `ledger.Rows`. One for each transaction; `now` is read once, when it begins."""

    __slots__ = ("_base", "_ceiling", "_durable", "_execute", "_last", "_now", "_presence")

    def __init__(
        self,
        connection: sqlite3.Connection,
        presence: Presence,
        counters: Sequence[int],
        durable: bool,
    ) -> None:
        self._execute = connection.execute
        self._presence = presence
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
        row = self._execute(_FIND, (name, owner)).fetchone()
        return None if row is None else _entry(row)

    def renew_held(self, claim: Claim) -> int | None:
        """The token of a confirmed lease, which this has made longer."""
        name, owner, ttl = claim
        row = self._execute(_HELD, (name, owner, self._now)).fetchone()
        if row is None:
            return None
        self._execute(_RENEW_HELD, (self._now + ttl, name, owner))
        token: int
        (token,) = row
        return token

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

    def mint(self, taken: Container[int] = (), permits: int = 1) -> int:
        above = max(self._last + 1, self._base + boot_microseconds())
        token = in_free_slot(above, taken, permits)
        if token >= self._ceiling:
            if not self._durable:
                raise CeilingReached
            self._ceiling = token + HEADROOM
            self._execute("UPDATE store SET ceiling = ?", (self._ceiling,))
        self._last = token
        self._execute(_RAISE, (token,))
        return token

    def add(self, entry: Entry) -> None:
        entry.seq = _place(entry)
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
                host,
                pid,
                text,
                entry.token == 0,
            ),
        )

    def save(self, entry: Entry, was_waiting: bool) -> None:
        place = _place(entry)
        self._execute(
            _SAVE,
            (
                entry.token == 0,
                place,
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
        entry.seq = place

    def drop_held(self, name: str, owner: str) -> bool:
        return self._execute(_DROP_HELD, (name, owner, self._now)).rowcount == 1

    def drop(self, entry: Entry) -> None:
        self._execute(_DROP, (entry.name, entry.token == 0, entry.seq, entry.owner))


def _place(entry: Entry) -> int:
    """The last part of its key."""
    if entry.token == 0:
        return entry.seq
    return 0 if entry.capacity == 1 else entry.token


def _entry(row: tuple[Any, ...]) -> Entry:
    *fields, host, pid, text = row
    fields.append(Label(host, pid, text))
    return Entry(*fields)
