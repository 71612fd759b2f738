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

WATCH = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""How a lock file is opened by others: one that is a FIFO would otherwise wait for its process."""

Opened = list[int]
"""Descriptors, kept by the caller of the function that opens them: between two functions a signal's
handler could raise, and they would be lost."""

_TRY_SHARED = fcntl.LOCK_SH | fcntl.LOCK_NB
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


def make_file(path: str) -> int:
    """Makes an empty file, and returns its descriptor."""
    return os.open(path, _NEW, 0o666)


def make_fifo(path: str) -> int:
    """Makes a FIFO, and returns a descriptor that holds both its ends open."""
    os.mkfifo(path, 0o666)
    return os.open(path, _NEW_FIFO)


def make_locked(
    directory: str,
    kind: str,
    make: Callable[[str], int] = make_file,
    before: Callable[[str], object] | None = None,
) -> tuple[str, int]:
    """Makes a file that is locked before it can be found; returns its name and descriptor."""
    while True:
        name = os.urandom(8).hex()
        if before is not None:
            before(name)  # ahead of the file: another thread's sweep must know it as ours
        draft = f"{directory}/.{name}{kind}.new"
        fd = -1
        try:
            fd = make(draft)
            fcntl.flock(fd, fcntl.LOCK_EX)
            os.link(draft, f"{directory}/{name}{kind}")
        except FileNotFoundError:
            # Swept away as old, because the wall clock was set forward: again. (If the folder is gone,
            # making it fails.)
            if fd < 0:
                raise
            os.close(fd)
            continue
        except BaseException:
            if fd >= 0:
                os.close(fd)
            raise
        finally:
            unlink(draft)
        return name, fd


def flocked(path: str) -> bool | None:
    """Returns whether the file is flocked; None when it is missing, True when that cannot be told."""
    # The descriptor is in the list before a signal's handler can raise: `extend` runs no Python code.
    opened: list[int] = []
    try:
        opened.extend(map(os.open, (path,), (WATCH,)))
        fcntl.flock(opened[0], _TRY_SHARED)
    except FileNotFoundError:
        return None
    except OSError:
        return True
    finally:
        for fd in opened:
            os.close(fd)
    return False


def inode(fd: int) -> tuple[int, int]:
    """Returns the device and inode of an open file."""
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def age(path: str) -> float:
    """Returns the seconds since the file was written to; 0 when it is missing."""
    try:
        return time.time() - os.stat(path).st_mtime
    except OSError:
        return 0.0


def unlink(path: str) -> bool:
    """Removes a file; returns whether that was possible."""
    try:
        os.unlink(path)
    except OSError:
        return False
    return True
