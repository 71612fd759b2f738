"""The connection to the store's file: opened, found to be still the right one, opened anew.

*The file may vanish*, or be replaced, or its folder of locks may: each step looks, and opens anew.
What was held in the old one is then gone, which its holders are told by their next renewal.

After a reboot every holder and waiter is dead, so the first to open the file then clears it. A
process that counts in another time namespace is refused: it would take others' ends for something
else.
"""

from __future__ import annotations

import os
import sqlite3
import time

from ...clock import BootClock
from ...errors import BackendUnavailable, ConfigError
from . import forking
from . import location as place
from .file import open_store
from .gate import Gate
from .presence import Presence
from .rows import Mint, boot_microseconds

PRESENCE_CHECKED_EVERY = 0.5
CROWDED_FOLDER = 64
"""Files of processes, above which whoever opens the store looks which of them are dead."""

_clock = BootClock()


class Link:
    """One connection; used inside the gate, by one thread at a time."""

    def __init__(self, path: str) -> None:
        self.path = place.prepare(path)
        self.live = place.live_directory(self.path)
        self.process = ""
        """Our own name in the folder of the living."""
        self.active = 0.0
        """When we did something last, or were handed something."""
        self._idle = 0.0
        """For how long we had done nothing when the present step began."""
        self._gate = Gate(self.path)
        self._connection: sqlite3.Connection | None = None
        self._mint: Mint
        self._inode = self._device = -1
        self._live_id = ""
        self._seen_until = 0.0
        self._presence: Presence | None = None
        self._closed = False
        forking.register(self)

    def before_fork(self, deadline: float) -> bool:
        """See `forking`."""
        if not self._gate.pause(deadline):
            return False
        self._forget()
        return True

    def after_fork(self) -> None:
        self._gate.resume()

    def _live_connection(self) -> sqlite3.Connection:
        if self._connection is None:
            raise BackendUnavailable(f"the connection to {self.path!r} is closed")
        return self._connection

    def _current_connection(self) -> sqlite3.Connection:
        """The connection, if the file is still the one that it was opened on; else a new one."""
        if self._closed:
            raise BackendUnavailable(f"the connection to {self.path!r} is closed")
        connection = self._connection
        if connection is not None:
            try:
                status = os.stat(self.path)
            except FileNotFoundError:
                return self._reopen()
            except OSError as error:
                raise BackendUnavailable(
                    f"the embedded store {self.path!r} cannot be reached: {error.strerror}"
                ) from error
            now = _clock.now()
            self._idle, self.active = now - self.active, now
            if (
                status.st_ino == self._inode
                and status.st_dev == self._device
                and (now < self._seen_until or self._seen())
            ):
                if connection.in_transaction:
                    roll_back(connection)  # left open by a step that was interrupted
                return connection
        return self._reopen()

    def _seen(self) -> bool:
        """Whether the others can see that we are alive; looked up now and then."""
        if self._presence is None or not self._presence.intact():
            return False
        self._seen_until = _clock.now() + PRESENCE_CHECKED_EVERY
        return True

    def _reopen(self) -> sqlite3.Connection:
        self._forget()
        if self.path in forking.unusable:
            raise BackendUnavailable(
                f"the embedded store {self.path!r} cannot be used by this process, which was forked "
                "off in the middle of a step on it; start it by spawn, or fork elsewhere"
            )
        place.prepare(self.path)
        self._presence = Presence.of(self.live)
        former, self.process = self.process, self._presence.name
        connection = open_store(self.path)
        try:
            self._check_in(connection, former)
        except BaseException:
            connection.close()
            raise
        status = os.stat(self.path)
        self._inode, self._device = status.st_ino, status.st_dev
        self._seen_until = 0.0
        self._mint = Mint(connection)
        self._connection = connection
        if len(os.listdir(self.live)) > CROWDED_FOLDER:
            self._presence.sweep()
        return connection

    def _check_in(self, connection: sqlite3.Connection, former: str) -> None:
        """Is the file of this boot, this clock and this folder? If not, what is still true of it?

        `former` is the name that we had in the folder before; entries under it are ours.
        """
        boot, timens = place.clock_identity()
        live = self._live_id = place.identity_of(self.live)
        try:
            connection.execute("BEGIN IMMEDIATE")
            was = connection.execute("SELECT boot, timens, live FROM store").fetchone()
            if was != (boot, timens, live):
                if was[0] == boot and was[1] != timens:
                    raise ConfigError(
                        f"the store {self.path!r} is in use from another time namespace, whose "
                        "boot clock shows another time; use one store for each, or a store that "
                        "is made for several machines"
                    )
                if was[0] != boot:
                    # Everybody who was in it is dead. The tokens of the last moments may not have
                    # reached the disk; the ceiling above them has.
                    connection.execute("DELETE FROM entry")
                    connection.execute(
                        "UPDATE store SET token = max(token, ceiling), "
                        "base = max(token, ceiling, ?) - ?",
                        (time.time_ns() // 1000, boot_microseconds()),
                    )
                else:
                    # The folder of the living is another one, and says nothing about these.
                    connection.execute("UPDATE entry SET process = '', tether = ''")
                connection.execute(
                    "UPDATE store SET boot = ?, timens = ?, live = ?", (boot, timens, live)
                )
            if former and former != self.process:
                # Somebody removed the proof that we live. Who has not been passed over yet is saved.
                connection.execute(
                    "UPDATE entry SET process = ? WHERE process = ?", (self.process, former)
                )
            connection.execute("COMMIT")
        except BaseException:
            roll_back(connection)
            raise

    def _forget(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:  # some errors have done it already
        connection.execute("ROLLBACK")
