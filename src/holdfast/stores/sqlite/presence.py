"""The process's proof of life, by which an entry of the embedded store ends with its process.

How it works. Each process keeps one file per store, `<name>.live`, locked (see `lockfiles`). The kernel
drops the lock when the process ends, however it ends, so for every other process: the file is missing
or can be locked = its process is dead; it cannot be locked = its process lives.

The file is a FIFO that its process holds open for writing, so that others can *wait* for its death by
poll. Nothing is ever written to it. The hang-up is a hint; what decides is always `is_alive`. The
kernel drops a file's locks before it closes the file itself, so a watcher that is woken finds the
process dead.

Why it never shows the living as dead:
- the file gets its name only after it is locked, so no process can find it unlocked before that;
- names are random and used once: there is no pid that could come back as another process;
- whoever opens, reads and closes the file, our own process included, does not drop the lock;
- an answer that the kernel refuses to give (no permission, no descriptors left) counts as "alive",
  and so does a missing file when our own is missing too: then the folder was emptied, and proves
  nothing about any process. The TTL still ends such an entry.
What remains is a holder whose folder was emptied, or whose descriptors were all closed by code that
makes a daemon of it: `intact()` tells, and a holder asks that when it renews.

Fork. A child inherits the lock, and would make a dead parent look alive. So a forked child closes its
parent's presence at once, and makes one of its own when it needs it. If Python was not told of the fork
(C code called it), the child does so with its first use of a store; if it never does, and outlives
its parent, then what the parent held ends with its TTL.

`<name>.tether` is meant to be inherited, for `holdfast run`: the command keeps it when `run` itself is
killed. The entry is dead when both are free. It is closed in forked children, and so reaches only what
it is explicitly passed to.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from threading import RLock

from ... import forks
from ...errors import BackendUnavailable
from ...interrupts import is_from_handler, let_through
from .lockfiles import (
    WATCH,
    Opened,
    Tether,
    close_last,
    flocked,
    inode,
    make_fifo,
    make_locked,
    open_into,
)

# Re-entrant, because a signal handler that forks may interrupt the thread that is inside.
_mutex = RLock()
_own: set[str] = set()  # every name that this process has made, in whatever folder
_present: dict[tuple[int, int], Presence] = {}  # by device and inode of the folder
_made: list[Presence] = []  # those in _present, and those whose folder was taken away


class Presence:
    """This process, as other processes with the same store see it. Made by `Presence.of`."""

    __slots__ = ("_born", "_inode", "_live", "_tethers", "directory", "name")

    def __init__(self, directory: str, opened: Opened) -> None:
        self.directory = directory
        self._born = forks.current()
        self._tethers: list[Tether] = []
        self.name = make_locked(directory, ".live", opened, make_fifo, _own.add)
        self._live = opened[0]
        self._inode = inode(self._live)
        _cleaner.files[f"{directory}/{self.name}.live"] = os.getpid()

    @classmethod
    def of(cls, directory: str) -> Presence:
        """Returns the presence of this process in `directory`; makes both if they are missing."""
        directory = os.path.abspath(directory)
        with _mutex:
            while True:
                generation = forks.current()
                opened: Opened = []
                try:
                    with suppress(FileExistsError):
                        os.mkdir(directory)
                    status = os.stat(directory)
                    key = (status.st_dev, status.st_ino)
                    known = _present.get(key)
                    # A folder that was removed and made again may get the same inode number.
                    if known is not None and known.intact():
                        return known
                    presence = cls(directory, opened)
                    if generation == forks.current():
                        _present[key] = presence
                        del opened[:]  # it has it
                        _made.append(presence)
                        return presence
                except OSError as error:
                    let_through(error)
                    raise BackendUnavailable(
                        f"cannot show in {directory!r} that this process is alive: {error}"
                    ) from error
                finally:  # interrupted; or forked by a signal's handler, and it is the parent's
                    for fd in opened:
                        os.close(fd)

    def intact(self) -> bool:
        """Returns whether others can still see that this process lives.

        False in a forked child, when the file or its folder was removed, or when its descriptor was
        closed by other code. What is held must then be given up as lost.
        """
        if self._born != forks.current():
            return False
        try:
            seen = os.stat(f"{self.directory}/{self.name}.live")
            return (seen.st_dev, seen.st_ino) == self._inode == inode(self._live)
        except OSError as error:
            let_through(error)
            return False

    def is_alive(self, name: str) -> bool:
        """Returns whether the process of that name may be alive; False only when it surely is not."""
        if name in _own:
            return True
        held = flocked(f"{self.directory}/{name}.live")
        return not self.intact() if held is None else held

    def watch(self, name: str, opened: Opened) -> None:
        """Adds to `opened` a descriptor that becomes readable (hangs up) when that process dies, the
        caller's to close. Adds none when there is nothing to wait for: our own process, or a dead one.

        Watch first and ask `is_alive` afterwards: a death before the opening is then seen by the
        question, and one after it by the descriptor.
        """
        if name in _own:
            return
        try:
            open_into(opened, f"{self.directory}/{name}.live", WATCH)
        except OSError as error:
            let_through(error)
            return
        # poll does not report a hang-up to a reader that came after the last writer had left.
        try:
            os.read(opened[-1], 1)
        except BlockingIOError as error:
            let_through(error)
            return  # empty, and held open by its process
        except OSError as error:
            let_through(error)
            pass
        close_last(opened)

    def tether(self) -> Tether:
        """Returns a new tether, locked by its descriptor."""
        with _mutex:
            opened: Opened = []
            self._tethers = [kept for kept in self._tethers if kept.fd >= 0]
            try:
                name = make_locked(self.directory, ".tether", opened)
                tether = Tether(self.directory, name, opened[0])
                del opened[:]  # it has it
                self._tethers.append(tether)
            except BaseException as error:
                for fd in opened:
                    os.close(fd)
                if not isinstance(error, OSError) or is_from_handler(error):
                    raise
                raise BackendUnavailable(
                    f"cannot make a tether in {self.directory!r}: {error}"
                ) from error
            return tether

    def is_tethered(self, name: str) -> bool:
        """Returns whether that tether may still be held; False only when it surely is free."""
        held = flocked(f"{self.directory}/{name}.tether")
        return not self.intact() if held is None else held

    def _abandon(self) -> None:
        """Closes, in a forked child, what belongs to the parent. That drops none of its locks."""
        for tether in self._tethers:
            fd, tether.fd = tether.fd, -1
            if fd >= 0:
                os.close(fd)
        try:
            # The number may have been closed, and used again for something else, before the fork.
            if inode(self._live) == self._inode:
                os.close(self._live)
        except OSError:
            pass


class _Cleaner:
    """The remover of this process's files when the interpreter ends.

    By a finaliser and not by atexit: another exit handler may still use a lease, and so may a
    daemon thread while the handlers run, and a process without its live file is a dead one. When
    the modules are torn down no Python code runs any more. If it is not called, `cleaning` does it.
    """

    __slots__ = ("files",)

    def __init__(self) -> None:
        self.files: dict[str, int] = {}

    def __del__(
        self,
        getpid: Callable[[], int] = os.getpid,
        unlink: Callable[[str], None] = os.unlink,
    ) -> None:
        for path, maker in self.files.items():
            try:
                if maker == getpid():
                    unlink(path)
            except OSError:
                pass


_cleaner = _Cleaner()


_held = forks.HeldLocks()


def _before_fork() -> None:
    _held.take(_mutex)  # so that no fork falls between the making of a file and its registration


def _after_fork_in_child() -> None:
    global _mutex
    _mutex = RLock()
    for presence in _made:
        presence._abandon()
    _made.clear()
    _present.clear()
    _own.clear()
    _cleaner.files.clear()
    _held.locks.clear()


for _ in range(2):  # see `forks`
    os.register_at_fork(before=_before_fork, after_in_parent=_held.give_back)
forks.in_child(_after_fork_in_child)
