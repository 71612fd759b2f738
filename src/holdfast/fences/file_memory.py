"""The memory of `FileFence`: what it keeps of each file, in a file beside it, and how it commits."""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from typing import Any

from ..errors import ConfigError, GuaranteeError
from ..interrupts import real_path
from . import floors, rules
from .floors import Floor
from .record import Damaged, Record, write_all
from .replacement import staged_file
from .rules import Credential, Mark

SUFFIX = ".fence"
FLOORS = ".holdfast-floors.fence"
MAX_NAME = 255
"""Bytes of a file's name, on every file system that is in use."""
OWN = re.compile(r"\..*\.fence(-a|-b|\.new)?", re.DOTALL)

REFUSED = (errno.EPERM, errno.EACCES, errno.EBUSY, errno.EISDIR)
"""Errors of a rename that say that nothing was renamed, and that it will be so the next time."""

Path = str | os.PathLike[str]


class NotPlaced(GuaranteeError):
    """Raised when data that was committed cannot be put in the place of its file."""


class FileMemory:
    """The fence's memory of one file, locked until `close`."""

    def __init__(
        self,
        record: Record,
        known: dict[str, Floor],
        path: str = "",
        single_use: bool = False,
        state: dict[str, Any] | None = None,
    ) -> None:
        """`state` is what the record holds, if that is known already."""
        self.path = path
        self.damaged = False
        self.dropped = ""
        """The name of what was staged and could not be put in place: the reset drops it."""
        self._record = record
        self._floors = known
        self._single_use = single_use
        if state is None:
            state = record.read()
        self._before = state
        self.saved = False
        """True once the mark was changed since it was locked."""
        self.mark = mark_of(record.path, state)
        self.resets: list[Any] = _resets(record.path, state)
        self._empty = not state
        self._pending = pending_of(record.path, state)
        """The name under which the last write was staged; gone, unless its writer was killed."""
        if path and self._pending:
            with suppress(FileNotFoundError):
                self._place()

    @classmethod
    def healed(cls, record: Record, path: str) -> FileMemory:
        """Returns the memory for a reset: a damaged one counts as none, and what is staged may go."""
        try:
            return cls(record, {}, path)
        except NotPlaced:
            state = record.read()
            memory = cls(record, {}, path, state={**state, "pending": ""})
            memory.dropped = pending_of(record.path, state)
            return memory
        except Damaged:
            memory = cls(record, {}, path, state={})
            memory.damaged = True
            memory._empty = False  # what is there stays until it is replaced
            return memory

    def check(self, given: Credential) -> None:
        if self._empty:
            self.mark = floors.unknown(self._floors, given)
        refused = rules.refusal(self.path, self.mark, given, self._single_use)
        if refused is not None:
            raise refused

    def stage(self, contents: bytes) -> str:
        """Writes the data to a file of its own, on the disk, and returns the path."""
        # Not under the name that the memory holds: what is found there was committed.
        fresh = f"{self._record.path}-{'b' if self._pending.endswith('-a') else 'a'}"
        descriptor = staged_file(fresh, self.path)
        try:
            write_all(descriptor, contents)
            os.fsync(descriptor)
        except BaseException:
            os.unlink(fresh)
            raise
        finally:
            os.close(descriptor)
        return fresh

    def place(self) -> None:
        """Puts what was staged and committed in place; takes both back if that is refused."""
        try:
            self._place()
        except NotPlaced as error:
            self.retract()
            os.unlink(self._staged(self._pending))
            raise ConfigError(
                f"{self.path!r} cannot be replaced by a new file: {error.__cause__}. Nothing was "
                "changed. Let this user replace it (in a folder with the sticky bit only the owner of "
                "a file may), or write to it inside hold()"
            ) from error.__cause__

    def _place(self) -> None:
        try:
            os.rename(self._staged(self._pending), self.path)
        except OSError as error:
            if error.errno not in REFUSED:
                raise
            raise NotPlaced(
                f"what was last written to {self.path!r} is committed, and cannot be put in its place: "
                f"{error}. Let this user replace the file, or have one who may call the fence; or "
                "reset() the fence, which drops what was written"
            ) from error

    def _staged(self, name: str) -> str:
        return os.path.join(os.path.dirname(self.path), name)

    def commit(self, given: Credential, staged: str | None = None) -> None:
        mark = rules.after(self.mark, given)
        if staged is not None:
            self._pending = staged
        elif mark == self.mark and not self._empty:
            self._record.touch()  # nothing else to remember
            return
        self.reset(mark)

    def retract(self) -> None:
        """Takes back what was committed since it was locked, and has not changed the file."""
        if not self.saved or not self._record.ours:
            return
        if not self._before:
            self._empty = True  # so `close` removes it
        else:
            self._record.replace(self._before)

    def reset(self, mark: Mark) -> None:
        self.mark = mark
        state = {"token": mark.highest, "lock": mark.lock, "reader": mark.reader}
        self._record.replace({**state, "pending": self._pending, "resets": self.resets})
        self._empty, self.saved = False, True
        if self.dropped:
            with suppress(FileNotFoundError):
                os.unlink(self._staged(self.dropped))

    def forget(self) -> None:
        self._record.remove()

    def close(self) -> None:
        if self._empty and self._record.ours:  # it helps nobody
            with suppress(FileNotFoundError):
                self._record.remove()
        self._record.close()


