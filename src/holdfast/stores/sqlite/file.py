"""The store's file: made whole or not at all, and refused, untouched, if it is not one of ours.

A new store is written under a draft's name and then linked to its own, so no process ever sees half of
one; of two processes that make it at the same time one wins, and both use that one. An existing file
is identified before anything is written to it: another program's database, another version's store or
a file that is no database at all is left exactly as it was.

All of this is done inside the gate. A child that is forked in the middle of it, by the handler of a
signal, and goes on, is not inside: it changes nothing. `made_in` is the fork generation of the process
that is, and is compared with the present one right before each change: no call is in between, after
which such a handler could run.
"""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import suppress
from functools import partial

from ... import forks
from ...errors import BackendUnavailable, ConfigError
from ...interrupts import let_through
from . import location
from .drafts import END, Draft
from .lockfiles import Opened, mode_of, open_into, text_of, unlink

APPLICATION_ID = 0x48464C4B  # "HFLK"
FORMAT = 4
NO_BOOT = "none yet"
"""The boot of a new store, of which nothing is known."""

_SCHEMA = os.path.join(os.path.dirname(__file__), "scripts", "schema.sql")
_BUSY_SECONDS = 2.0
# A row has some 250 bytes, and a step changes two pages: small ones cost less.
_PRAGMAS = "PRAGMA page_size = 1024; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
_NUMBER = re.compile("[0-9a-f]{16}")
"""The number of a draft."""


def open_store(path: str, made_in: int) -> sqlite3.Connection:
    """Returns a connection to the store at that real path, which is made if it is not there."""
    _remove_left_drafts(path, made_in)
    while True:
        forks.refuse_inherited(made_in)
        if not mode_of(path):
            _make(path, made_in)
        try:
            _refuse_second_name(path)
            _remove_foreign_log(path, made_in)
            _verify(path)
            connection = _connect(path, "rw")
        except FileNotFoundError:
            continue  # removed in this very moment
        try:
            connection.execute("PRAGMA synchronous = NORMAL")
            # The log is emptied into the file, which waits for the disk, after 2 MB of it. Not later:
            # a lock that is taken again and again changes the same page each time, and SQLite looks
            # through all versions of it in the log (up to 4,096) for each change.
            connection.execute("PRAGMA wal_autocheckpoint = 2000")
            connection.execute("PRAGMA temp_store = MEMORY")
            return connection
        except sqlite3.Error as error:
            connection.close()
            raise unavailable(path, error) from error
        except BaseException:
            connection.close()
            raise


def refuse_others(path: str) -> None:
    """Raises `ConfigError` if there is a file at that real path which is not a store. Makes nothing."""
    if mode_of(path):
        with suppress(FileNotFoundError):
            _verify(path)


def _remove_left_drafts(path: str, made_in: int) -> None:
    """Removes the drafts of processes that were killed, as far as this user may.

    Nobody else is making the store now, since we are inside the gate; and a draft by which `location`
    tries whether it can write may be missing.
    """
    folder, name = os.path.split(path)
    try:
        others = os.listdir(folder)
    except OSError as error:
        let_through(error)  # else this user may not read it
        return
    for other in others:
        if other.startswith(f"{name}-"):
            number, end, part = other[len(name) + 1 :].partition(END)
            if end and _NUMBER.fullmatch(number) and part in ("", "-wal", "-shm", "-journal"):
                left = f"{folder}/{other}"
                try:
                    if made_in == forks.generation:
                        os.unlink(left)
                except OSError as error:
                    let_through(error)  # else it is gone, or another user's


def _refuse_second_name(path: str) -> None:
    """Refuses a file that has two names: each would have a log and a "-live" folder of its own."""
    if os.stat(path).st_nlink > 1:
        raise ConfigError(
            f"the store {path!r} has a second name (a hard link), by which other processes would "
            "not see the locks that are held here. Remove the other name: "
            f"find {os.path.dirname(path)} -xdev -samefile {path}"
        )


def _remove_foreign_log(path: str, made_in: int) -> None:
    """Removes a log that belongs to a file which was here before; SQLite would apply it to this one.

    A note in the "-live" folder says which file was opened last. It counts only within one boot:
    device numbers change with the next, and a log that outlived a power cut is needed.
    """
    status = os.stat(path)
    boot, _ = location.clock_identity()
    here = f"{boot} {status.st_dev}:{status.st_ino}"
    note = f"{location.live_directory(path)}/file"
    try:
        before = text_of(note)
    except FileNotFoundError:
        before = ""
    if before == here:
        return
    if boot and before.partition(" ")[0] == boot and _has_our_id(path):
        _remove_log(path, made_in)
    draft = Draft(f"{note}.")
    try:
        try:
            draft.write(here)
            if made_in == forks.generation:
                os.replace(draft.path, note)
        finally:
            unlink(draft.path)
    except OSError as error:
        let_through(error)
        raise BackendUnavailable(f"the embedded store cannot write {note!r}: {error}") from error


def _has_our_id(path: str) -> bool:
    """Returns whether the file's first page, without its log, has our application id.

    Only for a file that this process has not opened yet: closing a descriptor of it drops every lock
    that the process has on it.
    """
    with open(path, "rb") as file:
        header = os.pread(file.fileno(), 72, 0)
    return header[68:72] == APPLICATION_ID.to_bytes(4, "big")


