"""From the release in one process to the grant in another, on etcd, with one who waits."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import holdfast

from .etcd_server import Raw, server
from .measure import Child, Row, Setting, duration, quantile, say

KINDS = ("peer", "holdfast")
TARGET = 2.8e-3


def figure(setting: Setting) -> list[Row]:
    rounds = 20 if setting.quick else 150
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with (
        server(setting.folder) as port,
        Child("bench.etcd_wakeup", "peer", port) as peer,
        Child("bench.etcd_wakeup", "holdfast", port) as ours,
        holdfast.connect(f"etcd://127.0.0.1:{port}") as locks,
    ):
        children = dict(zip(KINDS, (peer, ours), strict=True))
        for child in children.values():
            child.receive()
        raw = Raw(port)
        lock = locks.lock("wakeup")

        def hold(kind: str) -> Callable[[], object]:
            if kind == "holdfast":
                return lock.acquire().release
            key = raw.take(b"wakeup")
            return lambda: raw.give(key)

        for _ in range(rounds):
            for kind in KINDS:
                release = hold(kind)
                children[kind].send("go")
                time.sleep(0.02)  # until it waits
                began = time.monotonic()
                release()
                found[kind].append(children[kind].receive() - began)
                children[kind].receive()
        raw.close()
    middle = {kind: quantile(values, 0.5) for kind, values in found.items()}
    return [
        Row(
            "wake-up of a waiter, p50",
            duration(middle["holdfast"]),
            f"etcd's Lock call {duration(middle['peer'])}",
            middle["holdfast"] / middle["peer"],
            f"≤ {duration(TARGET)}",
            middle["holdfast"] <= TARGET,
            {"samples": found},
        )
    ]


def _serve(take: Callable[[], Callable[[], object]]) -> None:
    take()()
    say("ready")
    for _ in sys.stdin:
        give = take()
        say(time.monotonic())
        give()
        say("done")


if __name__ == "__main__":
    kind, port = sys.argv[1], int(sys.argv[2])
    if kind == "peer":
        raw = Raw(port)

        def take() -> Callable[[], object]:
            key = raw.take(b"wakeup")
            return lambda: raw.give(key)

        _serve(take)
    else:
        lock = holdfast.connect(f"etcd://127.0.0.1:{port}").lock("wakeup")
        _serve(lambda: lock.acquire().release)
    os._exit(0)
