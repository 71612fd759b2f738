"""From the release in one process to the grant in another, on Redis, with one who waits."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable

import holdfast
import holdfast.aio

from .measure import Child, Row, Setting, duration, quantile, say
from .redis_raw import RawQueue
from .redis_server import server

KINDS = ("raw", "blocking", "asyncio")


def figure(setting: Setting) -> list[Row]:
    """The waiter says when it was granted, on the clock that all processes of a machine share."""
    rounds = 100 if setting.quick else 600
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with (
        server(setting.folder) as port,
        Child("bench.redis_wakeup", "raw", port) as floor,
        Child("bench.redis_wakeup", "blocking", port) as blocking,
        Child("bench.redis_wakeup", "asyncio", port) as aio,
        holdfast.connect(f"redis://127.0.0.1:{port}/0") as locks,
    ):
        children = dict(zip(KINDS, (floor, blocking, aio), strict=True))
        for child in children.values():
            child.receive()
        queue = RawQueue(port)
        for index in range(rounds):
            for kind in KINDS[index % 3 :] + KINDS[: index % 3]:
                child = children[kind]
                took = _raw_once(child, queue) if kind == "raw" else _once(child, locks)
                found[kind].append(took)
    rows = []
    middle = {kind: quantile(values, 0.5) for kind, values in found.items()}
    for kind in KINDS[1:]:
        factor = middle[kind] / middle["raw"]
        rows.append(
            Row(
                f"wake-up, {kind}, p50",
                duration(middle[kind]),
                f"raw queue {duration(middle['raw'])}",
                factor,
                "≤ 2.0",
                factor <= 2.0,
                {"samples": found},
            )
        )
    return rows


def _raw_once(child: Child, queue: RawQueue) -> float:
    queue.take()
    return _timed(child, lambda: queue.waiters() == 1, queue.give)


def _once(child: Child, locks: holdfast.Locks) -> float:
    lease = locks.lock("wakeup").acquire()
    return _timed(child, lambda: bool(locks.inspect("wakeup").waiters), lease.release)


def _timed(child: Child, waits: Callable[[], bool], release: Callable[[], object]) -> float:
    child.send("go")
    while not waits():
        time.sleep(0.0005)
    time.sleep(0.002)  # until it sleeps in its own wait
    began = time.monotonic()
    release()
    granted: float = child.receive()
    child.receive()  # it has given it back
    return granted - began


def _serve(take: Callable[[], Callable[[], object]]) -> None:
    say("ready")
    for _ in sys.stdin:
        give = take()
        say(time.monotonic())
        give()
        say("done")


async def _serve_aio(url: str) -> None:
    lock = holdfast.aio.connect(url).lock("wakeup")
    say("ready")
    while await asyncio.to_thread(sys.stdin.readline):
        lease = await lock.acquire()
        say(time.monotonic())
        await lease.release()
        say("done")


def _raw_take(queue: RawQueue) -> Callable[[], object]:
    queue.take()
    return queue.give


if __name__ == "__main__":
    kind, port = sys.argv[1], int(sys.argv[2])
    url = f"redis://127.0.0.1:{port}/0"
    if kind == "raw":
        queue = RawQueue(port)
        _serve(lambda: _raw_take(queue))
    elif kind == "blocking":
        lock = holdfast.connect(url).lock("wakeup")
        _serve(lambda: lock.acquire().release)
    else:
        asyncio.run(_serve_aio(url))
    os._exit(0)
