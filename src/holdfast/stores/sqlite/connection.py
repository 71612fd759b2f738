"""The connection to the store's file: opened, found to be still the right one, opened anew.

*The file may vanish*, or be replaced, or its "-live" folder may: each step looks, and opens anew.
What was held in the old one is then gone, which its holders learn from their next renewal.

*The boot may be another*, by its id: after a reboot, when every holder and waiter is dead; or in a
container that was given an id of its own, or none, while others hold locks. The id does not tell which,
so the processes themselves are asked: an entry ends if its process is dead, and tokens go on above the
ceiling, which does no harm if nothing was lost. A process in another time namespace is refused: the
times in the file would mean something else to it.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress

from ... import forks
from ...clock import BootClock
from ...errors import BackendUnavailable, ConfigError, LockError
from ...interrupts import let_through
from . import forking, location, tokens
from .cleaning import sweep
from .file import NO_BOOT, open_store
from .gate import Gate
from .guard import Guard
from .presence import Presence
from .rows import SqliteRows, entries_of
from .shortcuts import Mint

PRESENCE_CHECKED_EVERY = 0.5
CROWDED_FOLDER = 64
"""Number of files in the folder above which a process that opens the store sweeps it."""

_clock = BootClock()


class StoreConnection:
    """A connection to the file; used inside the gate, by one thread at a time."""

    def __init__(self, path: str) -> None:
        self.path = location.prepare(path)
        self.folder = location.live_directory(self.path)
        self.process = ""
        """The name of our presence in the "-live" folder."""
        self._gate = Gate(self.path)
        self._connection: sqlite3.Connection | None = None
        self._unchecked: sqlite3.Connection | None = None
        """A connection to a file that is still being checked."""
        self._mint: Mint
        self._inode = self._device = -1
        self._folder_id = ""
        self._presence_checked_until = 0.0
        self._presence: Presence | None = None
        self._closed = False
        self._guards: list[Guard] = []
        """The guard on the file, while there is a connection."""
        self._log_left = False
        """Whether a fork has closed the connection and left the log beside the file."""
        self._made_in = forks.current()
        forking.register(self)

    def is_open(self) -> bool:
        """Returns whether there is a connection, or a thread that may be about to make one."""
        return self._connection is not None or self._gate.is_entered()

    def is_inside(self, thread: int | None = None) -> bool:
        """Returns whether this very thread, or that one, is inside a step."""
        return self._gate.is_inside(thread)

    def before_fork(self, deadline: float, held: forks.HeldLocks) -> None:
        """Closes the connection, and keeps threads out by a lock in `held`; if that is possible."""
        if not self._gate.pause(deadline, held):
            return
        # The guard outlives the connection, so it does not close as the last one: that would write the
        # log back and wait for the disk, while whoever is inside the gate waits for us.
        guards, self._guards = self._guards, []
        self._log_left = self._log_left or self._connection is not None
        try:
            self._disconnect()
        finally:
            _let_go(guards)

    def after_fork_inside(self) -> None:
        """Lets nothing more be done, in a child that was forked inside a step.

        The child may go on from there, with a copy of its parent's connection: in the same transaction,
        but without the locks on the file.
        """
        for connection in (self._connection, self._unchecked):
            if connection is not None:
                with suppress(sqlite3.Error):  # it was just closed
                    connection.set_authorizer(_refuse)

    def _open_connection(self) -> sqlite3.Connection:
        """Returns the connection that `_checked_connection` found good in this step."""
        if self._connection is None:
            raise BackendUnavailable(f"the connection to {self.path!r} is closed")
        return self._connection

    def _checked_connection(self) -> sqlite3.Connection:
        """Returns the connection; a new one if the file is not the one that it was opened on."""
        if self._closed:
            raise BackendUnavailable(f"the connection to {self.path!r} is closed")
        connection = self._connection
        if connection is not None:
            try:
                status = os.stat(self.path)
            except FileNotFoundError:
                return self._reopen()
            except OSError as error:
                let_through(error)
                raise BackendUnavailable(
                    f"the embedded store {self.path!r} cannot be reached: {error.strerror}"
                ) from error
            now = _clock.now()
            if (
                status.st_ino == self._inode
                and status.st_dev == self._device
                and (now < self._presence_checked_until or self._is_presence_intact())
            ):
                if connection.in_transaction:
                    roll_back(connection)  # left open by a step that was interrupted
                return connection
        return self._reopen()

    def _is_presence_intact(self) -> bool:
        """Returns whether others can see that this process is alive; looked up now and then."""
        if self._presence is None or not self._presence.intact():
            return False
        self._presence_checked_until = _clock.now() + PRESENCE_CHECKED_EVERY
        return True

    def _reopen(self) -> sqlite3.Connection:
        """Returns a new connection, to a file that was checked."""
        self._refuse_fork()  # a child would take over what its parent holds, and end it by its own end
        self._disconnect()
        if self.path in forking.unusable:
            raise BackendUnavailable(
                f"the embedded store {self.path!r} cannot be used by this process, which was forked "
                "off in the middle of a step on it, or by C code that did not tell Python; start it by "
                "spawn, or fork elsewhere, or open it in the child only (uWSGI: lazy-apps = true)"
            )
        location.prepare(self.path)
        self._presence = Presence.of(self.folder)
        former, self.process = self.process, self._presence.name
        connection = self._unchecked = open_store(self.path, self._made_in)
        try:
            self._refuse_fork()
            self._check_identity(connection, former)
        except BaseException:
            if self._made_in == forks.current():
                connection.close()
            else:
                forks.abandon(connection)
            self._unchecked = None
            raise
        status = os.stat(self.path)
        self._inode, self._device = status.st_ino, status.st_dev
        self._presence_checked_until = 0.0
        mint = Mint(connection)
        Guard.take(self.path, self._guards)
        self._mint, self._connection = mint, connection  # not sooner: it would be used unguarded
        self._unchecked = None  # and not sooner: a child could go on with it
        self._refuse_fork()
        self._log_left = False
        if len(os.listdir(self.folder)) > CROWDED_FOLDER:
            sweep(self._presence)
        return connection

    def _check_identity(self, connection: sqlite3.Connection, former: str) -> None:
        """Compares the file with this boot, clock and folder; removes what is no longer true.

        `former` is the name of our presence before; entries under it are ours.
        """
        boot, timens = location.clock_identity()
        live = self._folder_id = location.identity_of(self.folder)
        try:
            connection.execute("BEGIN IMMEDIATE")
            was = connection.execute("SELECT boot, timens, live FROM store").fetchone()
            if was != (boot, timens, live):
                if (
                    was[0] != NO_BOOT
                    and was[1] != timens
                    and (was[0] == boot or self._are_others_alive())
                ):
                    raise ConfigError(
                        f"the store {self.path!r} is in use from another time namespace, whose "
                        "boot clock shows another time; use one store for each, or a store that "
                        "is made for several machines"
                    )
                if was[2] != live:
                    # The folder is another one, and says nothing about these processes.
                    connection.execute("UPDATE entry SET process = '', tether = ''")
                if was[0] != boot:
                    self._begin_boot(connection)
                connection.execute(
                    "UPDATE store SET boot = ?, timens = ?, live = ?", (boot, timens, live)
                )
            if former and former != self.process:
                # Our files in the folder were removed. Entries not yet taken for dead are saved.
                connection.execute(
                    "UPDATE entry SET process = ? WHERE process = ?", (self.process, former)
                )
            connection.execute("COMMIT")
        except BaseException:
            roll_back(connection)
            raise

    def _are_others_alive(self) -> bool:
        """Returns whether another process that uses the store may be alive."""
        assert self._presence is not None
        names = (file.rpartition(".") for file in os.listdir(self.folder))
        return any(
            kind == "live" and name != self.process and self._presence.is_alive(name)
            for name, _, kind in names
        )

    def _begin_boot(self, connection: sqlite3.Connection) -> None:
        """Ends the entries of dead processes, and puts tokens above all that were handed out.

        If this is a new boot, nobody else is alive, and the times of entries that are bound to no
        process mean nothing: they end after their TTL at the latest, and what was detached when it was
        to end. The tokens of the last moments may not have reached the disk; the ceiling above them
        has.
        """
        assert self._presence is not None
        alive = SqliteRows(connection, self._presence, (0, 0, 0), durable=False).alive
        for entry in entries_of(connection):
            if not alive(entry):
                connection.execute("DELETE FROM entry WHERE owner = ?", (entry.owner,))
        connection.execute(
            "UPDATE entry SET expires = CASE WHEN kept_until > 0 THEN :now + (kept_until - :wall) "
            "ELSE min(expires, :now + max(ttl, patience)) END",
            {"now": _clock.now(), "wall": time.time()},
        )
        now, wall = tokens.boot_microseconds(), time.time_ns() // 1000
        # Not all the way to the ceiling, which is ahead of the clock: if boots took turns (two
        # containers), tokens would run away from it.
        connection.execute(
            "UPDATE store SET token = max(token, ceiling), "
            "base = max(?, max(token, ceiling) - ?) - ?",
            (wall, tokens.HEADROOM, now),
        )

    def _write_back_log(self) -> None:
        """Opens the store once more if a fork has left its log, so that closing it removes the log.

        A log that is left when all have closed would be missing in a copy of the file, and be applied
        to whatever file is put in its place.
        """
        if not self._log_left or self._made_in != forks.current():
            return
        self._log_left = False
        try:
            status = os.stat(self.path)
            if (status.st_ino, status.st_dev) == (self._inode, self._device):
                self._reopen()
        except (OSError, sqlite3.Error, LockError) as error:
            let_through(error)
            return  # the log is whole; whoever opens the store next reads it

    def _disconnect(self) -> None:
        _let_go(self._guards)
        if self._connection is not None:
            self._connection.close()
            self._connection = None  # not sooner: it counts as open until it is closed

    def _refuse_fork(self) -> None:
        """Raises BackendUnavailable in a forked child: what the parent holds is not the child's."""
        if self._made_in != forks.current():
            raise BackendUnavailable(
                f"this connection to {self.path!r} belongs to the parent of this forked process; "
                "what the parent holds stays the parent's"
            )


def _refuse(*action: object) -> int:
    return sqlite3.SQLITE_DENY


def _let_go(guards: list[Guard]) -> None:
    while guards:
        guards.pop().let_go()


def roll_back(connection: sqlite3.Connection) -> None:
    """Rolls back the transaction, if one is open."""
    if connection.in_transaction:  # some errors have done it already
        connection.execute("ROLLBACK")
