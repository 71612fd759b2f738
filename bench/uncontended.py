"""Acquire and release a lock that nobody else wants, on the embedded store.

All candidates take turns within one process. Several processes are measured one after the other,
because the layout of a process's memory alone can make it a third slower than its twin.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

from filelock import FileLock  # type: ignore[import-not-found, unused-ignore]

import holdfast
import holdfast.aio

from .measure import Child, Row, Samples, Setting, compare, duration, interleave, ratio, say, url_of

TARGET = 0.6

OURS, OURS_AIO, FILELOCK = "holdfast", "holdfast.aio", "filelock"
EMPTY, WRITE = "twice BEGIN IMMEDIATE, COMMIT", "the same, one row changed"


def figure(setting: Setting) -> list[Row]:
    processes, rounds = (2, 10) if setting.quick else (6, 40)
    samples: Samples = {}
    for index in range(processes):
        folder = setting.folder / str(index)
        folder.mkdir()
        with Child("bench.uncontended", folder, rounds) as child:
            for name, values in child.receive().items():
                samples.setdefault(name, []).extend(values)
    ours = samples[OURS]
    to_filelock = ratio(ours, samples[FILELOCK])
    seconds = {name: median(values) for name, values in samples.items()}
    shown = {name: duration(value) for name, value in seconds.items()}
    rows = [
        Row(
            "acquire + release",
            shown[OURS],
            f"filelock {shown[FILELOCK]}",
            to_filelock,
            f"≤ {TARGET:g}",
            to_filelock <= TARGET,
            {"seconds": seconds, "samples": samples},
        )
    ]
    for floor in (EMPTY, WRITE):
        beside = f"{floor} {shown[floor]}"
        rows.append(
            compare("  beside raw SQLite", shown[OURS], beside, ratio(ours, samples[floor]))
        )
    beside = f"blocking {shown[OURS]}"
    rows.append(compare("  in asyncio", shown[OURS_AIO], beside, ratio(samples[OURS_AIO], ours)))
    return rows


def _measure(folder: Path, rounds: int) -> Samples:
    with holdfast.connect(url_of(folder / "blocking.db")) as locks, asyncio.Runner() as runner:
        aio_locks = holdfast.aio.connect(url_of(folder / "asyncio.db"))
        batches = {
            OURS: _ours(locks.lock("bench")),
            FILELOCK: _filelock(FileLock(folder / "bench.lock")),
            EMPTY: _sqlite(folder / "empty.db", ""),
            WRITE: _sqlite(folder / "write.db", "UPDATE counter SET value = value + 1"),
            OURS_AIO: _ours_aio(runner, aio_locks.lock("bench")),
        }
        try:
            return interleave(batches, rounds, 100)
        finally:
            runner.run(aio_locks.close())


def _ours(lock: holdfast.Lock) -> Callable[[int], None]:
    def batch(number: int) -> None:
        for _ in range(number):
            lock.acquire().release()

    return batch


def _ours_aio(runner: asyncio.Runner, lock: holdfast.aio.Lock) -> Callable[[int], None]:
    async def turns(number: int) -> None:
        for _ in range(number):
            lease = await lock.acquire()
            await lease.release()

    return lambda number: runner.run(turns(number))


def _filelock(lock: FileLock) -> Callable[[int], None]:
    def batch(number: int) -> None:
        for _ in range(number):
            lock.acquire()
            lock.release()

    return batch


def _sqlite(file: Path, statement: str) -> Callable[[int], None]:
    """Returns the floor: the same number of transactions, without anything around them."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("CREATE TABLE counter (value INTEGER)")
    connection.execute("INSERT INTO counter VALUES (0)")
    execute = connection.execute

    def batch(number: int) -> None:
        for _ in range(2 * number):
            execute("BEGIN IMMEDIATE")
            if statement:
                execute(statement)
            execute("COMMIT")

    return batch


if __name__ == "__main__":
    say(_measure(Path(sys.argv[1]), int(sys.argv[2])))
