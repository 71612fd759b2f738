"""Redlock on five nodes: beside a raw fan-out to them, beside aioredlock, and with two that hang.

The first two are measured in several processes, one after the other, against the same servers.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median
from typing import Any

import holdfast
import holdfast.aio

from .measure import Child, Row, Samples, Setting, compare, duration, interleave, ratio, say
from .redis_raw import RawSocket, bare_pair, redlock_pair
from .redis_server import server

NODES = 5
CROWD = 64
RAW, OWN, OURS = "raw fan-out", "our scripts, raw fan-out", "holdfast"
MANY_OURS, MANY_PEER = "holdfast.aio", "aioredlock"
HEALTHY, HANGING = "all healthy", "two of five hang"


def figure(setting: Setting) -> list[Row]:
    processes, rounds = (1, 8) if setting.quick else (5, 40)
    samples: Samples = {}
    with ExitStack() as stack:
        nodes = []
        for number in range(NODES):
            folder = setting.folder / str(number)
            folder.mkdir()
            nodes.append(stack.enter_context(server(folder)))
        for _ in range(processes):
            for kind in MEASURES:
                with Child("bench.redlock", kind, max(3, rounds // processes), *nodes) as child:
                    for name, values in child.receive().items():
                        samples.setdefault(name, []).extend(values)
        hanging = _hanging(rounds, nodes)
    seconds = {name: median(values) for name, values in (samples | hanging).items()}
    shown = {name: duration(value) for name, value in seconds.items()}

    def row(what: str, ours: str, other: str, found: float, aim: str, met: bool) -> Row:
        return Row(what, shown[ours], f"{other} {shown[other]}", found, aim, met, seconds)

    fan, own = (ratio(samples[OURS], samples[other]) for other in (RAW, OWN))
    peer = ratio(samples[MANY_PEER], samples[MANY_OURS])
    hung = ratio(hanging[HANGING], hanging[HEALTHY])
    return [
        row("blocking, acquire + release, 5 nodes", OURS, RAW, fan, "≤ 1.6", fan <= 1.6),
        compare("  beside our own scripts", shown[OURS], f"{OWN} {shown[OWN]}", own),
        row("asyncio, 64 coroutines (rate)", MANY_OURS, MANY_PEER, peer, "≥ 10", peer >= 10),
        row("two of five nodes hang, p50", HANGING, HEALTHY, hung, "≤ 1.5", hung <= 1.5),
    ]


def _blocking(rounds: int, ports: list[int]) -> Samples:
    raws = [RawSocket(port) for port in ports]

    def fan_out(pairs: list[tuple[bytes, bytes]]) -> Callable[[int], object]:
        def batch(number: int) -> None:
            for _ in range(number):
                for step in (0, 1):
                    for raw, pair in zip(raws, pairs, strict=True):
                        raw.sock.sendall(pair[step])
                    for raw in raws:
                        assert raw.read()

        return batch

    with holdfast.connect(_url(ports)) as locks:
        lock = locks.lock("bench")

        def ours(number: int) -> None:
            for _ in range(number):
                lock.acquire().release()

        ours(1)  # the nodes vote from now on
        batches: dict[str, Callable[[int], object]] = {
            RAW: fan_out([bare_pair(raw, "raw") for raw in raws]),
            OURS: ours,
            OWN: fan_out([redlock_pair(raw, "own") for raw in raws]),
        }
        samples = interleave(batches, rounds, 100)
    for raw in raws:
        raw.sock.close()
    return samples


def _crowd(rounds: int, ports: list[int]) -> Samples:
    """Measures 64 coroutines, each with a lock of its own."""
    from aioredlock import Aioredlock

    with asyncio.Runner() as runner:

        async def start() -> tuple[Any, Any]:
            locks = holdfast.aio.connect(_url(ports))
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


def _hanging(rounds: int, ports: list[int]) -> Samples:
    """Measures with two nodes that accept and do not reply, in turns with all healthy."""
    stopped = [_pid(port) for port in ports[3:]]
    samples: Samples = {HEALTHY: [], HANGING: []}
    with holdfast.connect(_url(ports), max_ttl=60.0) as locks:
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


def _url(ports: list[int]) -> str:
    return "redlock://" + ",".join(f"127.0.0.1:{port}" for port in ports)


def _pid(port: int) -> int:
    raw = RawSocket(port)
    info = raw(b"INFO server\r\n")
    raw.sock.close()
    for line in bytes(info).splitlines():
        if line.startswith(b"process_id:"):
            return int(line.partition(b":")[2])
    raise RuntimeError("the server does not say its process id")


MEASURES = {"blocking": _blocking, "crowd": _crowd}

if __name__ == "__main__":
    say(MEASURES[sys.argv[1]](int(sys.argv[2]), [int(port) for port in sys.argv[3:]]))
