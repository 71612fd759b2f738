"""How a `FileFence` forgets the files of a folder: their memories go, and raise the folder's floors.

A memory is locked while it is forgotten, which takes an open file. So they go in batches. The floors
rise before each: whatever fails, no mark is gone without having raised them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from . import floors
from .file_memory import FLOORS, SUFFIX, FileMemory, mark_of, path_of, read_floors
from .record import Damaged, Record
from .rules import Mark

BATCH = 50
"""Files that are open at a time. A process may often have no more than 256, or 1,024, in all."""


def prune(record: Record, limit: float) -> int:
    """Forgets files at which no token was shown after `limit`; returns how many.

    `record` holds the folder's floors, and is locked.
    """
    paths = list(_memories(os.path.dirname(record.path)))
    old = [path for path in paths if not _young(path, limit)]
    kept = set(paths).difference(old)
    living = [_seen(path) for path in kept]
    forgotten = 0
    for start in range(0, len(old), BATCH):
        forgotten += _forget(record, old[start : start + BATCH], limit, living)
    if not old:
        _raise_floors(record, [], living)
    return forgotten


def _forget(record: Record, paths: Sequence[str], limit: float, living: list[Mark]) -> int:
    """Forgets those of `paths` that still may be; the marks of the others join `living`."""
    old: list[FileMemory] = []
    try:
        for path in paths:
            memory = _forgettable(path, limit)
            if memory is not None:
                old.append(memory)
            else:
                living.append(_seen(path))
        _raise_floors(record, [memory.mark for memory in old], living)
        for memory in old:
            memory.forget()
        return len(old)
    finally:
        for memory in old:
            memory.close()


def _raise_floors(record: Record, pruned: list[Mark], living: list[Mark]) -> None:
    known = read_floors(record)
    risen = floors.raised(known, pruned, living)
    if risen != known:
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
    except Damaged:
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
