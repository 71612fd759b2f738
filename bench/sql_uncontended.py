"""Acquire and release locks that nobody else wants, on a database, beside a row by hand."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import ExitStack
from statistics import median
from typing import Any

import holdfast
import holdfast.aio

from .contest import Take
from .measure import Batch, Row, Samples, compare, duration, ratio, times
from .sql_server import GIVE, RAW_TABLE, TAKE

RAW, OURS, AIO = "raw insert + delete", "holdfast", "holdfast.aio"


def turns(take: Take) -> Batch:
    def pair() -> None:
        take()()

    return times(pair)


def raw(connection: Any) -> Batch:
    """Returns the floor: a row that only one can insert, and its deletion; each is a commit."""
    cursor = connection.cursor()
    cursor.execute(RAW_TABLE)

    def pair() -> None:
        cursor.execute(TAKE, ("bench", "an owner of 32 letters or digits", 1_800_000_000_000_000))
        cursor.execute(GIVE, ("bench", "an owner of 32 letters or digits"))

    return times(pair)


def blocking(locks: holdfast.Locks) -> Batch:
    lock = locks.lock("bench")
    return times(lambda: lock.acquire().release())


def fresh_names(locks: holdfast.Locks) -> Batch:
    """Returns turns that have a name each which nobody used before."""
    number = itertools.count()
    return times(lambda: locks.lock(f"fresh {next(number)}").acquire().release())


def in_asyncio(url: str, stack: ExitStack) -> Batch:
    runner = stack.enter_context(asyncio.Runner())

    async def connect() -> holdfast.aio.Locks:
        return holdfast.aio.connect(url)

    locks = runner.run(connect())
    stack.callback(lambda: runner.run(locks.close()))

    async def pairs(number: int) -> None:
        lock = locks.lock("bench-aio")
        for _ in range(number):
            await (await lock.acquire()).release()

    return lambda number: runner.run(pairs(number))


def judged(what: str, samples: Samples, ours: str, other: str, target: float) -> Row:
    found = ratio(samples[ours], samples[other])
    shown = _shown(samples, ours, other)
    return Row(what, *shown, found, f"≤ {target:g}", found <= target, {"samples": samples})


def beside(what: str, samples: Samples, ours: str, other: str) -> Row:
    return compare(what, *_shown(samples, ours, other), ratio(samples[ours], samples[other]))


def _shown(samples: Samples, ours: str, other: str) -> tuple[str, str]:
    return duration(median(samples[ours])), f"{other} {duration(median(samples[other]))}"
