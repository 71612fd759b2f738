"""Memory and processor time of one process that keeps ten thousand leases for half a minute.

In a fresh process: its memory before `connect`, and the most it had once all were held and while they
were renewed; the processor time of the whole process while it did nothing but keep them.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from importlib import import_module
from typing import Any

from .measure import Child, Row, Setting, compare, say, url_of

LEASES = 10_000
TTL = 30.0
MOST_MEGABYTES = 25.0
MOST_CPU = 0.05


def figure(setting: Setting) -> list[Row]:
    window = 11.0 if setting.quick else 30.0
    rows = blocking(url_of(setting.folder / "blocking.db"), window)
    if not setting.quick:
        rows += in_asyncio(url_of(setting.folder / "asyncio.db"), window)
    return rows


def blocking(url: str, window: float, *drivers: str) -> list[Row]:
    """Has a process hold the leases for `window` seconds; returns what that cost it.

    It has imported `drivers` before: those that a process which uses the database has anyhow.
    """
    found = _one(url, "blocking", window, *drivers)
    imported = f"{found['imported']:.1f} MB"
    return [
        Row(
            f"{LEASES:,} leases, TTL {TTL:g}: memory",
            f"{found['megabytes']:.1f} MB",
            "before connect",
            None,
            f"≤ {MOST_MEGABYTES:g} MB",
            found["megabytes"] <= MOST_MEGABYTES,
            found,
        ),
        Row(
            "  CPU of one core",
            f"{found['cpu']:.1%}",
            f"over {found['window']:.0f} s",
            None,
            f"≤ {MOST_CPU:.0%}",
            found["cpu"] <= MOST_CPU,
            {},
        ),
        Row(
            "  still held at the end",
            f"{found['held']:,}",
            f"in the store {found['in_store']:,}",
            None,
            f"= {LEASES:,}",
            found["held"] == found["in_store"] == LEASES,
            {},
        ),
        _threads(found),
        *(compare(f"  memory of {driver}, beside", imported, "") for driver in drivers),
    ]


def in_asyncio(url: str, window: float, *drivers: str) -> list[Row]:
    """Returns the same of a process that uses asyncio, to compare."""
    found = _one(url, "asyncio", window, *drivers)
    ours = f"{found['megabytes']:.1f} MB, {found['cpu']:.1%} CPU"
    return [
        compare("  in asyncio", ours, f"{found['held']:,} still held", **found),
        _threads(found),
    ]


def _one(url: str, world: str, window: float, *drivers: str) -> dict[str, Any]:
    with Child("bench.keeper", world, url, window, *drivers) as child:
        found: dict[str, Any] = child.receive()
    return found


def _threads(found: dict[str, Any]) -> Row:
    names = [name for name in found["threads"] if name != "MainThread"]
    return compare("  threads beside the main one", str(len(names)), ", ".join(sorted(names)))


# In the child, which imports only what it measures.


class _Watch:
    """Memory and processor time, from before `connect` on."""

    def __init__(self) -> None:
        self._before = _resident()
        self._most = self._before
        self._cpu = self._wall = 0.0

    def begin(self) -> None:
        self._cpu, self._wall = time.process_time(), time.monotonic()

    def look(self) -> None:
        self._most = max(self._most, _resident())

    def result(self, held: int, in_store: int, cpu: float, wall: float) -> dict[str, Any]:
        window = wall - self._wall
        return {
            "megabytes": (self._most - self._before) / 1e6,
            "cpu": (cpu - self._cpu) / window,
            "window": window,
            "held": held,
            "in_store": in_store,
            "threads": [thread.name for thread in threading.enumerate()],
            "tasks": len(os.listdir("/proc/self/task")),
        }


def _blocking(url: str, window: float) -> dict[str, Any]:
    import holdfast

    watch = _Watch()
    with holdfast.connect(url) as locks:
        leases = [locks.lock(f"job:{index}", ttl=TTL).acquire() for index in range(LEASES)]
        watch.begin()
        end = time.monotonic() + window
        while time.monotonic() < end:
            time.sleep(1.0)
            watch.look()
        cpu, wall = time.process_time(), time.monotonic()
        held = sum(lease.held for lease in leases)
        return watch.result(held, _held(locks.list("job:")), cpu, wall)


async def _asyncio(url: str, window: float) -> dict[str, Any]:
    import asyncio

    import holdfast.aio

    watch = _Watch()
    async with holdfast.aio.connect(url) as locks:
        leases = [await locks.lock(f"job:{index}", ttl=TTL).acquire() for index in range(LEASES)]
        watch.begin()
        end = time.monotonic() + window
        while time.monotonic() < end:
            await asyncio.sleep(1.0)
            watch.look()
        cpu, wall = time.process_time(), time.monotonic()
        held = sum(lease.held for lease in leases)
        return watch.result(held, _held(await locks.list("job:")), cpu, wall)


def _held(states: Any) -> int:
    return sum(1 for state in states if state.held)


def _resident() -> int:
    """Returns the bytes of memory that this process has in use."""
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    raise RuntimeError("this system does not tell how much memory a process uses")


def _import(drivers: list[str]) -> float:
    """Returns the megabytes that the drivers take by themselves."""
    before = _resident()
    for driver in drivers:
        import_module(driver)
    return (_resident() - before) / 1e6


if __name__ == "__main__":
    address, seconds = sys.argv[2], float(sys.argv[3])
    imported = _import(sys.argv[4:])
    if sys.argv[1] == "blocking":
        result = _blocking(address, seconds)
    else:
        from asyncio import run

        result = run(_asyncio(address, seconds))
    say({**result, "imported": imported})