def mark_of(path: str, state: dict[str, Any]) -> Mark:
    """Returns the mark that is kept in the memory at `path`."""
    mark = Mark(state.get("token", 0), state.get("lock", ""), state.get("reader", 0))
    if [type(part) for part in mark] != [int, str, int]:
        raise Damaged.at(path)
    return mark


def pending_of(path: str, state: dict[str, Any]) -> str:
    """Returns the name of what was staged by the last write, which is in the same folder."""
    pending = state.get("pending", "")
    if not isinstance(pending, str) or os.path.basename(pending) != pending or "\0" in pending:
        raise Damaged.at(path)
    return pending


def _resets(path: str, state: dict[str, Any]) -> list[Any]:
    resets = state.get("resets", [])
    if not isinstance(resets, list):
        raise Damaged.at(path)
    return resets


def check_path(path: object) -> None:
    """Refuses what is no path: an int would be taken for an open file, and None for a folder."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str):
        raise ConfigError(f"path must be a str or a pathlib.Path, not {type(path).__name__}")
    try:
        possible = bool(text) and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        possible = False
    if not possible:
        raise ConfigError(f"no file can have this path: {text!r:.80}")
    room = MAX_NAME - len(f".{SUFFIX}.new")
    if len(os.fsencode(os.path.basename(real_path(text)))) > room:
        raise ConfigError(
            f"the name of a fenced file may have {room} bytes, since that of its memory is longer, "
            f"not as many as {text!r:.80}"
        )


def memory_path(path: Path) -> str:
    """Returns the path of the fence's memory of a file."""
    check_path(path)
    folder, name = os.path.split(real_path(path))
    memory = f".{name}{SUFFIX}"
    if memory == FLOORS or OWN.fullmatch(name):
        raise ConfigError(f"{name!r} is one of the fence's own files, where it remembers tokens")
    return os.path.join(folder, memory)


def path_of(memory: str) -> str:
    """Returns the path of the file that a memory is of."""
    folder, name = os.path.split(memory)
    return os.path.join(folder, name[1 : -len(SUFFIX)])


def read_floors(record: Record) -> dict[str, Floor]:
    """Returns the floors of a folder."""
    try:
        contents = record.read()
        known = floors.loaded(contents.get("floors", contents))
        if all(type(number) is int for floor in known.values() for number in floor[:2]):
            return known
    except (Damaged, AttributeError, TypeError):
        pass
    raise GuaranteeError(
        f"what a fence remembers of forgotten files, {record.path!r}, is damaged; restore it, or end "
        "every writer whose lease is over, and remove it"
    )
