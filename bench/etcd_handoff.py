"""One lock and many processes on etcd, beside etcd's own Lock call, which the best peer uses."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median
from typing import Any

import holdfast

from .etcd_server import Raw, server
from .measure import Child, Row, Setting, jain, ratio, say

KINDS = ("peer", "holdfast")
TARGET = 1.5


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
        found = ratio(rates["holdfast"], rates["peer"])
        fair = jain(shares["holdfast"])
        judged = processes == 32
        rows.append(
            Row(
                f"{processes} processes (rate)",
                f"{median(rates['holdfast']):,.0f}/s, Jain {fair:.3f}",
                f"etcd's Lock call {median(rates['peer']):,.0f}/s",
                found,
                f"≥ {TARGET:g}" if judged else "",
                found >= TARGET if judged else None,
                {"rates": rates, "shares": shares},
            )
        )
    return rows


def _peer(port: int) -> Callable[[], None]:
    raw = Raw(port)
    return lambda: raw.give(raw.take(b"bench"))


def _holdfast(port: int) -> Callable[[], None]:
    lock = holdfast.connect(f"etcd://127.0.0.1:{port}").lock("bench")

    def turn() -> None:
        lock.acquire().release()

    return turn


def _serve(turn: Callable[[], None]) -> None:
    turn()
    say("ready")
    for line in sys.stdin:
        end = time.monotonic() + float(line)
        count = 0
        while time.monotonic() < end:
            turn()
            count += 1
        say(count)


if __name__ == "__main__":
    _serve({"peer": _peer, "holdfast": _holdfast}[sys.argv[1]](int(sys.argv[2])))
    os._exit(0)
