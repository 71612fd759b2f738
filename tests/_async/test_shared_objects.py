"""A lock object that many use at once: leaving ends the very lease that entering took."""

from __future__ import annotations

import copy
import pickle
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from holdfast import aio as holdfast
from worlds.aio import Job, eventually, pause


class Guard:
    """A context manager of a user's, which enters a lock by hand."""

    def __init__(self, lock: holdfast.Lock) -> None:
        self.lock = lock

    async def __aenter__(self) -> holdfast.Lease:
        return await self.lock.__aenter__()

    async def __aexit__(self, *error: object) -> None:
        await self.lock.__aexit__(*error)  # type: ignore[arg-type]


async def each(lock: holdfast.Lock) -> AsyncIterator[holdfast.Lease]:
    async with lock as lease:
        yield lease


async def held(locks: holdfast.Locks, name: str) -> int:
    return len((await locks.inspect(name)).holders)


async def test_generators_left_by_another_task_or_thread(url: str) -> None:
    """As synchronous `yield` dependencies of web frameworks are: in any order, and elsewhere."""
    async with holdfast.connect(url) as locks:
        lock = locks.semaphore("x", permits=3)
        for _ in range(5):
            bodies = [each(lock) for _ in range(3)]
            leases = [await Job(anext, body).result() for body in bodies]
            for number in (1, 2, 0):
                await Job(_exhausted, bodies[number]).result()
                assert not leases[number].held
                assert sum(one.held for one in leases) == await held(locks, "x")
            assert await held(locks, "x") == 0


async def _exhausted(body: AsyncIterator[holdfast.Lease]) -> None:
    with pytest.raises(StopAsyncIteration):
        await anext(body)


