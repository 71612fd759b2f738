# unasync: skip-file
"""Cancelled at every await there is: no ghost lock, no ghost waiter, nothing left believing.

Each scenario is run again and again, cancelled at its first suspension, its second, and so on until
it runs to its end uncancelled; then once more with a second cancellation right behind the first, which
finds the clean-up under way.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import pytest

from holdfast import aio as holdfast
from worlds.aio import eventually
from worlds.descriptors import running_threads


class CancelledAt:
    """Awaits a coroutine, and cancels the task at the n-th time that it is suspended."""

    def __init__(self, work: Coroutine[Any, Any, object], moment: int, times: int) -> None:
        self._work = work
        self._moments = range(moment, moment + times)
        self.suspensions = 0

    def __await__(self) -> Generator[Any, Any, object]:
        error: BaseException | None = None
        while True:
            try:
                waiting_for = self._work.send(None) if error is None else self._work.throw(error)
            except StopIteration as done:
                return done.value
            error = None
            self.suspensions += 1
            if self.suspensions in self._moments:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            try:
                yield waiting_for
            except BaseException as thrown:
                error = thrown


VERBS = ("acquire", "acquire_all", "renew", "release", "amend", "wait")


class Suspending:
    """A backend whose verbs are suspended before and after they do what they do: a request that is
    cancelled before it was sent, and one whose answer is."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._backend, name)
        if name not in VERBS:
            return verb

        async def suspended(*args: object) -> object:
            await asyncio.sleep(0)
            answer = await verb(*args)
            await asyncio.sleep(0)
            return answer

        return suspended


async def uncontended(locks: holdfast.Locks) -> None:
    lease = await locks.lock("x").acquire()
    await lease.release()


async def with_body(locks: holdfast.Locks) -> None:
    async with locks.lock("x") as lease:
        await asyncio.sleep(0)
        await lease.renew()


async def timed_out(locks: holdfast.Locks) -> None:
    await locks.lock("held").try_acquire(timeout=0.01)


async def tried(locks: holdfast.Locks) -> None:
    await locks.lock("held").try_acquire()
    lease = await locks.lock("x").try_acquire()
    assert lease is not None
    await lease.release()


async def waited(locks: holdfast.Locks) -> None:
    """Queues behind somebody who gives it back soon."""
    first = await locks.lock("x").acquire()

    async def let_go() -> None:
        await asyncio.sleep(0.002)
        await first.release()

    task = asyncio.create_task(let_go())
    try:
        second = await locks.lock("x").acquire(timeout=10.0)
        await second.release()
    finally:
        if not task.done():
            await asyncio.shield(task)


async def opened_and_closed(locks: holdfast.Locks) -> None:
    async with holdfast.connect(locks.url) as others:
        await (await others.lock("x").acquire()).release()


async def several(locks: holdfast.Locks) -> None:
    async with locks.multi(["x", "y"]) as lease:
        await asyncio.sleep(0)
        await lease.renew()


async def several_of_which_one_is_held(locks: holdfast.Locks) -> None:
    """Takes "a", and waits for the second in vain."""
    assert await locks.multi(["a", "held", "x"]).try_acquire() is None
    assert await locks.multi(["a", "held", "x"]).try_acquire(timeout=0.01) is None


async def several_waited(locks: holdfast.Locks) -> None:
    first = await locks.lock("x").acquire()

    async def let_go() -> None:
        await asyncio.sleep(0.002)
        await first.release()

    task = asyncio.create_task(let_go())
    try:
        lease = await locks.multi(["a", "x", "y"]).acquire(timeout=10.0)
        await lease.release()
    finally:
        if not task.done():
            await asyncio.shield(task)


async def of_other_kinds(locks: holdfast.Locks) -> None:
    async with locks.semaphore("a permit", permits=2):
        pass
    async with locks.rwlock("a book").write() as writer:
        await writer.downgrade()
    async with await locks.election("a chair").campaign():
        pass
    slot = await locks.once("a job", 60.0)
    assert slot is not None
    await slot.give_back()


