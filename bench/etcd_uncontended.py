"""Acquire and release locks that nobody else wants, on etcd; at the start, and after 10,000 times.

Deleted keys stay in etcd's index until it compacts: a lock that leaves new ones behind gets slower.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from statistics import median

import holdfast
import holdfast.aio

from .etcd_peers import PEERS, Take, turn
from .etcd_server import AioRaw, Raw, server
from .measure import Row, Samples, Setting, compare, duration, interleave, ratio, times

RAW, OURS, PEER = "raw txn + delete", "holdfast", "etcd's Lock call"
AIO_RAW, AIO = "raw txn + delete, grpc.aio", "holdfast.aio"
CYCLES = 10_000
TARGET = 0.75


def figure(setting: Setting) -> list[Row]:
    rounds = 4 if setting.quick else 24
    with server(setting.folder) as port, asyncio.Runner() as runner:
        url = f"etcd://127.0.0.1:{port}"
        raw = Raw(port)
        aio_raw, aio_turn = runner.run(_by_hand(port))
        with holdfast.connect(url) as locks:
            lock = locks.lock("bench")
            aio_locks = runner.run(_connect(url))
            batches: dict[str, Callable[[int], object]] = {
                RAW: times(raw.floor()),
                OURS: times(lambda: lock.acquire().release()),
                PEER: times(lambda: raw.give(raw.take(b"peer"))),
                AIO_RAW: lambda number: runner.run(_turns(aio_turn, number)),
                AIO: lambda number: runner.run(_aio(aio_locks, number)),
            }
            for name, make in PEERS.items():
                take = runner.run(make(port, f"bench-{name}".encode()))
                batches[name] = partial(_in_loop, runner, take)
            fresh = interleave(batches, rounds, 25)
            for _ in range(100 if setting.quick else CYCLES):
                lock.acquire().release()
            batches = {kind: batches[kind] for kind in (RAW, OURS)}
            worn = interleave(batches, rounds, 25)
            runner.run(aio_locks.close())
            runner.run(aio_raw.close())
        raw.close()
    peers = [
        compare(f"  {name}", *_shown(fresh, name), ratio(fresh[name], fresh[RAW])) for name in PEERS
    ]
    return [
        _row("acquire + release", fresh),
        _row(f"  after {CYCLES:,} times", worn),
        _row("asyncio", fresh, AIO, AIO_RAW),
        compare(
            "  beside the calls that block", *_shown(fresh, AIO), ratio(fresh[AIO], fresh[RAW])
        ),
        compare(
            "  etcd's own Lock call, raw", *_shown(fresh, PEER), ratio(fresh[PEER], fresh[RAW])
        ),
        *peers,
    ]


def _row(what: str, samples: Samples, ours: str = OURS, raw: str = RAW) -> Row:
    found = ratio(samples[ours], samples[raw])
    numbers = {"samples": samples}
    return Row(what, *_shown(samples, ours, raw), found, f"≤ {TARGET:g}", found <= TARGET, numbers)


def _shown(samples: Samples, kind: str, raw: str = RAW) -> tuple[str, str]:
    return duration(median(samples[kind])), f"{raw} {duration(median(samples[raw]))}"


def _in_loop(runner: asyncio.Runner, take: Take, number: int) -> None:
    async def turns() -> None:
        for _ in range(number):
            await turn(take)

    runner.run(turns())


async def _by_hand(port: int) -> tuple[AioRaw, Callable[[], Awaitable[None]]]:
    raw = AioRaw(port)
    return raw, await raw.floor()


async def _turns(turn: Callable[[], Awaitable[None]], number: int) -> None:
    for _ in range(number):
        await turn()


async def _connect(url: str) -> holdfast.aio.Locks:
    return holdfast.aio.connect(url)


async def _aio(locks: holdfast.aio.Locks, number: int) -> None:
    lock = locks.lock("bench-aio")
    for _ in range(number):
        await (await lock.acquire()).release()
