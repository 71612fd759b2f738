"""From the release in one process to the grant in another, on etcd, with one waiter."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

import holdfast

from .etcd_peers import PEERS
from .etcd_server import Raw, server
from .measure import Child, Row, Setting, compare, duration, quantile, say

RAW, OURS = "etcd's Lock call", "holdfast"
KINDS = (*PEERS, RAW, OURS)
TARGET = 2.8e-3

Give = Callable[[], object]


def figure(setting: Setting) -> list[Row]:
    rounds = 20 if setting.quick else 150
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with server(setting.folder) as port, ExitStack() as stack:
        children = {
            kind: stack.enter_context(Child("bench.etcd_wakeup", kind, port)) for kind in KINDS
        }
        for child in children.values():
            child.receive()
        takes = {kind: _taking(kind, port, stack) for kind in KINDS}
        for index in range(rounds):
            for kind in KINDS[index % len(KINDS) :] + KINDS[: index % len(KINDS)]:
                give = takes[kind]()
                children[kind].send("go")
                time.sleep(0.02)  # until it waits
                began = time.monotonic()
                give()
                found[kind].append(children[kind].receive() - began)
                children[kind].receive()
    middle = {kind: quantile(values, 0.5) for kind, values in found.items()}
    ours = middle[OURS]
    best = min(PEERS, key=lambda peer: middle[peer])
    others = [kind for kind in (*PEERS, RAW) if kind != best]
    return [
        Row(
            "wake-up of a waiter, p50",
            duration(ours),
            f"{best} {duration(middle[best])}",
            ours / middle[best],
            f"≤ {duration(TARGET)} and ≤ 1",
            ours <= TARGET and ours <= middle[best],
            {"samples": found},
        ),
        *(
            compare("  beside", duration(ours), f"{kind} {duration(value)}", ours / value)
            for kind, value in middle.items()
            if kind in others
        ),
    ]


def _taking(kind: str, port: int, stack: ExitStack) -> Callable[[], Give]:
    """Returns a function that takes a lock of this kind, and returns how it is given back."""
    if kind == OURS:
        lock = stack.enter_context(holdfast.connect(f"etcd://127.0.0.1:{port}")).lock("wakeup")
        return lambda: lock.acquire().release
    if kind == RAW:
        raw = Raw(port)
        stack.callback(raw.close)

        def call() -> Give:
            key = raw.take(b"wakeup")
            return lambda: raw.give(key)

        return call
    runner = stack.enter_context(asyncio.Runner())
    take = runner.run(PEERS[kind](port, b"wakeup-" + kind.encode()))

    async def taken() -> Give:
        give = await take()

        async def given() -> None:
            await give()

        return lambda: runner.run(given())

    return lambda: runner.run(taken())


def _serve(take: Callable[[], Give]) -> None:
    take()()
    say("ready")
    for _ in sys.stdin:
        give = take()
        say(time.monotonic())
        give()
        say("done")


if __name__ == "__main__":
    _serve(_taking(sys.argv[1], int(sys.argv[2]), ExitStack()))
    os._exit(0)
