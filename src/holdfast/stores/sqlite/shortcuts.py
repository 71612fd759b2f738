"""The common cases of a step in one statement each, which is a transaction by itself.

They are here for the uncontended pair (at most 0.6 of filelock's time). Each function does what the
ledger does if nothing stands in the way, and otherwise changes nothing and returns None: then the
ledger decides.
"""

from __future__ import annotations

import sqlite3
import time

from ...clock import BootClock
from ...entries import AcquireRequest, WakeUp
from . import tokens
from .rows import COLUMNS

_GRANT_ALONE = (
    # OR IGNORE: where there is no fresh token, the row may not be NULL there, and is left out.
    f"INSERT OR IGNORE INTO entry ({COLUMNS}, waiting) "
    "SELECT ?, ?, 0, fresh_token(token, base, ceiling), ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, '', ?, ?, "
    "?, 0 FROM store WHERE live = ? AND NOT EXISTS (SELECT 1 FROM entry WHERE name = ?)"
)
_RELEASE_ALONE = (
    "DELETE FROM entry WHERE name = ? AND waiting = 0 AND owner = ? AND expires > ? "
    "AND NOT EXISTS (SELECT 1 FROM entry WHERE name = ? AND waiting = 1)"
)
# The holder's row is the one that the waiter's, with its new key, replaces. The clock is read inside,
# when we have the right to write: the waiter counts on the claim window from its last heartbeat on,
# and that may have come while we waited for the right.
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

_clock = BootClock()


class Mint:
    """SQL functions that make the token of a grant inside the one statement that grants.

    That is, after SQLite has given us the right to write: a number that was read before might be
    lower than one which was granted meanwhile. From one grant to the next more than a microsecond
    passes, so the clock alone makes it rise, and nothing has to be written back; where the clock is
    too coarse for that, or a burst of grants has run ahead of it, the ledger mints the token.
    """

    __slots__ = ("_base", "_ceiling", "_coarse", "interrupt", "receiver", "token")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.token: int | None = None
        self._base = self._ceiling = 0
        """The store's counters as last read. The base stays as it is for this connection, the ceiling
        only rises."""
        self.receiver = ("", "", "")
        """The waiter that the lock was handed over to: owner, process, and address to wake it."""
        self.interrupt: BaseException | None = None
        """The exception that a signal's handler raised inside one of these functions."""
        self._coarse = tokens.is_clock_coarse()
        connection.create_function("fresh_token", 3, self._fresh)
        connection.create_function("handed", 4, self._handed)
        connection.create_function("boot_clock", 0, _clock.now)

    def remember(self, base: int, ceiling: int) -> None:
        """Keeps the counters, as read in the present transaction."""
        self._base, self._ceiling = base, ceiling

    def _handed(self, owner: str, process: str, address: str, holder: int | None) -> int | None:
        if holder is None:
            return None
        # Above the holder's is above all of this lock's, so the counters need not be read.
        self.receiver = (owner, process, address)
        return self._fresh(holder, self._base, self._ceiling)

    def _fresh(self, last: int, base: int, ceiling: int) -> int | None:
        try:
            token = base + tokens.boot_microseconds()
            if last < token < ceiling and not self._coarse:
                self.token = token
        except BaseException as interrupt:
            self.interrupt = interrupt  # raised by a signal's handler; SQLite would swallow it
            raise
        return self.token


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
    mint.token = mint.interrupt = None
    host, pid, text = request.label
    try:
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
    except sqlite3.OperationalError as error:
        raise _interrupted(mint, error) from None
    return mint.token if done.rowcount == 1 else None


def release_alone(connection: sqlite3.Connection, name: str, owner: str) -> bool | None:
    """Frees a lease that has not ended, on a lock without waiters: True."""
    done = connection.execute(_RELEASE_ALONE, (name, owner, _clock.now(), name))
    return True if done.rowcount == 1 else None


def hand_over(connection: sqlite3.Connection, mint: Mint, name: str, owner: str) -> WakeUp | None:
    """Frees a mutex and grants it to its first waiter; returns the wake-up to send.

    Whether the process of that waiter is alive is not asked: the wake-up will tell.
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
    return WakeUp(name, *mint.receiver, mint.token)


def _interrupted(mint: Mint, error: sqlite3.OperationalError) -> BaseException:
    """Returns the exception that a signal's handler raised inside the mint, or else `error`."""
    if "user-defined function" not in str(error):
        return error
    # At the very entry of a function the mint could not keep what was raised.
    return KeyboardInterrupt() if mint.interrupt is None else mint.interrupt
