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
from io import FileIO
from typing import Any
from weakref import ref

from .. import forks
from ..errors import GuaranteeError
from ..interrupts import let_through
from ..surroundings import greenlets
from .replacement import dress, fresh_file, give_to_folder
from .turn_holder import TurnHolder

FIRST_LOOK, LAST_LOOK = 0.001, 0.05
"""Seconds after which whoever cannot block looks again, since nobody tells it of an unlocked file."""
HOLDERS: dict[str, ref[Record]] = {}
"""The records that this process has locked, by path."""


class Record:
    """The file at `path`, locked until `close`. Made if it is not there; then it is empty.

    A signal's handler may raise between any two steps, also at the beginning of `close`. So files are
    objects that are closed, and so unlocked, when they are dropped.

    A forked child closes its copies at once. They are its parent's lock, and with them the child would
    have it for as long as it lives, also when the parent was killed.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.holder = TurnHolder.here()
        self._process = os.getpid()
        self._held: list[FileIO] = []
        """Open files, each locked or about to be; the last one has the name."""
        forks.survive(self)

    def _after_fork(self) -> None:
        self._let_go(0)

    @property
    def ours(self) -> bool:
        """False in a child that was forked meanwhile: there the record is its parent's."""
        return self._process == os.getpid()

    @classmethod
    def locked(cls, path: str, *, shared: bool = False, wait: bool = True) -> Record | None:
        """Returns the record, locked; None if it is not to be had without waiting."""
        forks.current()  # closes what is its parent's in a child that Python was not told of
        record = cls(path)
        try:
            while True:
                record._held.append(FileIO(path, "a+"))
                _lock(record._held[-1], fcntl.LOCK_SH if shared else fcntl.LOCK_EX, wait)
                if _is(record._held[-1], path):
                    give_to_folder(record._held[-1].fileno(), path)
                    if not shared:
                        HOLDERS[path] = ref(record)
                    return record
                record._let_go(0)  # it was replaced while we waited
        except BlockingIOError as error:
            record.close()
            let_through(error)
            return None
        except BaseException:
            record.close()
            raise

    @staticmethod
    def holder_of(path: str) -> TurnHolder | None:
        """Returns who has locked the file within this process; None if nobody has."""
        found = HOLDERS.get(path)
        record = found() if found is not None else None
        return record.holder if record is not None else None

    def read(self) -> dict[str, Any]:
        """Returns the contents that were written last; an empty record if there are none."""
        return _contents(self.path, self._held[-1].fileno())

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
        """Writes the contents, on the disk when this returns; after a crash all of it, or nothing."""
        fresh = f"{self.path}.new"  # we alone are here
        file = FileIO(fresh, "r+", opener=lambda path, _: fresh_file(path))
        self._held.insert(0, file)  # the first is not the one that is read
        descriptor = file.fileno()
        dress(descriptor, self._held[-1].fileno())
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        write_all(descriptor, json.dumps(contents).encode())
        os.fsync(descriptor)
        os.rename(fresh, self.path)
        self._held.reverse()
        self._let_go(1)
        sync_folder(self.path)

    def touch(self) -> None:
        """Makes it as young as one that was replaced just now."""
        os.utime(self._held[-1].fileno())

    def remove(self) -> None:
        os.unlink(self.path)

    def close(self) -> None:
        found = HOLDERS.get(self.path)
        if found is not None and found() is self:
            del HOLDERS[self.path]  # before it is unlocked, and another puts itself there
        self._let_go(0)

    def _let_go(self, keep: int) -> None:
        """Unlocks and closes all files but the last `keep`: those that were replaced come first."""
        while len(self._held) > keep:
            file = self._held[0]
            if self.ours and not file.closed:
                # A child that was forked by C code meanwhile has it open, and would keep the lock with
                # it. In such a child itself it must stay locked: it is its parent's.
                fcntl.flock(file, fcntl.LOCK_UN)
            file.close()
            del self._held[0]

    def __enter__(self) -> Record:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _lock(file: FileIO, how: int, wait: bool) -> None:
    """Locks a file; raises `BlockingIOError` if it is not to be had, and is not waited for."""
    if not (wait and greenlets()):
        fcntl.flock(file, how if wait else how | fcntl.LOCK_NB)
        return
    # A call that waits would stop every greenlet of this thread, the holder's too.
    pause = FIRST_LOOK
    while True:
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            let_through(error)
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


def _is(file: FileIO, path: str) -> bool:
    """Returns True if the file still has this name."""
    ours = os.fstat(file.fileno())
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
