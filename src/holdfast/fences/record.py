"""A small file that is locked while it is used and replaced whole: what `FileFence` remembers in.

The lock is `flock` on the file itself. Whoever replaces the file locks the new one before it takes
the old one's name, and whoever gets a lock looks whether the file still has that name: so at any time
one thread of one process is inside. A crash leaves the old contents or the new.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from typing import Any

from ..errors import GuaranteeError
from ..surroundings import greenlets
from .turn_holder import TurnHolder

FIRST_LOOK, LAST_LOOK = 0.001, 0.05
"""Seconds after which whoever cannot block looks again, since nobody tells it of an unlocked file."""
HOLDERS: dict[str, TurnHolder] = {}
"""The holders within this process of the records that are locked, by path."""


class Record:
    """The file at `path`, locked until `close`. Made if it is not there; then it is empty."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._held = [descriptor]
        self._process = os.getpid()
        self._holder: TurnHolder | None = None

    @classmethod
    def locked(cls, path: str, *, shared: bool = False, wait: bool = True) -> Record | None:
        """None if it is not to be had without waiting."""
        how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                _lock(descriptor, how, wait)
                if _is(descriptor, path):
                    record = cls(path, descriptor)
                    if not shared:
                        HOLDERS[path] = record._holder = TurnHolder.here()
                    return record
            except BlockingIOError:
                os.close(descriptor)
                return None
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # it was replaced while we waited

    def read(self) -> dict[str, Any]:
        """Returns the contents that were written last; an empty record if there are none."""
        return _contents(self.path, self._held[-1])

    @staticmethod
    def peek(path: str) -> dict[str, Any]:
        """Returns the contents without a lock: they are replaced whole, so they are never half."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return {}
        try:
            return _contents(path, descriptor)
        finally:
            os.close(descriptor)

    def replace(self, contents: dict[str, Any]) -> None:
        """On the disk when this returns, with all or nothing of it after a crash."""
        fresh = f"{self.path}.new"  # we alone are here; one that is left from a crash is used again
        mode = os.fstat(self._held[-1]).st_mode & 0o777
        descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        try:
            os.fchmod(descriptor, mode)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            write_all(descriptor, json.dumps(contents).encode())
            os.fsync(descriptor)
            os.rename(fresh, self.path)
        except BaseException:
            os.close(descriptor)
            raise
        self._held.append(descriptor)
        self._let_go(1)
        sync_folder(self.path)

    def touch(self) -> None:
        """Makes it as young as one that was replaced just now."""
        os.utime(self._held[-1])

    def remove(self) -> None:
        os.unlink(self.path)

    def close(self) -> None:
        if self._holder is not None and HOLDERS.get(self.path) is self._holder:
            del HOLDERS[self.path]  # before it is unlocked, and another puts itself there
        self._let_go(0)

    def _let_go(self, keep: int) -> None:
        """Unlocks and closes all files but the last `keep`: those that were replaced come first."""
        ours = self._process == os.getpid()
        while len(self._held) > keep:
            descriptor = self._held.pop(0)
            if ours:
                # A child that was forked meanwhile has it open, and would keep the lock with it. In
                # such a child itself it must stay locked: it is its parent's.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def __enter__(self) -> Record:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _lock(descriptor: int, how: int, wait: bool) -> None:
    """Locks a file; raises `BlockingIOError` if it is not to be had, and is not waited for."""
    if not (wait and greenlets()):
        fcntl.flock(descriptor, how if wait else how | fcntl.LOCK_NB)
        return
    # A call that waits would stop every greenlet of this thread, the holder's too.
    pause = FIRST_LOOK
    while True:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(pause)
            pause = min(pause * 2, LAST_LOOK)


class Damaged(GuaranteeError):
    """Raised when a record is not what was written to it."""

    @classmethod
    def at(cls, path: str) -> Damaged:
        return cls(f"the memory of a fence, {path!r}, is damaged; restore it, or reset() the fence")


def _contents(path: str, descriptor: int) -> dict[str, Any]:
    text = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    if not text:
        return {}
    try:
        contents = json.loads(text)
        if isinstance(contents, dict):
            return contents
    except ValueError:
        pass
    # Fail closed: a fence that does not know what it has seen lets nobody pass.
    raise Damaged.at(path)


def _is(descriptor: int, path: str) -> bool:
    ours = os.fstat(descriptor)
    try:
        named = os.stat(path)
    except FileNotFoundError:
        return False
    return (ours.st_dev, ours.st_ino) == (named.st_dev, named.st_ino)


def write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_folder(path: str) -> None:
    """Make the names in the folder of `path` last."""
    descriptor = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
