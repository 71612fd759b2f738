"""The other primitives beside a lock, on each store: a permit, a reader, four locks at once.

All take turns within one process, in blocking code, against one server for each store. Of 32 readers
that each hold for a while, all should be done in the time of about one.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from statistics import median

import holdfast

from .etcd_server import server as etcd_server
from .measure import (
    Batch,
    Child,
    Row,
    Samples,
    Setting,
    compare,
    duration,
    interleave,
    ratio,
    say,
    times,
    url_of,
)
from .redis_server import server as redis_server
from .sql_server import mariadb, postgres
from .zookeeper_ensemble import ensemble

TARGET, TARGET_OF_FOUR = 1.2, 2.0
READERS, HOLD = 32, 0.1
LOCK, PERMIT, READER, FOUR = "lock", "permit of a semaphore", "reader", "multi of four"
TOGETHER = "32 readers"


def figure(setting: Setting) -> list[Row]:
    rows = []
    for store, serve in STORES.items():
        folder = setting.folder / store
        folder.mkdir()
        with serve(folder) as url:
            samples: Samples = {}
            for _ in range(1 if setting.quick else 3):
                with Child("bench.primitives", url, 8 if setting.quick else 40) as child:
                    for name, values in child.receive().items():
                        samples.setdefault(name, []).extend(values)
            rows += _rows(store, samples)
    return rows


def _rows(store: str, samples: Samples) -> list[Row]:
    seconds = {name: median(values) for name, values in samples.items()}
    rows = []
    for what in (PERMIT, READER, FOUR):
        found = ratio(samples[what], samples[LOCK])
        beside = f"a lock {duration(seconds[LOCK])}"
        aim = TARGET_OF_FOUR if what == FOUR else TARGET
        if what == FOUR and store != "redis":
            rows.append(compare(f"{store}: {what}", duration(seconds[what]), beside, found))
            continue
        row = Row(
            f"{store}: {what}",
            duration(seconds[what]),
            beside,
            found,
            f"≤ {aim:g}",
            found <= aim,
            {"seconds": seconds, "samples": samples},
        )
        rows.append(row)
    found = seconds[TOGETHER] / HOLD
    rows.append(
        Row(
            f"{store}: {READERS} readers for {HOLD:g} s each",
            duration(seconds[TOGETHER]),
            f"one after the other {duration(READERS * HOLD)}",
            found / READERS,
            "≤ 0.25",
            found <= READERS / 4,
            seconds,
        )
    )
    return rows


def _measure(url: str, rounds: int) -> Samples:
    with holdfast.connect(url) as locks:
        lock, permit = locks.lock("a lock"), locks.semaphore("a semaphore", permits=8)
        reader = locks.rwlock("a book").read()
        four = locks.multi([f"one of four: {number}" for number in range(4)])
        batches: dict[str, Batch] = {
            LOCK: times(lambda: lock.acquire().release()),
            PERMIT: times(lambda: permit.acquire().release()),
            READER: times(lambda: reader.acquire().release()),
            FOUR: times(lambda: four.acquire().release()),
        }
        samples = interleave(batches, rounds, 20)
        samples[TOGETHER] = [_together(locks) for _ in range(3)]
        return samples


def _together(locks: holdfast.Locks) -> float:
    """Returns the seconds that all readers took."""
    reader = locks.rwlock("another book").read()
    barrier = threading.Barrier(READERS + 1)

    def read() -> None:
        barrier.wait()
        with reader:
            time.sleep(HOLD)

    threads = [threading.Thread(target=read) for _ in range(READERS)]
    for thread in threads:
        thread.start()
    barrier.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


@contextmanager
def _sqlite(folder: Path) -> Iterator[str]:
    yield url_of(folder / "locks.db")


@contextmanager
def _redis(folder: Path) -> Iterator[str]:
    with redis_server(folder) as port:
        yield f"redis://127.0.0.1:{port}"


@contextmanager
def _redlock(folder: Path) -> Iterator[str]:
    with ExitStack() as stack:
        nodes = []
        for number in range(3):
            (folder / str(number)).mkdir()
            port = stack.enter_context(redis_server(folder / str(number)))
            nodes.append(f"127.0.0.1:{port}")
        yield f"redlock://{','.join(nodes)}"


@contextmanager
def _etcd(folder: Path) -> Iterator[str]:
    with etcd_server(folder) as port:
        yield f"etcd://127.0.0.1:{port}"


@contextmanager
def _zookeeper(folder: Path) -> Iterator[str]:
    with ensemble(folder) as hosts:
        yield f"zookeeper://{hosts}"


@contextmanager
def _postgres(folder: Path) -> Iterator[str]:
    with postgres() as server:
        yield server.emptied_database()


@contextmanager
def _mariadb(folder: Path) -> Iterator[str]:
    with mariadb() as server:
        yield server.new_database()


STORES: dict[str, Callable[[Path], AbstractContextManager[str]]] = {
    "sqlite": _sqlite,
    "redis": _redis,
    "redlock": _redlock,
    "etcd": _etcd,
    "zookeeper": _zookeeper,
    "postgres": _postgres,
    "mariadb": _mariadb,
}

if __name__ == "__main__":
    say(_measure(sys.argv[1], int(sys.argv[2])))