SCENARIOS = [
    uncontended,
    with_body,
    timed_out,
    tried,
    waited,
    opened_and_closed,
    several,
    several_of_which_one_is_held,
    several_waited,
    of_other_kinds,
]


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_nothing_is_left_behind(
    url: str, scenario: Callable[[holdfast.Locks], Coroutine[Any, Any, None]], times: int
) -> None:
    async with holdfast.connect(url) as watcher, holdfast.connect(url) as locks:
        held = await watcher.lock("held").acquire()
        session = await locks._session()
        session.backend = Suspending(session.backend)
        moment = 0
        cancelled = True

        async def clean() -> bool:
            states = await watcher.list()
            return [state.name for state in states] == ["held"] and not states[0].waiters

        while cancelled:
            moment += 1
            run = CancelledAt(scenario(locks), moment, times)

            async def work(run: CancelledAt = run) -> None:
                await run

            task = asyncio.create_task(work())
            await asyncio.wait({task})
            cancelled = task.cancelled()
            if not cancelled:
                error = task.exception()
                assert error is None or isinstance(error, asyncio.CancelledError), error
                # Cancelled at a moment that the scenario was already past shielding from, or at
                # none: it is over when it has been suspended fewer times than that.
                cancelled = run.suspensions >= moment
            await eventually(clean)
            # A request that was cancelled may still be under way, with its clean-up behind it. A
            # ghost would stay for its TTL of 30 s.
            lease = await watcher.lock("x").try_acquire(timeout=10.0)
            assert lease is not None, f"a ghost, after a cancellation at suspension {moment}"
            await lease.release()
            await eventually(clean)
            assert moment < 200
        assert moment > 1
        assert held.held
        assert session.leases == {}


@pytest.mark.parametrize("scenario", [several, several_of_which_one_is_held, several_waited])
async def test_nothing_is_left_behind_by_calls_side_by_side(
    url: str, scenario: Callable[[holdfast.Locks], Coroutine[Any, Any, None]]
) -> None:
    """Cancelled after one turn of the event loop, after two, and so on: some calls are further on."""
    async with holdfast.connect(url) as watcher, holdfast.connect(url) as locks:
        held = await watcher.lock("held").acquire()
        session = await locks._session()
        session.backend = Suspending(session.backend)

        async def clean() -> bool:
            states = await watcher.list()
            return [state.name for state in states] == ["held"] and not states[0].waiters

        turns = 0
        cancelled = True
        while cancelled:
            turns += 1
            task = asyncio.create_task(scenario(locks))
            for _ in range(turns):
                await asyncio.sleep(0)
            cancelled = task.cancel() and turns < 120
            await asyncio.wait({task})
            assert task.cancelled() or task.exception() is None
            await eventually(clean)
        assert held.held
        await eventually(lambda: not session.leases and not session.tickets)


async def opened(url: str) -> None:
    async with holdfast.connect(url) as locks:
        await (await locks.lock("x").acquire()).release()


def in_use() -> tuple[int, int]:
    gc.collect()
    return len(os.listdir("/proc/self/fd")), running_threads()


async def test_an_opening_that_is_cancelled_leaves_nothing_open(url: str) -> None:
    await opened(url)
    files, threads = in_use()
    moment = 0
    cancelled = True
    while cancelled:
        moment += 1
        run = CancelledAt(opened(url), moment, 1)

        async def work(run: CancelledAt = run) -> None:
            await run

        task = asyncio.create_task(work())
        await asyncio.wait({task})
        cancelled = run.suspensions >= moment
        assert cancelled or task.exception() is None
        assert moment < 200

    # Not after each: a driver may close what it has when it next does something.
    def as_before() -> bool:
        now_files, now_threads = in_use()
        return now_files <= files and now_threads <= threads

    await eventually(as_before)
