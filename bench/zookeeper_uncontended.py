"""Acquire and release of locks that nobody else wants, on ZooKeeper: one name, and fresh ones.

The floor is the time that kazoo takes to create an ephemeral znode and to delete it. All candidates
take turns within one process, each with a connection of its own to the same server of one ensemble.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable
from statistics import median
from typing import Any

import holdfast
import holdfast.aio

from .measure import Child, Row, Samples, Setting, compare, duration, interleave, ratio, say
from .zookeeper_ensemble import ensemble

RAW, OURS, AIO, PEER = "raw create + delete", "holdfast", "holdfast.aio", "kazoo Lock"
FRESH, FRESH_PEER = "holdfast, fresh names", "kazoo Lock, fresh names"


def figure(setting: Setting) -> list[Row]:
    processes, rounds = (1, 8) if setting.quick else (2, 30)
    samples: Samples = {}
    with ensemble(setting.folder) as hosts:
        # One server for all: which one is the leader makes more of a difference than the library.
        server = hosts.partition(",")[0]
        for _ in range(processes):
            with Child("bench.zookeeper_uncontended", server, rounds) as child:
                for name, values in child.receive().items():
                    samples.setdefault(name, []).extend(values)
    seconds = {name: median(values) for name, values in samples.items()}
    shown = {name: duration(value) for name, value in seconds.items()}

    def row(what: str, ours: str, target: float) -> Row:
        found = ratio(samples[ours], samples[RAW])
        floor = f"{RAW} {shown[RAW]}"
        return Row(
            what, shown[ours], floor, found, f"≤ {target:g}", found <= target, {"seconds": seconds}
        )

    def peer(name: str) -> Row:
        floor = f"{RAW} {shown[RAW]}"
        return compare(f"  {name}", shown[name], floor, ratio(samples[name], samples[RAW]))

    return [
        row("blocking, acquire + release", OURS, 1.4),
        row("asyncio, one coroutine", AIO, 1.4),
        peer(PEER),
        row("fresh names", FRESH, 2.2),
        peer(FRESH_PEER),
    ]


def _measure(hosts: str, rounds: int) -> Samples:
    from kazoo.client import KazooClient

    client = KazooClient(hosts)
    client.start()
    client.ensure_path("/raw")
    numbers = itertools.count()
    with holdfast.connect(f"zookeeper://{hosts}/ours") as locks, asyncio.Runner() as runner:
        others = holdfast.aio.connect(f"zookeeper://{hosts}/aio")
        batches: dict[str, Callable[[int], object]] = {
            RAW: _raw(client),
            OURS: _blocking(lambda: locks.lock("bench")),
            AIO: lambda number: runner.run(_aio(others.lock("bench"), number)),
            PEER: _recipe(client, lambda: "/peer/bench"),
            FRESH: _blocking(lambda: locks.lock(f"fresh{next(numbers)}")),
            FRESH_PEER: _recipe(client, lambda: f"/peer/fresh{next(numbers)}"),
        }
        samples = interleave(batches, rounds, 40)
        runner.run(others.close())
    client.stop()
    client.close()
    return samples


def _raw(client: Any) -> Callable[[int], None]:
    def batch(number: int) -> None:
        for _ in range(number):
            client.delete(client.create("/raw/x-", b"", ephemeral=True, sequence=True))

    return batch


def _blocking(make: Callable[[], holdfast.Lock]) -> Callable[[int], None]:
    def batch(number: int) -> None:
        for _ in range(number):
            make().acquire().release()

    return batch


async def _aio(lock: holdfast.aio.Lock, number: int) -> None:
    for _ in range(number):
        await (await lock.acquire()).release()


def _recipe(client: Any, path: Callable[[], str]) -> Callable[[int], None]:
    def batch(number: int) -> None:
        for _ in range(number):
            lock = client.Lock(path(), "bench")
            lock.acquire()
            lock.release()

    return batch


if __name__ == "__main__":
    say(_measure(sys.argv[1], int(sys.argv[2])))
