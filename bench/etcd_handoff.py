"""One lock and many processes on etcd, beside other libraries, and etcd's own Lock call by hand."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median
from typing import Any

import holdfast

from .etcd_peers import PEERS, turn
from .etcd_server import Raw, server
from .measure import Child, Row, Setting, compare, jain, ratio, say

RAW, OURS = "etcd's Lock call by hand", "holdfast"
KINDS = (*PEERS, RAW, OURS)
TARGET = 2.2


def figure(setting: Setting) -> list[Row]:
    rows: list[Row] = []
    seconds, rounds = (1.0, 1) if setting.quick else (2.0, 4)
    for processes in (2, 8, 32):
        rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
        shares: dict[str, list[int]] = {kind: [0] * processes for kind in KINDS}
        folder = setting.folder / str(processes)
        with server(folder) as port, ExitStack() as stack:
            crews: dict[str, list[Any]] = {
                kind: [
                    stack.enter_context(Child("bench.etcd_handoff", kind, port))
                    for _ in range(processes)
                ]
                for kind in KINDS
            }
            for crew in crews.values():
                for child in crew:
                    child.receive()
            for index in range(rounds):
                for kind in KINDS[index % 2 :] + KINDS[: index % 2]:
                    for child in crews[kind]:
                        child.send(seconds)
                    counts = [child.receive() for child in crews[kind]]
                    rates[kind].append(sum(counts) / seconds)
                    shares[kind] = [a + b for a, b in zip(shares[kind], counts, strict=True)]
        rows += _rows(processes, rates, shares)
    return rows


def _rows(processes: int, rates: dict[str, list[float]], shares: dict[str, list[int]]) -> list[Row]:
    ours = f"{median(rates[OURS]):,.0f}/s, Jain {jain(shares[OURS]):.3f}"
    best = max(PEERS, key=lambda peer: median(rates[peer]))
    found = ratio(rates[OURS], rates[best])
    judged = processes == 32
    first = Row(
        f"{processes} processes (rate)",
        ours,
        f"{best} {median(rates[best]):,.0f}/s, Jain {jain(shares[best]):.3f}",
        found,
        f"≥ {TARGET:g}" if judged else "",
        found >= TARGET if judged else None,
        {"rates": rates, "shares": shares},
    )
    others = [kind for kind in (*PEERS, RAW) if kind != best]
    return [
        first,
        *(
            compare(
                "  beside",
                ours,
                f"{kind} {median(rates[kind]):,.0f}/s, Jain {jain(shares[kind]):.3f}",
                ratio(rates[OURS], rates[kind]),
            )
            for kind in others
        ),
    ]


def _raw(port: int) -> Callable[[], None]:
    raw = Raw(port)
    return lambda: raw.give(raw.take(b"bench"))


def _holdfast(port: int) -> Callable[[], None]:
    lock = holdfast.connect(f"etcd://127.0.0.1:{port}").lock("bench")

    def pair() -> None:
        lock.acquire().release()

    return pair


def _serve(turns: Callable[[float], int]) -> None:
    turns(0.0)
    say("ready")
    for line in sys.stdin:
        say(turns(float(line)))


def _blocking(pair: Callable[[], None]) -> Callable[[float], int]:
    def turns(seconds: float) -> int:
        end = time.monotonic() + seconds
        count = 0
        while count == 0 or time.monotonic() < end:
            pair()
            count += 1
        return count

    return turns


def _asyncio(kind: str, port: int) -> Callable[[float], int]:
    runner = asyncio.Runner()
    take = runner.run(PEERS[kind](port, b"bench-" + kind.encode()))

    async def turns(seconds: float) -> int:
        end = time.monotonic() + seconds
        count = 0
        while count == 0 or time.monotonic() < end:
            await turn(take)
            count += 1
        return count

    return lambda seconds: runner.run(turns(seconds))


if __name__ == "__main__":
    chosen, at = sys.argv[1], int(sys.argv[2])
    if chosen in PEERS:
        _serve(_asyncio(chosen, at))
    else:
        _serve(_blocking({RAW: _raw, OURS: _holdfast}[chosen](at)))
    os._exit(0)
