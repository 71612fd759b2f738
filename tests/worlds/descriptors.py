"""Descriptors and threads of this process: those that there are, and to wait for one."""

from __future__ import annotations

import os
import select
from contextlib import suppress
from pathlib import Path
from typing import Protocol


class HasDescriptor(Protocol):
    def fileno(self) -> int: ...


def readable(thing: int | HasDescriptor, seconds: float) -> bool:
    """Whether there is something to read, now or within that time.

    Whatever the descriptor's number: `select.select` stops at 1,024.
    """
    poll = select.poll()
    poll.register(thing, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def open_files(folder: Path) -> int:
    """Counts the files below `folder` that this process has open; other tests may leave others."""
    found = 0
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the listing's own, which is closed by now
            found += os.readlink(f"/proc/self/fd/{number}").startswith(str(folder))
    return found


def running_threads() -> int:
    """Counts the threads of this process, also those that `threading` does not know of."""
    return len(os.listdir("/proc/self/task"))
