"""Many locks of one manager at once, which cost no thread each."""

from __future__ import annotations

from holdfast import aio as holdfast
from worlds.aio import Job, eventually
from worlds.descriptors import running_threads

MANY = 400
TTL = 9.0
"""Seconds: long enough for a machine that stands still for a while."""


async def hold_many(locks: holdfast.Locks) -> list[holdfast.Lease]:
    """So many, each renewed at least once; the session has held one before."""
    threads = running_threads()
    leases: list[holdfast.Lease] = []

    async def some(start: int) -> None:
        for number in range(start, start + 50):
            leases.append(await locks.lock(f"n{number}", ttl=TTL).acquire())

    for job in [Job(some, start) for start in range(0, MANY, 50)]:
        await job.result()
    await eventually(lambda: running_threads() <= threads + 2)
    renewed: set[str] = set()
    locks.on_event(lambda event: renewed.add(event.name))
    await eventually(lambda: len(renewed) >= MANY)
    assert all(lease.held for lease in leases)
    return leases
