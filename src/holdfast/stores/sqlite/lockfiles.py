"""Lock files, whose lock says that a process lives: made locked, and probed without harm.

A lock file is made under a draft's name, locked, and only then linked to the name by which others look
for it. So a lock file that is found unlocked was left by a process that is gone, never by one that is
about to lock it. Names are 64 random bits and are used once; making one fails rather than replace
another.

The lock is an flock. It belongs to the open file, and ends when the last descriptor of *that* opening
is closed: whoever else opens the file, reads it and closes it again, be it the same process, drops
nothing. (A POSIX record lock would be dropped by that.) Its price: a forked child shares it until it
closes the descriptor.

A probe takes a shared lock for a moment. Two probes do not disturb each other, and a probe cannot
disturb the holder, whose exclusive lock was there before the name was.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable

from ...interrupts import let_through

WATCH = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""How a lock file is opened by others: one that is a FIFO would otherwise wait for its process."""

Opened = list[int]
"""Descriptors, kept by the caller of the function that opens them: between two functions a signal's
handler could raise, and they would be lost."""

_MOST = 1 << 16
_TRY_SHARED = fcntl.LOCK_SH | fcntl.LOCK_NB
_TRY_EXCLUSIVE = fcntl.LOCK_EX | fcntl.LOCK_NB
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_NEW_FIFO = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC


class Tether:
    """A lock that lives as long as any process to which its descriptor was passed.

    `fd` is close-on-exec: pass it on by posix_spawn's file actions, by `pass_fds`, or after
    `os.set_inheritable`. (Not together with `preexec_fn`, which runs the hooks of a fork.)
    """

    __slots__ = ("_directory", "fd", "name")

    def __init__(self, directory: str, name: str, fd: int) -> None:
        self._directory = directory
        self.name = name
        self.fd = fd

    def close(self) -> None:
        """Lets go of the lock. Removes the file, unless another process holds it: then `sweep` will."""
        fd, self.fd = self.fd, -1
        if fd < 0:
            return
        os.close(fd)
        if not flocked(f"{self._directory}/{self.name}.tether"):
            unlink(f"{self._directory}/{self.name}.tether")


def open_into(opened: Opened, path: str, flags: int, mode: int = 0o666) -> None:
    """Opens a file, and adds its descriptor to `opened` before a signal's handler can raise."""
    opened.extend(map(os.open, (path,), (flags,), (mode,)))  # which runs no Python code


def close_last(opened: Opened) -> None:
    """Closes the last descriptor in `opened`, once, whatever a signal's handler raises."""
    fd = opened[-1]
    del opened[
        -1
    ]  # an interrupt comes only after a call: none before the next, and then it is closed
    os.close(fd)


def make_file(path: str, opened: Opened) -> None:
    """Makes an empty file, and adds its descriptor to `opened`."""
    open_into(opened, path, _NEW)


def make_fifo(path: str, opened: Opened) -> None:
    """Makes a FIFO, and adds to `opened` a descriptor that holds both its ends open."""
    os.mkfifo(path, 0o666)
    open_into(opened, path, _NEW_FIFO)


def make_locked(
    directory: str,
    kind: str,
    opened: Opened,
    make: Callable[[str, Opened], object] = make_file,
    before: Callable[[str], object] | None = None,
) -> str:
    """Makes a file that is locked before it can be found; adds its descriptor to `opened`, which is
    empty, and returns its name."""
    while True:
        name = os.urandom(8).hex()
        if before is not None:
            before(name)  # ahead of the file: another thread's sweep must know it as ours
        draft = f"{directory}/.{name}{kind}.new"
        try:
            make(draft, opened)
            fcntl.flock(opened[0], _TRY_EXCLUSIVE)
            os.link(draft, f"{directory}/{name}{kind}")
        except (FileNotFoundError, FileExistsError, BlockingIOError) as error:
            let_through(error)
            # Swept away as old, because the wall clock was set forward; or a child that was forked in
            # here goes on as well, and was quicker: again, if the folder is not gone.
            if opened:
                close_last(opened)
            elif not mode_of(directory):
                raise
            continue
        finally:
            unlink(draft)
        return name


def flocked(path: str) -> bool | None:
    """Returns whether the file is flocked; None when it is missing, True when that cannot be told."""
    opened: Opened = []
    try:
        open_into(opened, path, WATCH)
        fcntl.flock(opened[0], _TRY_SHARED)
    except FileNotFoundError:
        return None
    except OSError as error:
        let_through(error)
        return True
    finally:
        for (
            fd
        ) in opened:  # here, and not in a function: an interrupt may come at the very entry of one
            os.close(fd)
    return False


def inode(fd: int) -> tuple[int, int]:
    """Returns the device and inode of an open file."""
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def mode_of(path: str) -> int:
    """Returns the mode of what is at that path; 0 if nothing is, or it cannot be looked at.

    Unlike `os.path.exists` it does not take the error of a signal's handler for that answer.
    """
    try:
        return os.stat(path).st_mode
    except OSError as error:
        let_through(error)
        return 0


def text_of(path: str) -> str:
    """Returns the text of a small file. A child that is forked in here shares the position in the file,
    so none is used."""
    with open(path, "rb", buffering=0) as file:
        return os.pread(file.fileno(), _MOST, 0).decode()


def age(path: str) -> float:
    """Returns the seconds since the file was written to; 0 when it is missing."""
    try:
        return time.time() - os.stat(path).st_mtime
    except OSError as error:
        let_through(error)
        return 0.0


def unlink(path: str) -> bool:
    """Removes a file; returns whether that was possible."""
    try:
        os.unlink(path)
    except OSError as error:
        let_through(error)
        return False
    return True
