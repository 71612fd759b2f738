"""From the release in one process to the grant in another, on Redis, with one who waits."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable

import holdfast
import holdfast.aio

from .measure import Child, Row, Setting, compare, duration, quantile, say
from .redis_peers import PEERS, QUEUING, Take
from .redis_raw import RawQueue
from .redis_server import server

KINDS = ("raw", "blocking", "asyncio", QUEUING)


def figure(setting: Setting) -> list[Row]:
    """Measures until the waiter was granted, on the clock that all processes of a machine share."""
    rounds = 100 if setting.quick else 600
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with (
        server(setting.folder) as port,
        Child("bench.redis_wakeup", "raw", port) as floor,
        Child("bench.redis_wakeup", "blocking", port) as blocking,
        Child("bench.redis_wakeup", "asyncio", port) as aio,
        Child("bench.redis_wakeup", QUEUING, port) as theirs,
        holdfast.connect(f"redis://127.0.0.1:{port}/0") as locks,
    ):
        children = dict(zip(KINDS, (floor, blocking, aio, theirs), strict=True))
        for child in children.values():
            child.receive()
        queue = RawQueue(port)
        peer = PEERS[QUEUING](port, "wakeup")
        once: dict[str, Callable[[Child], float]] = {
            "raw": lambda child: _raw_once(child, queue),
            "blocking": lambda child: _once(child, locks),
            "asyncio": lambda child: _once(child, locks),
            QUEUING: lambda child: _blind_once(child, peer),
        }
        for index in range(rounds):
            for kind in KINDS[index % 4 :] + KINDS[: index % 4]:
                found[kind].append(once[kind](children[kind]))
    rows: list[Row] = []
    middle = {kind: quantile(values, 0.5) for kind, values in found.items()}
    for kind in KINDS[1:]:
        factor = middle[kind] / middle["raw"]
        if kind == QUEUING:
            beside = f"raw queue {duration(middle['raw'])}"
            rows.append(compare(f"  {kind}", duration(middle[kind]), beside, factor))
            continue
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


def _blind_once(child: Child, take: Take) -> float:
    """Gives the other process time to wait: the store cannot say whether it does."""
    give = take()
    began = time.monotonic()
    return _timed(child, lambda: time.monotonic() - began > 0.02, give)


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
    elif kind == QUEUING:
        _serve(PEERS[QUEUING](port, "wakeup"))
    elif kind == "blocking":
        lock = holdfast.connect(url).lock("wakeup")
        _serve(lambda: lock.acquire().release)
    else:
        asyncio.run(_serve_aio(url))
    os._exit(0)
