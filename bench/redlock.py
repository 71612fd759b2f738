"""Redlock on five nodes: beside a raw fan-out to them, beside aioredlock, and with two that hang."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median
from typing import Any

import holdfast
import holdfast.aio

from .measure import Row, Samples, Setting, duration, interleave, ratio
from .redis_raw import RawSocket, bare_pair
from .redis_server import server

NODES = 5
CROWD = 64
RAW, OURS, ONE = "raw fan-out", "holdfast", "one node"
MANY_OURS, MANY_PEER = "holdfast.aio", "aioredlock"
HEALTHY, HANGING = "all healthy", "two of five hang"


def figure(setting: Setting) -> list[Row]:
    rounds = 8 if setting.quick else 40
    with ExitStack() as stack:
        nodes = []
        for number in range(NODES):
            folder = setting.folder / str(number)
            folder.mkdir()
            nodes.append(stack.enter_context(server(folder)))
        url = "redlock://" + ",".join(f"127.0.0.1:{port}" for port in nodes)
        samples = _blocking(url, nodes, rounds) | _crowd(url, nodes, max(3, rounds // 3))
        hanging = _hanging(url, nodes, rounds)
    seconds = {name: median(values) for name, values in (samples | hanging).items()}
    shown = {name: duration(value) for name, value in seconds.items()}

    def row(what: str, ours: str, other: str, found: float, aim: str, met: bool) -> Row:
        return Row(what, shown[ours], f"{other} {shown[other]}", found, aim, met, seconds)

    fan = ratio(samples[OURS], samples[RAW])
    peer = ratio(samples[MANY_PEER], samples[MANY_OURS])
    hung = ratio(hanging[HANGING], hanging[HEALTHY])
    return [
        row("blocking, acquire + release, 5 nodes", OURS, RAW, fan, "≤ 1.6", fan <= 1.6),
        row("asyncio, 64 coroutines (rate)", MANY_OURS, MANY_PEER, peer, "≥ 10", peer >= 10),
        row("two of five nodes hang, p50", HANGING, HEALTHY, hung, "≤ 1.5", hung <= 1.5),
    ]


def _blocking(url: str, ports: list[int], rounds: int) -> Samples:
    raws = [RawSocket(port) for port in ports]
    pairs = [bare_pair(raw, "raw") for raw in raws]

    def fan_out(number: int) -> None:
        for _ in range(number):
            for step in (0, 1):
                for raw, pair in zip(raws, pairs, strict=True):
                    raw.sock.sendall(pair[step])
                for raw in raws:
                    assert raw.read()

    with holdfast.connect(url) as locks:
        lock = locks.lock("bench")

        def ours(number: int) -> None:
            for _ in range(number):
                lock.acquire().release()

        samples = interleave({RAW: fan_out, OURS: ours}, rounds, 100)
    for raw in raws:
        raw.sock.close()
    return samples


def _crowd(url: str, ports: list[int], rounds: int) -> Samples:
    """64 coroutines, each with a lock of its own."""
    from aioredlock import Aioredlock

    with asyncio.Runner() as runner:

        async def start() -> tuple[Any, Any]:
            locks = holdfast.aio.connect(url)
            await locks.lock("warm").acquire()
            return locks, Aioredlock([f"redis://127.0.0.1:{port}" for port in ports])

        locks, peer = runner.run(start())

        async def ours(number: int) -> None:
            async def one(which: int) -> None:
                lock = locks.lock(f"crowd:{which}")
                for _ in range(number // CROWD):
                    await (await lock.acquire()).release()

            await asyncio.gather(*(one(which) for which in range(CROWD)))

        async def theirs(number: int) -> None:
            async def one(which: int) -> None:
                for _ in range(number // CROWD):
                    lock = await peer.lock(f"peer:{which}", lock_timeout=30)
                    await peer.unlock(lock)

            await asyncio.gather(*(one(which) for which in range(CROWD)))

        def run(work: Callable[[int], Any]) -> Callable[[int], object]:
            return lambda number: runner.run(work(number))

        samples = interleave({MANY_OURS: run(ours), MANY_PEER: run(theirs)}, rounds, 4 * CROWD)
        runner.run(peer.destroy())
        runner.run(locks.close())
    return samples


def _hanging(url: str, ports: list[int], rounds: int) -> Samples:
    """Two nodes accept and do not answer, seen after the first try; in turns with healthy ones."""
    stopped = [_pid(port) for port in ports[3:]]
    samples: Samples = {HEALTHY: [], HANGING: []}
    with holdfast.connect(url, max_ttl=60.0) as locks:
        lock = locks.lock("hang")

        def batch(number: int) -> None:
            for _ in range(number):
                lock.acquire().release()

        def all_vote() -> None:
            while locks.inspect("hang").out:
                batch(1)

        for _ in range(max(3, rounds // 8)):
            all_vote()
            samples[HEALTHY] += interleave({HEALTHY: batch}, 5, 20)[HEALTHY]
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            try:
                while len(locks.inspect("hang").out) < 2:
                    batch(1)  # the first tries, which find out
                samples[HANGING] += interleave({HANGING: batch}, 5, 20)[HANGING]
            finally:
                for pid in stopped:
                    os.kill(pid, signal.SIGCONT)
    return samples


def _pid(port: int) -> int:
    raw = RawSocket(port)
    info = raw(b"INFO server\r\n")
    raw.sock.close()
    for line in bytes(info).splitlines():
        if line.startswith(b"process_id:"):
            return int(line.partition(b":")[2])
    raise RuntimeError("the server does not say its process id")
