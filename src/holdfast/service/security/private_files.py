"""Files that decide who is let in: read only if nobody else could have written them, replaced whole.

A reader sees the file before a change or after it, never half of it: a new file is written beside it,
is on the disk, and takes its place. Writers take turns by a lock on a file of its own, which stays.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ...errors import ConfigError

MOST = 16 << 20
"""Bytes that such a file may have."""
Mark = tuple[int, int, int, int, int]
"""By which a changed file is told from the one that was read: device, inode, size, times."""


class Unread(ConfigError):
    """Raised when a file could not be read, though nothing may be wrong with the file.

    The process has no descriptor left, or the disk fails: the next attempt may succeed, and the file's
    mark is the same then.
    """


def mark_of(path: str) -> Mark | None:
    """Returns the mark of the file as it is now; None if there is none."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return 0, 0, 0, 0, error.errno or 0  # it may be there; who reads it is told what is wrong
    return _mark(status)


def read(what: str, path: str) -> tuple[bytes, Mark]:
    """Returns the content of the file and its mark.

    Raises FileNotFoundError if there is none, ConfigError if it cannot be trusted, and `Unread`.
    """
    try:
        return _read(what, path)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(path) from None
    except OSError as error:
        raise Unread(f"{what} {path} cannot be read: {error.strerror or error}") from None


def _read(what: str, path: str) -> tuple[bytes, Mark]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:
        raise ConfigError(f"{what} {path} cannot be read: {error}") from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{what} {path} is no file")
        if status.st_uid not in (0, os.geteuid()):
            raise ConfigError(f"{what} {path} is somebody else's, so it is not used")
        if status.st_mode & (stat.S_IWGRP | stat.S_IRWXO):
            raise ConfigError(
                f"others may read or write {what} {path}, so it is not used; mend that by: "
                f"chmod 600 {path}"
            )
        if status.st_size > MOST:
            raise ConfigError(f"{what} {path} is too large")
        with open(fd, "rb", closefd=False) as file:
            return file.read(MOST), _mark(status)
    finally:
        os.close(fd)


def replace(path: str, data: bytes) -> None:
    """Puts a file with this content, for its owner alone, in the place of `path`, in one step."""
    beside = f"{path}.{os.getpid()}.new"
    with suppress(FileNotFoundError):
        os.unlink(beside)  # of a process that died, and whose number is ours now
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def turn(path: str) -> Iterator[None]:
    """Lets one writer at a time at `path`; makes its folder, for its owner alone, if it is missing."""
    try:
        os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
        fd = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _mark(status: os.stat_result) -> Mark:
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )
