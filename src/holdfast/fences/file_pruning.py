"""How a `FileFence` forgets the files of a folder: their memories go, and raise the folder's floors.

The floors rise first, by all that is about to go: whatever fails, no mark is gone without having raised
them. A memory that is in use by then stays, and so does its lock: in the end the floors are set as they
are for those that have really gone. Meanwhile nobody sees them, since we have them locked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from . import floors
from .file_memory import FLOORS, SUFFIX, FileMemory, NotPlaced, mark_of, path_of, read_floors
from .floors import Floor
from .record import Damaged, Record
from .rules import Mark


def prune(record: Record, limit: float) -> int:
    """Forgets files at which no token was shown after `limit`; returns how many.

    `record` holds the folder's floors, and is locked.
    """
    known = read_floors(record)
    old: dict[str, Mark] = {}
    living: list[Mark] = []
    for path in _memories(os.path.dirname(record.path)):
        memory = _forgettable(path, limit)
        if memory is None:
            living.append(_seen(path))
        else:
            old[path] = memory.mark
            memory.close()  # one at a time is open: a process may have few
    _set_floors(record, floors.raised(known, old.values(), living))
    pruned: list[Mark] = []
    for path, mark in old.items():
        if _forget(path, limit, mark):
            pruned.append(mark)
        else:
            living.append(_seen(path))
    _set_floors(record, floors.raised(known, pruned, living))
    return len(pruned)


def _forget(path: str, limit: float, mark: Mark) -> bool:
    """Forgets a file; returns False if a token was shown meanwhile, or is being shown."""
    memory = _forgettable(path, limit)
    if memory is None:
        return False
    try:
        if memory.mark != mark:
            return False
        memory.forget()
        return True
    finally:
        memory.close()


def _set_floors(record: Record, risen: dict[str, Floor]) -> None:
    if risen != read_floors(record):
        record.replace({"floors": risen, "resets": record.read().get("resets", [])})


def _memories(folder: str) -> Iterator[str]:
    """Yields the paths of all memories in a folder."""
    for name in os.listdir(folder):
        if name.startswith(".") and name.endswith(SUFFIX) and name != FLOORS:
            yield os.path.join(folder, name)


def _young(path: str, limit: float) -> bool:
    """Returns True if a token was shown after `limit`, or the memory is gone."""
    try:
        return os.stat(path).st_mtime > limit
    except FileNotFoundError:
        return True  # it was empty, and its writer took it along


def _forgettable(path: str, limit: float) -> FileMemory | None:
    """Returns a memory that may be pruned, locked; None if it is in use, younger, or not to be."""
    if _young(path, limit):
        return None
    record = Record.locked(path, wait=False)
    if record is None:
        return None  # somebody is writing right now
    try:
        # Which also finishes what a killed writer had committed.
        memory = FileMemory(record, {}, path_of(path))
    except (Damaged, NotPlaced):
        record.close()
        return None  # which its next writer is told
    except BaseException:
        record.close()
        raise
    if not _young(path, limit) and floors.prunable(memory.mark):
        return memory
    memory.close()
    return None


def _seen(path: str) -> Mark:
    """Returns the mark of a file as it was last committed, without a lock."""
    try:
        return mark_of(path, Record.peek(path))
    except Damaged:
        return Mark()  # which its next writer is told