async def test_a_generator_that_is_dropped(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lock = locks.semaphore("x", permits=2)
        first, second = each(lock), each(lock)
        await anext(first)
        lease = await anext(second)
        await first.aclose()  # type: ignore[attr-defined]
        assert lease.held
        await second.aclose()  # type: ignore[attr-defined]
        assert not lease.held


async def test_one_statement_inside_another(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lock = locks.semaphore("x", permits=2)
        async with lock as outer:
            async with lock as inner:
                assert outer.token != inner.token
            assert outer.held
            assert not inner.held
        assert not outer.held


async def test_an_exit_stack_enters_a_lock_object_once(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lock = locks.semaphore("x", permits=3)
        async with AsyncExitStack() as first, AsyncExitStack() as second:
            lease = await first.enter_async_context(lock)
            async with lock as other:  # a statement is never mistaken
                with pytest.raises(holdfast.ConfigError, match="ExitStack"):
                    await second.enter_async_context(lock)
                assert await held(locks, "x") == 2
                third = await second.enter_async_context(await lock.acquire())
                await first.aclose()
                assert (lease.held, other.held, third.held) == (False, True, True)
            again = await first.enter_async_context(lock)
            assert again.held
        assert await held(locks, "x") == 0


async def test_a_manager_of_a_users_enters_by_hand(url: str) -> None:
    async with holdfast.connect(url) as locks:
        guard = Guard(locks.semaphore("x", permits=2))
        async with guard as lease:
            assert lease.held
            with pytest.raises(holdfast.ConfigError, match="by hand"):
                async with guard:
                    pass
            assert lease.held
        assert not lease.held
        assert await held(locks, "x") == 0


async def test_a_re_entrant_lock_is_entered_by_hand_again(url: str) -> None:
    async with holdfast.connect(url) as locks:
        guard = Guard(locks.rlock("x"))
        async with guard as lease:
            async with guard:
                pass
            assert lease.held
        assert not lease.held


async def test_an_exit_that_was_only_looked_at_changes_nothing(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lock = locks.lock("x")
        _ = lock.__aexit__
        looked_at = lock.__aexit__
        async with lock as lease:
            assert lease.held
        with pytest.raises(holdfast.LockNotOwned):
            await looked_at(None, None, None)
        with pytest.raises(holdfast.LockNotOwned):
            await lock.__aexit__(None, None, None)


async def test_a_mutex_that_two_stacks_share_is_waited_for(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lock = locks.lock("x")
        order: list[str] = []

        async def work(name: str) -> None:
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(lock)
                order.append(name)
                await pause(0.05)
                order.append(name)

        jobs = [Job(work, name) for name in "ab"]
        for job in jobs:
            await job.result()
        assert order in (["a", "a", "b", "b"], ["b", "b", "a", "a"])


async def test_a_context_manager_made_of_a_generator(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lock = locks.semaphore("x", permits=2)
        body = asynccontextmanager(each)
        async with AsyncExitStack() as first, AsyncExitStack() as second:
            one = await first.enter_async_context(body(lock))
            other = await second.enter_async_context(body(lock))
            await first.aclose()
            assert (one.held, other.held) == (False, True)


async def test_what_has_been_left_is_not_left_again(url: str) -> None:
    """An exit that was called is forgotten, and the bodies around it go on."""
    async with holdfast.connect(url) as locks:
        lock = locks.rlock("x", ttl=2.0)
        async with lock as lease:
            async with lock:
                pass
            end = lease._hold._deadline
            await eventually(lambda: lease._hold._deadline > end + 0.5)
            assert lease.held
        assert not lease.held


async def test_an_exit_that_is_looked_up_after_the_entry(url: str) -> None:
    """By hand, for an ExitStack: it belongs to no statement."""
    async with holdfast.connect(url) as locks, AsyncExitStack() as stack:
        lock = locks.semaphore("x", permits=3)
        first = await lock.__aenter__()
        stack.push_async_exit(lock.__aexit__)
        with pytest.raises(holdfast.ConfigError, match="by hand"):
            await lock.__aenter__()
        assert first.held
        await stack.aclose()
        assert not first.held


async def test_a_lease_that_is_entered_twice_ends_with_the_last_body(url: str) -> None:
    async with holdfast.connect(url) as locks:
        async with locks.lock("x") as lease:
            async with lease:
                pass
            assert lease.held
        assert not lease.held


async def test_an_entry_by_hand_that_fails_is_forgotten(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lock = locks.lock("x", ttl=30.0)
        async with AsyncExitStack() as stack:
            lease = await lock.acquire()
            await lease.release()
            with pytest.raises(holdfast.LeaseLost):
                await stack.enter_async_context(lease)
            await stack.enter_async_context(lock)
        async with AsyncExitStack() as stack:
            assert (await stack.enter_async_context(lock)).held


async def test_one_lease_in_the_stacks_of_two() -> None:
    """Each leaves its own body: the other's is still told of the loss, and no one else."""
    async with holdfast.connect("memory://") as locks:
        lease = await locks.lock("x", ttl=30.0).acquire()
        bodies = lease._hold._usage.bodies
        left: list[object] = []

        async def first() -> None:
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(lease)
                await eventually(lambda: len(bodies) == 2)
                second_body = bodies[1]
            assert bodies == [second_body]
            left.append(None)

        async def second() -> None:
            await eventually(lambda: len(bodies) == 1)
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(lease)
                await eventually(lambda: left)
                assert lease.held

        jobs = [Job(first), Job(second)]
        for job in jobs:
            await job.result()
        assert not lease.held


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
async def test_neither_a_lock_nor_a_lease_is_copied(copied: Callable[[object], object]) -> None:
    """A copy would share what was entered by hand, and leaving it end the lease of the other."""
    async with holdfast.connect("memory://") as locks:
        lock, several = locks.lock("x"), locks.multi(["y", "z"])
        async with lock as lease, several as both:
            for one in (lock, lease, several, both):
                with pytest.raises(TypeError, match="cannot be copied or pickled: it belongs to"):
                    copied(one)
