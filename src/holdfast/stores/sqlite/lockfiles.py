"""Lock files, whose lock says that their process lives: made locked, and probed without harm.

A lock file is made under a draft's name, locked, and only then linked to the name by which others look
for it. So a lock file that is found unlocked was left by a process that is gone, never by one that is
about to lock it. Names are 64 random bits and are used once; making one fails rather than replace
another.

A probe takes a shared lock for a moment. Two probes do not disturb each other, and a probe cannot
disturb the holder, whose exclusive lock was there before the name was. presence.py says which of
the two kinds of lock is used for what, and why.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable

TRY_SHARED = fcntl.LOCK_SH | fcntl.LOCK_NB
PROBE = os.O_RDONLY | os.O_CLOEXEC

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


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


def make_locked(
    directory: str,
    kind: str,
    lock: Callable[[int, int], object],
    before: Callable[[str], object] | None = None,
) -> tuple[str, int]:
    """Makes a file that is locked before it can be found; returns its name and descriptor."""
    while True:
        name = os.urandom(8).hex()
        if before is not None:
            before(name)  # ahead of the file: another thread's sweep must know it as ours
        draft = f"{directory}/.{name}{kind}.new"
        fd = os.open(draft, _NEW, 0o666)
        try:
            lock(fd, fcntl.LOCK_EX)
            os.link(draft, f"{directory}/{name}{kind}")
        except FileNotFoundError:
            # Swept away as old, because the wall clock was set forward: again. (If the folder is gone,
            # the next opening says so.)
            os.close(fd)
            continue
        except BaseException:
            os.close(fd)
            raise
        finally:
            unlink(draft)
        return name, fd


def open_pipe(path: str, above: int) -> int | None:
    """Makes a FIFO and opens it; returns None where that is impossible, since it is only a hint."""
    try:
        os.mkfifo(path, 0o666)
        # For reading too: alone, opening for writing fails as long as nobody reads.
        fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        # Descriptors are closed in rising order when a process ends, and the lock must go first.
        if fd > above:
            return fd
        try:
            return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above + 1)
        finally:
            os.close(fd)
    except OSError:
        return None


def flocked(path: str) -> bool | None:
    """Returns whether the file is flocked; None when it is missing, True when that cannot be told."""
    try:
        fd = os.open(path, PROBE)
    except FileNotFoundError:
        return None
    except OSError:
        return True
    try:
        fcntl.flock(fd, TRY_SHARED)
    except OSError:
        return True
    finally:
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
