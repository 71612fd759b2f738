"""The time from a release in one process to the grant in another.

From just before `release()` in this process to just after `acquire()` in the other, on the monotonic
clock that they share. The holder lets a random time pass first, so that a poller is met at every
point of its sleep. After that time the code of both sides has left the processor's caches, as it has
for most users, and a wake-up costs several times what it does when locks change hands all the
time; so it is measured both ways. A bare pipe between the two is the floor.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock  # type: ignore[import-not-found, unused-ignore]

import holdfast

from .measure import Child, Row, Setting, compare, duration, quantile, say, url_of

TARGET = 0.5e-3
LONG = (0.03, 0.09)
"""Seconds for which the lock is held; wider than the poller's sleep of 50 ms."""
SHORT = (0.002, 0.003)

OURS, FILELOCK, PIPE = "holdfast", "filelock", "pipe"

Hold = Callable[[], Callable[[], Any]]
"""Function that acquires, and returns the function that releases."""


def figure(setting: Setting) -> list[Row]:
    rounds = 15 if setting.quick else 100
    read, write = os.pipe()
    with (
        holdfast.connect(url_of(setting.folder / "locks.db")) as locks,
        Child("bench.wakeup", setting.folder, read, pass_fds=[read]) as other,
    ):
        lock = locks.lock("bench")
        file_lock = FileLock(setting.folder / "bench.lock")
        holds: dict[str, Hold] = {
            OURS: lambda: lock.acquire().release,
            FILELOCK: lambda: (file_lock.acquire(), file_lock.release)[1],
            PIPE: lambda: lambda: os.write(write, b"\0"),
        }
        samples = _measure(holds, other, rounds, LONG)
        del holds[FILELOCK]
        short = _measure(holds, other, 2 * rounds, SHORT)
    os.close(read)
    os.close(write)

    p50 = {kind: quantile(values, 0.5) for kind, values in samples.items()}
    p99 = {kind: quantile(values, 0.99) for kind, values in samples.items()}
    brief = {kind: quantile(values, 0.5) for kind, values in short.items()}
    return [
        Row(
            "wake-up of a waiter, p50",
            duration(p50[OURS]),
            f"filelock {duration(p50[FILELOCK])}",
            p50[OURS] / p50[FILELOCK],
            f"≤ {duration(TARGET)}",
            p50[OURS] <= TARGET,
            {"p50": p50, "p99": p99, "samples": samples, "held shortly": short},
        ),
        compare("  p99", duration(p99[OURS]), f"filelock {duration(p99[FILELOCK])}"),
        _beside_pipe("  p50 beside a bare pipe", p50),
        _beside_pipe("  the same, held for 2 ms only", brief),
    ]


def _beside_pipe(what: str, p50: dict[str, float]) -> Row:
    other = f"pipe {duration(p50[PIPE])}"
    return compare(what, duration(p50[OURS]), other, p50[OURS] / p50[PIPE])


def _measure(
    holds: dict[str, Hold], other: Child, rounds: int, held: Sequence[float]
) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {kind: [] for kind in holds}
    chance = random.Random(1)
    for index in range(rounds + 1):
        for kind, acquire in holds.items():
            release = acquire()
            other.send(kind)
            time.sleep(chance.uniform(*held))
            released = time.monotonic()
            release()
            woken = other.receive()
            if index > 0:  # the first one opens files and starts threads
                samples[kind].append(woken - released)
    return samples


def _wait(folder: Path, read: int) -> None:
    """Waits, in the other process, for the lock that each line names; says when it was granted."""
    with holdfast.connect(url_of(folder / "locks.db")) as locks:
        lock = locks.lock("bench")
        file_lock = FileLock(folder / "bench.lock")
        for line in sys.stdin:
            kind = json.loads(line)
            if kind == OURS:
                lease = lock.acquire()
                woken = time.monotonic()
                lease.release()
            elif kind == FILELOCK:
                file_lock.acquire()
                woken = time.monotonic()
                file_lock.release()
            else:
                os.read(read, 1)
                woken = time.monotonic()
            say(woken)


if __name__ == "__main__":
    _wait(Path(sys.argv[1]), int(sys.argv[2]))
