"""From the release in one process to the grant in another, on etcd, with one waiter."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import ExitStack

import holdfast

from .contest import Give, Take, serve_wakeups, wake
from .etcd_peers import PEERS
from .etcd_server import Raw, server
from .measure import Row, Setting, compare, duration, quantile

RAW, OURS = "etcd's Lock call", "holdfast"
KINDS = (*PEERS, RAW, OURS)
TARGET = 2.8e-3


def figure(setting: Setting) -> list[Row]:
    rounds = 20 if setting.quick else 150
    with server(setting.folder) as port, ExitStack() as stack:
        takes = {kind: _taking(kind, port, stack) for kind in KINDS}
        found = wake("bench.etcd_wakeup", takes, port, rounds)
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


def _taking(kind: str, port: int, stack: ExitStack) -> Take:
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


if __name__ == "__main__":
    serve_wakeups(_taking(sys.argv[1], int(sys.argv[2]), ExitStack()))
    os._exit(0)
