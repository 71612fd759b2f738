"""The janitor's own process. It is run by its path, and knows nothing but the standard library.

It reads lines: `+process PID BEGAN`, `-process …`, `+folder PATH`, `-folder …`. At their end, which
comes when the process that writes them has ended, it kills the processes that are left, with their
groups and all that they started, and every process that has the mark in its environment; then it
removes the folders.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import suppress

LIMIT = 20.0
REMOVE = 0
"""The command of shmctl that removes a segment."""


def stat_fields(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def all_processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def is_marked(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:
        return False


def leftovers(known: dict[int, str], mark: bytes) -> set[int]:
    """Returns the processes that are to end: known, of a known group, started by one, or marked."""
    lives: dict[int, tuple[int, int, int]] = {}
    found: set[int] = set()
    for pid in all_processes():
        fields = stat_fields(pid)
        if not fields or fields[0] in "ZX" or pid == os.getpid():
            continue
        lives[pid] = int(fields[1]), int(fields[2]), int(fields[3])
        if (pid in known and known[pid] in ("", fields[19])) or is_marked(pid, mark):
            found.add(pid)
    roots = set(known) - {pid for pid in lives if pid in known and pid not in found}
    more = True
    while more:
        more = False
        for pid, family in lives.items():
            if pid not in found and (family[0] in found or roots.intersection(family[1:])):
                found.add(pid)
                more = True
    return found


def free_segment(data: str) -> None:
    """Removes the shared memory that a PostgreSQL with this data folder leaves when it is killed."""
    with suppress(OSError, IndexError, ValueError):
        with open(os.path.join(data, "postmaster.pid"), encoding="utf-8") as file:
            segment = int(file.read().splitlines()[6].split()[1])
        import ctypes

        ctypes.CDLL(None).shmctl(segment, REMOVE, None)


def clean(known: dict[int, str], folders: list[str], mark: bytes) -> None:
    until = time.monotonic() + LIMIT
    while (left := leftovers(known, mark)) and time.monotonic() < until:
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    for folder in folders:
        free_segment(os.path.join(folder, "data"))
        for _ in range(20):
            shutil.rmtree(folder, ignore_errors=True)
            if not os.path.exists(folder):
                break
            time.sleep(0.05)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    mark = sys.argv[1].encode()
    told: dict[str, None] = {}
    for line in sys.stdin:
        text = line.rstrip("\n")
        if text.startswith("+"):
            told[text[1:]] = None
        else:
            told.pop(text[1:], None)
    known: dict[int, str] = {}
    folders: list[str] = []
    for entry in told:
        what, _, rest = entry.partition(" ")
        if what == "process":
            pid, _, began = rest.partition(" ")
            known[int(pid)] = began
        else:
            folders.append(rest)
    clean(known, folders, mark)


if __name__ == "__main__":
    main()
