"""Eight processes that want one lock all the time: hand-offs per second, and the share of each.

A hand-off is a grant to another process than the one before. Most grants to a poller are none: the
process that releases takes the lock again while the others sleep. The floor is a byte that goes
round through bare pipes, which is as quick as waking the next process can be.
"""

from __future__ import annotations

import json
import os
import sys
import time
from array import array
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from filelock import FileLock  # type: ignore[import-not-found, unused-ignore]

import holdfast

from .measure import Child, Row, Setting, compare, duration, jain, say, url_of

PROCESSES = 8
SECONDS = 5.0
TARGET = 0.99
PATIENCE = 60.0

OURS, FILELOCK, RING = "holdfast", "filelock", "pipes"


class Outcome(NamedTuple):
    jain: float
    grants: float
    """Per second."""
    handoffs: float
    """Per second."""
    longest_wait: float
    shares: list[int]


def figure(setting: Setting) -> list[Row]:
    rounds, seconds = (1, 1.5) if setting.quick else (2, SECONDS)
    outcomes: dict[str, list[Outcome]] = {OURS: [], FILELOCK: [], RING: []}
    for index in range(rounds):
        for kind, found in outcomes.items():
            folder = setting.folder / f"{kind}-{index}"
            folder.mkdir()
            found.append(_crowd(kind, folder, seconds))

    fair = {kind: min(one.jain for one in found) for kind, found in outcomes.items()}
    wait = {kind: max(one.longest_wait for one in found) for kind, found in outcomes.items()}
    rate = {kind: median(one.handoffs for one in found) for kind, found in outcomes.items()}

    def beside(kind: str) -> float:
        pairs = zip(outcomes[OURS], outcomes[kind], strict=True)
        return median(ours.handoffs / max(other.handoffs, 1e-9) for ours, other in pairs)

    raw = {kind: [one._asdict() for one in found] for kind, found in outcomes.items()}
    return [
        Row(
            f"{PROCESSES} processes, one lock: fairness (Jain)",
            f"{fair[OURS]:.3f}",
            f"filelock {fair[FILELOCK]:.3f}",
            None,
            f"≥ {TARGET:g}",
            fair[OURS] >= TARGET,
            raw,
        ),
        compare(
            "  hand-offs per second",
            f"{rate[OURS]:,.0f}",
            f"filelock {rate[FILELOCK]:,.0f}",
            beside(FILELOCK),
        ),
        compare(
            "  hand-offs per second",
            f"{rate[OURS]:,.0f}",
            f"ring of pipes {rate[RING]:,.0f}",
            beside(RING),
        ),
        compare("  longest wait", duration(wait[OURS]), f"filelock {duration(wait[FILELOCK])}"),
    ]


def _crowd(kind: str, folder: Path, seconds: float) -> Outcome:
    pipes = [os.pipe() for _ in range(PROCESSES)] if kind == RING else []
    with ExitStack() as stack:
        children: list[Child] = []
        for index in range(PROCESSES):
            mine = [pipes[index][0], pipes[(index + 1) % PROCESSES][1]] if pipes else []
            child = Child("bench.handaround", kind, folder, index, *mine, pass_fds=mine)
            children.append(stack.enter_context(child))
        for child in children:
            child.receive()  # ready
        if pipes:
            os.write(pipes[0][1], b"\0")
        start = time.monotonic() + 0.3
        for child in children:
            child.send([start, start + seconds])
        waits = [child.receive() for child in children]
    for read, write in pipes:
        os.close(read)
        os.close(write)
    grants: list[tuple[float, int]] = []
    shares = []
    for index in range(PROCESSES):
        times = _load(folder / f"{index}.times")
        # Grants after the end are the last processes' way out, not part of the crowd.
        during = [when for when in times if when <= start + seconds]
        shares.append(len(during))
        grants.extend((when, index) for when in during)
    grants.sort()
    changes = sum(1 for a, b in pairwise(grants) if a[1] != b[1])
    return Outcome(jain(shares), len(grants) / seconds, changes / seconds, max(waits), shares)


def _load(file: Path) -> array[float]:
    times = array("d")
    times.frombytes(file.read_bytes())
    return times


# In the children.


def _take_part(kind: str, folder: Path, index: int, pipes: list[int]) -> None:
    if kind == RING:
        read, write = pipes

        def turn() -> Any:
            # After the end the byte goes round once more, so that nobody is left reading.
            os.read(read, 1)
            return lambda: os.write(write, b"\0")

        _join(turn, folder, index)
    elif kind == FILELOCK:
        file_lock = FileLock(folder / "bench.lock")
        _join(lambda: (file_lock.acquire(), file_lock.release)[1], folder, index)
    else:
        with holdfast.connect(url_of(folder / "locks.db")) as locks:
            lock = locks.lock("bench", timeout=PATIENCE)
            _join(lambda: lock.acquire().release, folder, index)


def _join(turn: Callable[[], Callable[[], Any]], folder: Path, index: int) -> None:
    now = time.monotonic
    times = array("d")
    longest = 0.0
    say("ready")
    start, end = json.loads(sys.stdin.readline())
    time.sleep(max(0.0, start - now()))
    asked = start
    while asked < end:
        release = turn()
        granted = now()
        release()
        longest = max(longest, granted - asked)
        times.append(granted)
        asked = now()
    (folder / f"{index}.times").write_bytes(times.tobytes())
    say(longest)


if __name__ == "__main__":
    _take_part(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), [int(fd) for fd in sys.argv[4:]])
