"""The common cases of a step in one statement each, which is a transaction by itself.

They are here for the uncontended pair (at most 0.6 of filelock's time). Each function does what the
ledger does if nothing stands in the way, and otherwise changes nothing and returns None: then the
ledger decides.
"""

from __future__ import annotations

import sqlite3
import time
from typing import Any

from ...clock import BootClock
from ...entries import AcquireRequest, WakeUp
from ...settlement import ELECTION
from . import tokens
from .rows import COLUMNS

_GRANT_ALONE = (
    f"INSERT INTO entry ({COLUMNS}, waiting) "
    "SELECT ?, ?, 0, kept('token', 0), ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, '', 0.0, ?, ?, ?, 0 "
    "FROM store "
    "WHERE live = ? AND NOT EXISTS (SELECT 1 FROM entry WHERE name = ?) "
    "AND kept('token', base + boot_ns() / 1000) BETWEEN token + 1 AND ceiling - 1"
)
_RELEASE_ALONE = (
    "DELETE FROM entry WHERE name = ? AND waiting = 0 AND owner = ? AND expires > ? "
    f"AND kind <> '{ELECTION}' "
    "AND NOT EXISTS (SELECT 1 FROM entry WHERE name = ? AND waiting = 1)"
)
# The holder's row is the one that the waiter's, with its new key, replaces. The clock is read inside,
# when we have the right to write: the waiter counts on the claim window from its last heartbeat on,
# and that may have come while we waited for the right. A token above the holder's is above all of this
# lock's, so the counters need not be read; where there is no such holder, nothing is above it.
_HAND_OVER = (
    "UPDATE OR REPLACE entry SET waiting = 0, seq = 0, confirmed = 0, "
    "expires = boot_clock() + min(claim, ttl), since = ?, token = kept('token', 0) "
    # By its whole key: SQLite then needs no table of its own for the rows that it will change.
    "WHERE name = ? AND waiting = 1 AND seq = "
    "(SELECT seq FROM entry WHERE name = ? AND waiting = 1 AND expires > ? ORDER BY seq LIMIT 1) "
    f"AND kind <> '{ELECTION}' "
    "AND capacity = 1 AND barge = 0 AND kept('token', ? + boot_ns() / 1000) BETWEEN 1 + (SELECT token "
    "FROM entry WHERE name = ? AND waiting = 0 AND seq = 0 AND owner = ? AND expires > ?) AND ? - 1 "
    "AND kept('owner', owner) NOTNULL AND kept('process', process) NOTNULL "
    "AND kept('address', address) NOTNULL"
)

_clock = BootClock()


class Mint:
    """SQL functions by which the one statement that grants makes its token, and tells it.

    Made inside the statement, after SQLite has given us the right to write: a number that was read
    before might be lower than one which was granted meanwhile. From one grant to the next more than a
    microsecond passes, so the clock alone makes it rise, and nothing has to be written back; where the
    clock is too coarse for that, or a burst of grants has run ahead of it, the ledger mints the token.

    None of them is Python code. That could be interrupted by a signal's handler which raises, and
    SQLite would swallow the exception.
    """

    __slots__ = ("_coarse", "_kept", "base", "ceiling")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.base = self.ceiling = 0
        """The store's counters as last read. The base stays as it is for this connection, the ceiling
        only rises."""
        self._coarse = tokens.is_clock_coarse()
        self._kept: dict[str, Any] = {}
        connection.create_function("boot_clock", 0, _clock.now)
        connection.create_function("boot_ns", 0, tokens.boot_nanoseconds())
        # kept(key, value) keeps the first value for each key, and returns that from then on.
        connection.create_function("kept", 2, self._kept.setdefault)

    def remember(self, base: int, ceiling: int) -> None:
        """Keeps the counters, as read in the present transaction."""
        self.base, self.ceiling = base, ceiling

    def begin(self) -> bool:
        """Forgets what was kept for the last statement; returns whether this one may mint."""
        self._kept.clear()
        return not self._coarse

    @property
    def token(self) -> int:
        """The token of the grant that was made."""
        token: int = self._kept["token"]
        return token

    @property
    def receiver(self) -> tuple[str, str, str]:
        """The waiter that the lock was handed over to: owner, process, and address to wake it."""
        kept = self._kept
        return kept["owner"], kept["process"], kept["address"]


def grant_alone(
    connection: sqlite3.Connection,
    mint: Mint,
    request: AcquireRequest,
    process: str,
    address: str,
    live: str,
) -> int | None:
    """Grants a lock that has no holder and no waiter; returns the token.

    `live` is the id of the "-live" folder that the store has to be bound to.
    """
    if request.kind == ELECTION or not mint.begin():
        return None  # a change of an election is to be noted
    host, pid, text = request.label
    done = connection.execute(
        _GRANT_ALONE,
        (
            request.owner,
            request.name,
            _clock.now() + request.ttl,
            request.ttl,
            request.weight,
            request.capacity,
            request.kind,
            request.barge,
            request.claim,
            request.patience,
            time.time(),
            process,
            address,
            host,
            pid,
            text,
            live,
            request.name,
        ),
    )
    return mint.token if done.rowcount == 1 else None


def release_alone(connection: sqlite3.Connection, name: str, owner: str) -> bool | None:
    """Frees a lease that has not ended, on a lock without waiters: True."""
    done = connection.execute(_RELEASE_ALONE, (name, owner, _clock.now(), name))
    return True if done.rowcount == 1 else None


def hand_over(connection: sqlite3.Connection, mint: Mint, name: str, owner: str) -> WakeUp | None:
    """Frees a mutex and grants it to its first waiter; returns the wake-up to send.

    Whether the process of that waiter is alive is not asked: the wake-up will tell.
    """
    if not mint.begin():
        return None
    now = _clock.now()
    done = connection.execute(
        _HAND_OVER,
        (time.time(), name, name, now, mint.base, name, owner, now, mint.ceiling),
    )
    return WakeUp(name, *mint.receiver, mint.token) if done.rowcount == 1 else None