def _remove_log(path: str, made_in: int) -> None:
    for suffix in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            if made_in == forks.generation:
                os.unlink(path + suffix)


def unavailable(path: str, error: Exception) -> BackendUnavailable:
    """Returns an error that says what to do about one of SQLite's."""
    text = str(error)
    hint = ""
    if "disk is full" in text or "disk I/O error" in text:
        hint = "; nothing was granted. Make room on its disk, or see the system's log for the disk"
    elif "locked" in text or "busy" in text:
        hint = "; another program keeps it locked. End that, or wait"
    elif "readonly" in text:
        hint = "; nothing was granted. Make the file and its folder writable again"
    elif "malformed" in text:
        hint = "; it is damaged. Stop every process that uses it, and move it away"
    return BackendUnavailable(f"the embedded store {path!r} failed: {text}{hint}")


def _connect(path: str, mode: str) -> sqlite3.Connection:
    uri = "file:" + path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    try:
        return sqlite3.connect(
            f"{uri}?mode={mode}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=_BUSY_SECONDS,
        )
    except sqlite3.Error as error:
        if not mode_of(path):
            raise FileNotFoundError(path) from None
        raise unavailable(path, error) from error


def _verify(path: str) -> None:
    """Refuses a file that is not a store of this format, and leaves it as it is.

    A connection that may write would empty a log that another program has left beside its database;
    one that may not would itself leave an empty log behind, where there is none.
    """
    left_behind = any(mode_of(path + suffix) for suffix in ("-wal", "-journal"))
    connection = _connect(path, "ro" if left_behind else "rw")
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.OperationalError as error:
        raise unavailable(path, error) from error
    except sqlite3.DatabaseError as error:
        raise ConfigError(
            f"{path!r} is not a Holdfast store: {error}. It was left as it is; choose another "
            "path, or move that file away"
        ) from error
    finally:
        connection.close()
    if application != APPLICATION_ID:
        raise ConfigError(
            f"{path!r} is a database, but not a Holdfast store. It was left as it is; choose "
            "another path"
        )
    if version != FORMAT:
        newer = "a newer" if version > FORMAT else "an older"
        raise ConfigError(
            f"the store {path!r} was made by {newer} version of Holdfast (format {version}; this "
            f"one has format {FORMAT}). It was left as it is; use that version everywhere, or "
            "another path"
        )


class _StoreDraft(Draft):
    """The draft of a store, and the connection by which it is written.

    In a forked child that connection is closed, without a word to SQLite: the locks and the file's
    position are the parent's.
    """

    __slots__ = ("_closed", "_connections")

    def __init__(self, path: str) -> None:
        self._connections: list[sqlite3.Connection] = []
        self._closed = sqlite3.connect(":memory:")
        self._closed.close()
        super().__init__(f"{path}-")

    def open(self) -> None:
        # Into a list before a handler can run: `extend` runs no Python code.
        connect = partial(sqlite3.connect, isolation_level=None)
        self._connections.extend(map(connect, (self.path,)))

    def run(self, script: str) -> None:
        self._connections[0].executescript(script)

    def execute(self, statement: str, values: tuple[object, ...] = ()) -> None:
        """Runs a statement that returns no row: what is left of another one would be done by a child,
        too, when its copy of the cursor goes."""
        self._connections[0].execute(statement, values)

    def close(self) -> None:
        self._connections[0].close()

    def _after_fork(self) -> None:
        super()._after_fork()
        if self._connections:
            forks.abandon(self._connections[0])
            self._connections[:] = [self._closed]


def _make(path: str, made_in: int) -> None:
    """Makes a new store at that path, unless another process is quicker."""
    draft = _StoreDraft(path)
    identity = location.identity_of(location.live_directory(path))
    schema = text_of(_SCHEMA)
    try:
        try:
            draft.open()
            try:
                draft.run(f"{_PRAGMAS} BEGIN; {schema}")
                values = (NO_BOOT, "", identity)
                draft.execute("INSERT INTO store VALUES (0, 0, 0, 0, ?, ?, ?)", values)
                draft.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                draft.execute(f"PRAGMA user_version = {FORMAT}")
                draft.execute("COMMIT")
            finally:
                draft.close()  # as the last one it empties the log into the file
            if not mode_of(path):
                _remove_log(path, made_in)  # what is left of a file that was removed
            with suppress(FileExistsError):  # another process was quicker, and its store it is
                if made_in == forks.generation:
                    os.link(draft.path, path)
            forks.refuse_inherited(made_in)
            _sync_directory(os.path.dirname(path))
        finally:
            for suffix in ("", "-wal", "-shm"):
                with suppress(FileNotFoundError):
                    os.unlink(draft.path + suffix)
    except sqlite3.Error as error:
        raise unavailable(path, error) from error
    except OSError as error:
        let_through(error)
        raise BackendUnavailable(f"the embedded store {path!r} cannot be made: {error}") from error


def _sync_directory(folder: str) -> None:
    """Writes a folder to the disk, so that no power cut takes away a file whose tokens are in use."""
    opened: Opened = []
    try:
        open_into(opened, folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        os.fsync(opened[0])
    finally:
        for fd in opened:
            os.close(fd)
