"""Acquire and release locks that nobody else wants, on Redis: blocking, and in asyncio.

Ours and the floors take turns within one process, against one server started for the run: blocking in
one, which has the keeper's thread, and asyncio in another, which has none. The other libraries, some of
which start threads, take turns with the floors in a process of their own.
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
from .redis_peers import PEERS, turn
from .redis_raw import RawMultiplexed, RawSocket, bare_pair, own_pair
from .redis_server import server

CROWD = 1024
BESIDE_PEERS = ", beside the others"
RAW, OWN, OURS = "raw socket", "our scripts, raw socket", "holdfast"
MUX, MUX_OURS, MUX_PEER = "raw multiplexed", "holdfast.aio", "redis-py asyncio Lock"
MANY, MANY_OWN, MANY_OURS = "bare commands", "our scripts", "holdfast.aio, 1,024"


def figure(setting: Setting) -> list[Row]:
    processes, rounds = (1, 10) if setting.quick else (3, 40)
    samples: Samples = {}
    with server(setting.folder) as port:
        for _ in range(processes):
            for kind in MEASURES:
                with Child("bench.redis_uncontended", kind, port, rounds) as child:
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

    def peer(name: str, floor: str) -> Row:
        found = ratio(samples[name], samples[floor + BESIDE_PEERS])
        return compare(f"  {name}", shown[name], f"{floor} {shown[floor + BESIDE_PEERS]}", found)

    return [
        row("blocking, acquire + release", OURS, RAW, 1.8),
        row("  beside our own scripts", OURS, OWN, 1.35),
        *[peer(name, RAW) for name in PEERS],
        row("asyncio, one coroutine", MUX_OURS, MUX, 1.4),
        peer(MUX_PEER, MUX),
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
    with holdfast.connect(f"redis://127.0.0.1:{port}/0") as locks:
        batches: dict[str, Callable[[int], object]] = {
            RAW: _pair(raw, *bare_pair(raw, "bare")),
            OWN: _pair(raw, *own_pair(raw, "own")),
            OURS: _blocking(locks.lock("bench")),
        }
        samples = interleave(batches, rounds, 200)
    raw.sock.close()
    return samples


def _measure_aio(port: int, rounds: int) -> Samples:
    raw = RawSocket(port)
    with asyncio.Runner() as runner:
        scene = runner.run(_scene(port, f"redis://127.0.0.1:{port}/0", raw))
        one = {name: _on(runner, scene.pop(name)) for name in (MUX, MUX_OURS)}
        samples = interleave(one, rounds, 200)
        close = scene.pop("close")
        many = {name: _on(runner, work) for name, work in scene.items()}
        samples |= interleave(many, max(5, rounds // 2), 4 * CROWD)
        runner.run(close(0))
    raw.sock.close()
    return samples


def _measure_peers(port: int, rounds: int) -> Samples:
    raw = RawSocket(port)
    batches: dict[str, Callable[[int], object]] = {
        RAW + BESIDE_PEERS: _pair(raw, *bare_pair(raw, "bare")),
        **{name: _repeat(turn(make(port, name))) for name, make in PEERS.items()},
    }
    samples = interleave(batches, max(3, rounds // 4), 100)
    with asyncio.Runner() as runner:
        works = runner.run(_peer_scene(port, raw))
        close = works.pop("close")
        one = {name: _on(runner, work) for name, work in works.items()}
        samples |= interleave(one, max(3, rounds // 4), 100)
        runner.run(close(0))
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


def _repeat(once: Callable[[], None]) -> Callable[[int], None]:
    def batch(number: int) -> None:
        for _ in range(number):
            once()

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


async def _peer_scene(port: int, raw: RawSocket) -> dict[str, Callable[[int], Any]]:
    import redis.asyncio

    loop = asyncio.get_running_loop()
    _, mux = await loop.create_connection(RawMultiplexed, "127.0.0.1", port)
    client = redis.asyncio.Redis(host="127.0.0.1", port=port)
    acquire, release = bare_pair(raw, "mux")

    async def pairs(number: int) -> None:
        for _ in range(number):
            assert await mux.send(acquire)
            assert await mux.send(release) == 1

    async def theirs(number: int) -> None:
        for _ in range(number):
            lock = client.lock("redis-py-aio", timeout=30)
            assert await lock.acquire()
            await lock.release()

    async def close(number: int) -> None:
        mux.transport.close()
        await client.aclose()

    return {MUX + BESIDE_PEERS: pairs, MUX_PEER: theirs, "close": close}


MEASURES = {"ours": _measure, "ours in asyncio": _measure_aio, "peers": _measure_peers}

if __name__ == "__main__":
    say(MEASURES[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3])))
