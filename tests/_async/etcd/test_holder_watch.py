"""Holders' keys are watched a little after the grant, from the grant on."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from threading import RLock
from typing import Any

import pytest

from holdfast.clock import system_clock
from holdfast.model import Label
from holdfast.stores._async.contract import Terms, Ticket
from holdfast.stores.etcd._async import holder_watch as module
from holdfast.stores.etcd._async.attempt import Attempt
from holdfast.stores.etcd._async.holder_watch import HolderWatch
from holdfast.stores.etcd._async.queue import Queue
from holdfast.stores.etcd.keys import Naming
from worlds.aio import eventually

NUMBERS = count()


class Clock:
    """A clock that stands still until it is moved; only the alarm has a real one."""

    def __init__(self) -> None:
        self.moved = 0.0

    def now(self) -> float:
        return self.moved


class Added:
    """Watches, as far as a holder's are concerned: which key was watched, from which revision on."""

    def __init__(self, added: Callable[[bytes, int], None]) -> None:
        self._added = added

    def add(self, key: bytes, end: bytes, revision: int, *args: Any, **options: Any) -> object:
        self._added(key, revision)
        return object()

    def drop(self, watch: object) -> None:
        pass


def queue_of(name: str) -> Queue:
    return Queue(Naming("n"), name, "lock", 1, "session", NUMBERS)


def attempt_of(queue: Queue, changed: int) -> Any:
    ticket = Ticket(Terms("x", 30.0, Label("here", 1)), "me")
    attempt = Attempt(ticket, queue, queue.take_key(), RLock())
    attempt.changed = changed
    return attempt


def watch_of(added: Callable[[bytes, int], None]) -> Any:
    watches: Any = Added(added)
    return HolderWatch(system_clock(), RLock(), watches, lambda events: None, lambda queue: None)


async def test_a_queue_is_watched_from_its_oldest_grant_on() -> None:
    watched: list[tuple[bytes, int]] = []
    clock = Clock()
    holders = watch_of(lambda key, revision: watched.append((key, revision)))
    holders._clock = clock
    alarms: list[float] = []
    holders._alarm.at = lambda due, ring: alarms.append(due)
    queues = [queue_of("a"), queue_of("b")]
    released = attempt_of(queues[1], 3)
    for attempt in (
        attempt_of(queues[0], 7),
        attempt_of(queues[0], 5),
        attempt_of(queues[0], 9),
        attempt_of(queues[1], 8),
        released,
    ):
        holders.add(attempt)
    released.give_up()
    assert alarms == [module.SOON]
    holders._ring()
    assert watched == []  # they have it for no time yet
    assert len(alarms) == 2
    clock.moved += module.SOON
    young = attempt_of(queues[1], 11)
    holders.add(young)
    holders._ring()
    assert sorted(watched, key=lambda one: one[1]) == [(queues[0].own, 6), (queues[1].own, 9)]
    watched.clear()
    holders.unwatch(queues[1])
    clock.moved += module.SOON
    holders._ring()
    assert watched == [(queues[1].own, 12)]
    holders.close()


async def test_a_queue_without_a_key_of_ours_is_not_watched() -> None:
    watched: list[int] = []
    holders = watch_of(lambda key, revision: watched.append(revision))
    queue = queue_of("a")
    attempt = attempt_of(queue, 1)
    queue.give_key(attempt.key, reusable=True)
    holders.watch(queue, 2)
    assert watched == []
    holders.close()


async def test_whoever_comes_while_others_are_looked_at_is_looked_at_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SOON", 0.02)
    watched: list[int] = []
    first, second, third = (attempt_of(queue_of(f"q{n}"), n) for n in (1, 2, 3))

    def added(key: bytes, revision: int) -> None:
        watched.append(revision)
        if revision == 2:
            holders.add(second)

    holders = watch_of(added)
    holders.add(first)
    await eventually(lambda: watched == [2, 3])
    holders.add(third)
    await eventually(lambda: watched == [2, 3, 4])
    holders.close()
