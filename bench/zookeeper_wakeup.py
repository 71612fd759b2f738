"""The time from the release in one process to the grant in another, on ZooKeeper, with one waiter."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import holdfast
import holdfast.aio

from .measure import Child, Row, Setting, duration, quantile, say
from .zookeeper_ensemble import ensemble

KINDS = ("kazoo", "blocking", "asyncio")


def figure(setting: Setting) -> list[Row]:
    """Measures, by the clock that all processes of a machine share, when the waiter was granted."""
    rounds = 60 if setting.quick else 400
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with ensemble(setting.folder) as hosts:
        server = hosts.partition(",")[0]
        with (
            Child("bench.zookeeper_wakeup", "kazoo", server) as peer,
            Child("bench.zookeeper_wakeup", "blocking", server) as blocking,
            Child("bench.zookeeper_wakeup", "asyncio", server) as aio,
            holdfast.connect(f"zookeeper://{server}") as locks,
        ):
            children = dict(zip(KINDS, (peer, blocking, aio), strict=True))
            for child in children.values():
                child.receive()
            client = _client(server)
            for index in range(rounds):
                for kind in KINDS[index % 3 :] + KINDS[: index % 3]:
                    child = children[kind]
                    took = _recipe(child, client) if kind == "kazoo" else _once(child, locks)
                    found[kind].append(took)
            client.stop()
    rows = []
    middle = {kind: quantile(values, 0.5) for kind, values in found.items()}
    for kind in KINDS[1:]:
        took = middle[kind]
        rows.append(
            Row(
                f"wake-up, {kind}, p50",
                duration(took),
                f"kazoo Lock {duration(middle['kazoo'])}",
                took / middle["kazoo"],
                "≤ 1.0",
                took <= middle["kazoo"],
                {"samples": found},
            )
        )
    return rows


def _client(server: str) -> Any:
    from kazoo.client import KazooClient

    client = KazooClient(server)
    client.start()
    return client


def _recipe(child: Child, client: Any) -> float:
    lock = client.Lock("/kazoo", "bench")
    lock.acquire()
    return _timed(child, lambda: len(client.get_children("/kazoo")) == 2, lock.release)


def _once(child: Child, locks: holdfast.Locks) -> float:
    lease = locks.lock("wakeup").acquire()
    return _timed(child, lambda: bool(locks.inspect("wakeup").waiters), lease.release)


def _timed(child: Child, waits: Callable[[], bool], release: Callable[[], object]) -> float:
    child.send("go")
    while not waits():
        time.sleep(0.0005)
    time.sleep(0.005)  # until it sleeps in its own wait
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


def _take(lock: Any) -> Callable[[], object]:
    lock.acquire()
    release: Callable[[], object] = lock.release
    return release


async def _serve_aio(url: str) -> None:
    lock = holdfast.aio.connect(url).lock("wakeup")
    say("ready")
    while await asyncio.to_thread(sys.stdin.readline):
        lease = await lock.acquire()
        say(time.monotonic())
        await lease.release()
        say("done")


if __name__ == "__main__":
    kind, server = sys.argv[1], sys.argv[2]
    url = f"zookeeper://{server}"
    if kind == "kazoo":
        client = _client(server)
        _serve(lambda: _take(client.Lock("/kazoo", "bench")))
    elif kind == "blocking":
        lock = holdfast.connect(url).lock("wakeup")
        _serve(lambda: lock.acquire().release)
    else:
        asyncio.run(_serve_aio(url))
    os._exit(0)
