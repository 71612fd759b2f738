"""The kinds of lock that simulated clients want: locks, semaphores, readers, writers, elections."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from .. import aio
from ..checks import MAX_CAPACITY

PERMITS = 2
LOCK, SEMAPHORE, READER, WRITER, ELECTION = "lock", "semaphore", "reader", "writer", "election"


class Wanted(Protocol):
    """A lock, or an election, as a client asks for it."""

    async def acquire(self, timeout: float | None = None) -> aio.Lease: ...


class Candidate:
    """A candidate of an election: its term is acquired as a lock is."""

    def __init__(self, election: aio.Election) -> None:
        self._election = election

    async def acquire(self, timeout: float | None = None) -> aio.Lease:
        return await self._election.campaign(timeout)


class Wish(NamedTuple):
    """A wish of a client: a lock of some kind, and its share of it."""

    kind: str
    name: str
    lock: Wanted
    weight: int = 1
    capacity: int = 1


def wish_for(
    kind: str, name: str, locks: aio.Locks, ttl: float, renew: bool, fair: bool | None = None
) -> Wish:
    """Returns the wish for a lock of this kind. An election is always renewed."""
    if kind == SEMAPHORE:
        lock = locks.semaphore(name, permits=PERMITS, ttl=ttl, renew=renew, fair=fair)
        return Wish(kind, name, lock, 1, PERMITS)
    if kind in (READER, WRITER):
        both = locks.rwlock(name, ttl=ttl, renew=renew, fair=fair)
        if kind == READER:
            return Wish(kind, name, both.read(), 1, MAX_CAPACITY)
        return Wish(kind, name, both.write(), MAX_CAPACITY, MAX_CAPACITY)
    if kind == ELECTION:
        return Wish(kind, name, Candidate(locks.election(name, value="simulated", ttl=ttl)))
    return Wish(kind, name, locks.lock(name, ttl=ttl, renew=renew, fair=fair))


NAMES = {LOCK: "x", SEMAPHORE: "s", READER: "r", WRITER: "r", ELECTION: "e"}
"""A name has one kind at a time."""


def draw_kind(draw: Callable[[], float]) -> str:
    """Returns a kind by chance."""
    if draw() < 0.3:
        return LOCK
    return (SEMAPHORE, SEMAPHORE, READER, READER, WRITER, ELECTION)[int(draw() * 6)]
