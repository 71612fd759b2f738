"""Acquire and release locks that nobody else wants, on Redis: blocking, and in asyncio.

All candidates take turns within one process, against one server started for the run.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from statistics import median
from typing import Any

import holdfast
import holdfast.aio

from .measure import Child, Row, Samples, Setting, compare, duration, interleave, ratio, say
from .redis_raw import RawMultiplexed, RawSocket, bare_pair, own_pair
from .redis_server import server

CROWD = 1024
RAW, OWN, OURS, PEER = "raw socket", "our scripts, raw socket", "holdfast", "redis-py Lock"
MUX, MUX_OURS = "raw multiplexed", "holdfast.aio"
MANY, MANY_OWN, MANY_OURS = "bare commands", "our scripts", "holdfast.aio, 1,024"


def figure(setting: Setting) -> list[Row]:
    processes, rounds = (1, 10) if setting.quick else (3, 40)
    samples: Samples = {}
    with server(setting.folder) as port:
        for _ in range(processes):
            with Child("bench.redis_uncontended", port, rounds) as child:
                for name, values in child.receive().items():
                    samples.setdefault(name, []).extend(values)
    seconds = {name: median(values) for name, values in samples.items()}
    shown = {name: duration(value) for name, value in seconds.items()}

    def row(what: str, ours: str, floor: str, target: float, rate: bool = False) -> Row:
        found = (
            ratio(samples[floor], samples[ours]) if rate else ratio(samples[ours], samples[floor])
        )
        met = found >= target if rate else found <= target
        aim = f"≥ {target:g}" if rate else f"≤ {target:g}"
        return Row(
            what, shown[ours], f"{floor} {shown[floor]}", found, aim, met, {"seconds": seconds}
        )

    return [
        row("blocking, acquire + release", OURS, RAW, 1.8),
        row("  beside our own scripts", OURS, OWN, 1.35),
        compare(
            "  redis-py Lock",
            shown[PEER],
            f"{RAW} {shown[RAW]}",
            ratio(samples[PEER], samples[RAW]),
        ),
        row("asyncio, one coroutine", MUX_OURS, MUX, 1.4),
        row("asyncio, 1,024 coroutines (rate)", MANY_OURS, MANY_OWN, 0.75, rate=True),
        compare(
            "  beside bare commands (rate)",
            shown[MANY_OURS],
            f"{MANY} {shown[MANY]}",
            ratio(samples[MANY], samples[MANY_OURS]),
        ),
    ]


def _measure(port: int, rounds: int) -> Samples:
    raw = RawSocket(port)
    url = f"redis://127.0.0.1:{port}/0"
    with holdfast.connect(url) as locks, asyncio.Runner() as runner:
        batches: dict[str, Callable[[int], object]] = {
            RAW: _pair(raw, *bare_pair(raw, "bare")),
            OWN: _pair(raw, *own_pair(raw, "own")),
            OURS: _blocking(locks.lock("bench")),
            PEER: _redis_py(port),
        }
        samples = interleave(batches, rounds, 200)
        scene = runner.run(_scene(port, url, raw))
        one = {name: _on(runner, work) for name, work in scene.items() if name in (MUX, MUX_OURS)}
        samples |= interleave(one, rounds, 200)
        many = {name: _on(runner, work) for name, work in scene.items() if name not in one}
        many.pop("close")
        samples |= interleave(many, max(5, rounds // 2), 4 * CROWD)
        runner.run(scene["close"](0))
    raw.sock.close()
    return samples


def _on(runner: asyncio.Runner, work: Callable[[int], Any]) -> Callable[[int], object]:
    return lambda number: runner.run(work(number))


def _pair(raw: RawSocket, acquire: bytes, release: bytes) -> Callable[[int], None]:
    def batch(number: int) -> None:
        for _ in range(number):
            assert raw(acquire)
            assert raw(release) == 1

    return batch


def _blocking(lock: holdfast.Lock) -> Callable[[int], None]:
    def batch(number: int) -> None:
        for _ in range(number):
            lock.acquire().release()

    return batch


def _redis_py(port: int) -> Callable[[int], None]:
    import redis

    client = redis.Redis("127.0.0.1", port)

    def batch(number: int) -> None:
        for _ in range(number):
            lock = client.lock("redis-py", timeout=30)
            assert lock.acquire()
            lock.release()

    return batch


async def _scene(port: int, url: str, raw: RawSocket) -> dict[str, Callable[[int], Any]]:
    loop = asyncio.get_running_loop()
    _, mux = await loop.create_connection(RawMultiplexed, "127.0.0.1", port)
    locks = holdfast.aio.connect(url)
    mine = [locks.lock(f"bench:{number}") for number in range(CROWD)]
    single = bare_pair(raw, "mux")
    bare = [bare_pair(raw, f"bare:{number}") for number in range(CROWD)]
    own = [own_pair(raw, f"own:{number}") for number in range(CROWD)]

    async def pairs(acquire: bytes, release: bytes, number: int) -> None:
        for _ in range(number):
            assert await mux.send(acquire)
            assert await mux.send(release) == 1

    async def leases(lock: holdfast.aio.Lock, number: int) -> None:
        for _ in range(number):
            await (await lock.acquire()).release()

    async def crowd(works: list[Any]) -> None:
        await asyncio.gather(*works)

    async def close(number: int) -> None:
        mux.transport.close()
        await locks.close()

    return {
        MUX: lambda number: pairs(*single, number),
        MUX_OURS: lambda number: leases(mine[0], number),
        MANY: lambda number: crowd([pairs(*pair, number // CROWD) for pair in bare]),
        MANY_OWN: lambda number: crowd([pairs(*pair, number // CROWD) for pair in own]),
        MANY_OURS: lambda number: crowd([leases(lock, number // CROWD) for lock in mine]),
        "close": close,
    }


if __name__ == "__main__":
    say(_measure(int(sys.argv[1]), int(sys.argv[2])))
