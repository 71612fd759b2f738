"""One lock and many processes on Redis: hand-overs per second, and how evenly they are shared.

The floor is a raw queue: a script grants or enqueues, BLPOP waits, a script hands to the next. It has
no tokens, no TTLs, no heartbeats, and loses the lock with any process that dies.
"""

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
import holdfast.aio

from .measure import Child, Row, Setting, compare, jain, ratio, say
from .redis_peers import PEERS as PEER_LOCKS
from .redis_peers import QUEUING, turn
from .redis_raw import RawMultiplexed, RawQueue, RawSocket, queue_commands
from .redis_server import server

KINDS = ("raw", "blocking", "raw-aio", "asyncio")
PEERS = (QUEUING, "redis-py Lock")
PEER_ROUNDS = 3
TARGETS = {"blocking": ("raw", 0.6), "asyncio": ("raw-aio", 0.7)}


def figure(setting: Setting) -> list[Row]:
    rows: list[Row] = []
    seconds, rounds = (0.5, 3) if setting.quick else (1.0, 9)
    sizes: list[tuple[int, tuple[str, ...]]] = [(8, PEERS), (32, ())]
    for processes, peers in sizes:
        rates: dict[str, list[float]] = {kind: [] for kind in KINDS + peers}
        shares: dict[str, list[int]] = {kind: [0] * processes for kind in KINDS + peers}
        with server(setting.folder) as port, ExitStack() as stack:
            crews = {
                kind: [
                    stack.enter_context(Child("bench.redis_handoff", kind, port))
                    for _ in range(processes)
                ]
                for kind in KINDS + peers
            }
            for crew in crews.values():
                for child in crew:
                    child.receive()
            for index in range(rounds):
                kinds = KINDS[index % 4 :] + KINDS[: index % 4]
                for kind in kinds if index >= PEER_ROUNDS else kinds + peers:
                    for child in crews[kind]:
                        child.send(seconds)
                    counts = [child.receive() for child in crews[kind]]
                    rates[kind].append(sum(counts) / seconds)
                    shares[kind] = [a + b for a, b in zip(shares[kind], counts, strict=True)]
        for kind, (floor, target) in TARGETS.items():
            found = ratio(rates[kind], rates[floor])
            fair = jain(shares[kind])
            rows.append(
                Row(
                    f"{kind}, {processes} processes (rate)",
                    f"{median(rates[kind]):,.0f}/s, Jain {fair:.3f}",
                    f"raw queue {median(rates[floor]):,.0f}/s",
                    found,
                    f"≥ {target:g}",
                    found >= target and fair >= 0.99,
                    {"rates": rates, "shares": shares},
                )
            )
        for kind in peers:
            floors = rates["raw"][: len(rates[kind])]
            rows.append(
                compare(
                    f"  {kind}, {processes} processes (rate)",
                    f"{median(rates[kind]):,.0f}/s, Jain {jain(shares[kind]):.3f}",
                    f"raw queue {median(floors):,.0f}/s",
                    ratio(rates[kind], floors),
                )
            )
    return rows


def _raw(port: int) -> Callable[[], None]:
    queue = RawQueue(port)

    def turn() -> None:
        queue.take()
        queue.give()

    return turn


def _blocking(port: int) -> Callable[[], None]:
    lock = holdfast.connect(f"redis://127.0.0.1:{port}/0").lock("handoff")

    def turn() -> None:
        lock.acquire().release()

    return turn


async def _raw_aio(port: int) -> Callable[[], Any]:
    loop = asyncio.get_running_loop()
    _, asks = await loop.create_connection(RawMultiplexed, "127.0.0.1", port)
    _, waits = await loop.create_connection(RawMultiplexed, "127.0.0.1", port)
    ask, wait, give = queue_commands(RawSocket(port), b"floor-aio")

    async def turn() -> None:
        if await asks.send(ask) == 0:
            await waits.send(wait)
        await asks.send(give)

    return turn


async def _asyncio(port: int) -> Callable[[], Any]:
    lock = holdfast.aio.connect(f"redis://127.0.0.1:{port}/0").lock("handoff-aio")

    async def turn() -> None:
        await (await lock.acquire()).release()

    return turn


def _run(turn: Callable[[], None]) -> None:
    turn()
    say("ready")
    for line in sys.stdin:
        end = time.monotonic() + float(line)
        count = 0
        while time.monotonic() < end:
            turn()
            count += 1
        say(count)


async def _run_aio(make: Any) -> None:
    turn = await make
    await turn()
    say("ready")
    while line := await asyncio.to_thread(sys.stdin.readline):
        end = time.monotonic() + float(line)
        count = 0
        while time.monotonic() < end:
            await turn()
            count += 1
        say(count)


if __name__ == "__main__":
    kind, port = sys.argv[1], int(sys.argv[2])
    if kind == "raw":
        _run(_raw(port))
    elif kind == "blocking":
        _run(_blocking(port))
    elif kind in PEERS:
        _run(turn(PEER_LOCKS[kind](port, f"handoff {kind}")))
    else:
        asyncio.run(_run_aio(_raw_aio(port) if kind == "raw-aio" else _asyncio(port)))
    os._exit(0)  # the last one out has nobody to hand to
