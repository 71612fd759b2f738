"""One lock and many processes on etcd, beside other libraries, and etcd's own Lock call by hand."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from statistics import median

import holdfast

from .contest import Give, Shares, Take, contend, serve_turns, turns_of
from .etcd_peers import PEERS, turn
from .etcd_server import Raw, server
from .measure import Row, Setting, compare, ratio

RAW, OURS = "etcd's Lock call by hand", "holdfast"
KINDS = (*PEERS, RAW, OURS)
TARGET = 2.2


def figure(setting: Setting) -> list[Row]:
    rows: list[Row] = []
    seconds, rounds = (1.0, 1) if setting.quick else (2.0, 4)
    for processes in (2, 8, 32):
        with server(setting.folder / str(processes)) as port:
            shares = contend("bench.etcd_handoff", KINDS, port, processes, seconds, rounds)
        rows += _rows(processes, shares)
    return rows


def _rows(processes: int, shares: Shares) -> list[Row]:
    rates = shares.rates
    best = max(PEERS, key=lambda peer: median(rates[peer]))
    found = ratio(rates[OURS], rates[best])
    judged = processes == 32
    first = Row(
        f"{processes} processes (rate)",
        shares.shown(OURS),
        f"{best} {shares.shown(best)}",
        found,
        f"≥ {TARGET:g}" if judged else "",
        found >= TARGET if judged else None,
        shares._asdict(),
    )
    others = [kind for kind in (*PEERS, RAW) if kind != best]
    return [
        first,
        *(
            compare(
                "  beside",
                shares.shown(OURS),
                f"{kind} {shares.shown(kind)}",
                ratio(rates[OURS], rates[kind]),
            )
            for kind in others
        ),
    ]


def _raw(port: int) -> Take:
    raw = Raw(port)

    def take() -> Give:
        key = raw.take(b"bench")
        return lambda: raw.give(key)

    return take


def _holdfast(port: int) -> Take:
    lock = holdfast.connect(f"etcd://127.0.0.1:{port}").lock("bench")
    return lambda: lock.acquire().release


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
        serve_turns(_asyncio(chosen, at))
    else:
        serve_turns(turns_of({RAW: _raw, OURS: _holdfast}[chosen](at)))
    os._exit(0)
