"""Guards on the files of an open store: they keep SQLite's locks in effect when a process drops them.

SQLite's locks are POSIX record locks. A process loses all that it has on a file as soon as it closes
*any* descriptor of it, as by copying its state folder. Of two locks that a connection holds for as
long as it is open, others would then believe that there is no such connection:

- without the shared lock on the file, the next process to close "as the last one" removes the log, and
  what we write to the removed log is seen by nobody: one lock has two holders;
- without the one on the log's index, the next process to open "as the first one" empties the index.

So each process holds both once more, by a descriptor of its own and as locks of that open file, which
end with that descriptor alone. Processes that share a lock in this way hinder nobody but the two above.
The guard is let go just before the process closes its last connection to the file, which may then
remove the log. Where the system has no such locks there is no guard.
"""

from __future__ import annotations

import fcntl
import os
import struct
from threading import RLock

from ... import forks
from ...interrupts import let_through
from .lockfiles import Opened, close_last, open_into

_SET_LOCK: int | None = getattr(fcntl, "F_OFD_SETLK", None)
_OPEN = os.O_RDONLY | os.O_CLOEXEC

# As in SQLite's os.h and os_unix.c; part of its file format, since all its processes must agree.
_FILE = (0x40000002, 510)
"""The shared lock on the file: its first byte, and their number."""
_INDEX = (128, 1)
"""The lock on the log's index that tells that somebody uses it."""

_mutex = RLock()
_guards: dict[tuple[int, int], Guard] = {}  # by device and inode of the store's file


class Guard:
    """The guard of this process on one store. Each `Guard.take` needs a `let_go`."""

    __slots__ = ("_fds", "_key", "_locked", "_users")

    def __init__(self, key: tuple[int, int]) -> None:
        self._key = key
        self._users = 0
        self._locked = False
        self._fds: Opened = []

    @classmethod
    def take(cls, path: str, taken: list[Guard]) -> None:
        """Adds to `taken` the guard on the store at `path`, to which this process has a connection.

        It is there as soon as it has to be let go, whatever a signal's handler raises.
        """
        with _mutex:
            status = os.stat(path)
            key = (status.st_dev, status.st_ino)
            guard = _guards.get(key)
            if guard is None:
                guard = _guards[key] = cls(key)
            guard._users += 1
            taken.append(guard)
            if not guard._locked and _SET_LOCK is not None:
                guard._unlock()  # of one that was interrupted
                guard._lock(path, *_FILE)
                guard._lock(f"{path}-shm", *_INDEX)
                guard._locked = True

    def let_go(self) -> None:
        """Ends one use of the guard, and the guard with its last one."""
        with _mutex:
            self._users -= 1
            if self._users <= 0:
                if _guards.get(self._key) is self:
                    del _guards[self._key]
                self._unlock()

    def _lock(self, path: str, start: int, length: int) -> None:
        assert _SET_LOCK is not None
        try:
            open_into(self._fds, path, _OPEN)
            lock = struct.pack("hhqqi", fcntl.F_RDLCK, os.SEEK_SET, start, length, 0)
            fcntl.fcntl(self._fds[-1], _SET_LOCK, lock)
        except OSError as error:
            let_through(error)
            return  # SQLite's own lock is there

    def _unlock(self) -> None:
        self._locked = False
        while self._fds:
            close_last(self._fds)


def _after_fork_in_child() -> None:
    # Every connection was closed before the fork; or else it is of no use to the child.
    global _mutex
    _mutex = RLock()
    _guards.clear()


forks.in_child(_after_fork_in_child)
