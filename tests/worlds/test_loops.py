"""A manager of `holdfast.aio` that lives longer than its event loop."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import aio as holdfast
from holdfast._async.session import Session
from worlds.descriptors import open_files
from worlds.threads import eventually


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if "holdfast" in thread.name}


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_manager_serves_one_loop_after_the_other(url: str) -> None:
    locks = holdfast.connect(url)
    lost: list[str] = []

    async def hold(name: str) -> holdfast.Lease:
        lease = await locks.lock(name, ttl=3.0).acquire(timeout=20.0)
        lease.on_lost(lambda lease: lost.append(lease.name))
        return lease

    async def close() -> None:
        await locks.close()

    first = asyncio.run(hold("x"))
    assert first.held  # nobody renews it any more, and its end is known
    second = asyncio.run(hold("y"))
    assert not first.held
    assert lost == ["x"]
    third = asyncio.run(hold("x"))  # when its TTL has ended
    assert third.token > first.token
    assert not second.held
    asyncio.run(close())
    assert not third.held
    assert lost == ["x", "y", "x"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of asyncio, about sockets of loops that were closed
        gc.collect()


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_lease_of_a_loop_that_has_ended_is_told_so(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    locks = holdfast.connect(url)
    leases: dict[str, Any] = {}
    waiting: list[asyncio.Task[holdfast.Lease]] = []

    async def hold() -> None:
        leases["release"] = await locks.lock("x", ttl=5.0).acquire(timeout=20.0)
        leases["tether"] = await locks.lock("z", ttl=5.0).acquire(timeout=20.0)
        waiting.append(asyncio.create_task(locks.lock("x", ttl=5.0).acquire()))
        session = await locks._session()
        while not session.waiters:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def export_it() -> None:
        with pytest.raises(holdfast.LeaseLost, match="the event loop of its manager has ended"):
            await leases["export"].export()

    async def hold_to_export() -> None:
        leases["export"] = await locks.lock("e", ttl=5.0).acquire(timeout=20.0)

    async def hold_more() -> None:
        leases["renew"] = await locks.lock("y", ttl=5.0).acquire(timeout=20.0)
        leases["several"] = await locks.multi(["a", "b"], ttl=5.0).acquire(timeout=20.0)

    async def use_the_first() -> None:
        assert await leases["release"].release() is False
        assert leases["release"].state == "lost"
        with pytest.raises(holdfast.LeaseLost):
            await leases["tether"].tether()

    async def use_the_others() -> None:
        with pytest.raises(holdfast.LeaseLost, match="the event loop of its manager has ended"):
            await leases["renew"].renew()
        assert await leases["several"].release() is False
        await locks.close()

    asyncio.run(hold())
    asyncio.run(use_the_first())
    asyncio.run(hold_to_export())
    asyncio.run(export_it())
    asyncio.run(hold_more())
    asyncio.run(use_the_others())
    assert not any(lease.held for lease in leases.values())
    assert "failed" not in caplog.text
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of asyncio, about sockets of loops that were closed
        gc.collect()


def test_close_in_another_loop_leaves_no_thread_and_no_file(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/locks.db"

    async def hold(locks: holdfast.Locks, *, close: bool) -> None:
        async with locks.lock("x"):
            pass
        if close:
            await locks.close()

    asyncio.run(hold(holdfast.connect(url), close=True))  # a process keeps one file of each store
    files_before, threads_before = open_files(tmp_path), threads()
    locks = holdfast.connect(url)
    asyncio.run(hold(locks, close=False))
    asyncio.run(locks.close())
    eventually(lambda: open_files(tmp_path) == files_before and threads() <= threads_before)


@pytest.mark.filterwarnings("ignore:the manager of locks:ResourceWarning")
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_manager_dropped_as_its_loop_ends_leaves_no_thread_and_no_file(
    tmp_path: Path, steps: int
) -> None:
    """Its closing has begun, or has not, when the loop is closed."""
    url = f"sqlite://{tmp_path}/locks.db"

    async def use_and_drop() -> None:
        locks = holdfast.connect(url)
        async with locks.lock("x"):
            pass
        del locks
        for _ in range(steps):
            await asyncio.sleep(0)

    async def use_and_close() -> None:
        async with holdfast.connect(url) as locks, locks.lock("x"):
            pass

    asyncio.run(use_and_close())  # a process keeps one file of each store
    files_before, threads_before = open_files(tmp_path), threads()
    for _ in range(3):
        asyncio.run(use_and_drop())

    def let_go() -> bool:
        gc.collect()  # from Python 3.12 on, the task of the closing is part of a cycle
        return open_files(tmp_path) == files_before and threads() <= threads_before

    eventually(let_go)


@pytest.mark.filterwarnings("ignore:the manager of locks:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_managers_dropped_in_loops_that_cancel_nothing_leave_one_thread_at_most(
    tmp_path: Path,
) -> None:
    """Such a loop lets go of nothing: what is left of it is let go of when the next is dropped."""
    url = f"sqlite://{tmp_path}/locks.db"

    async def use_and_drop() -> None:
        locks = holdfast.connect(url)
        async with locks.lock("x"):
            pass
        del locks
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    threads_before = threads()

    def collected() -> bool:
        gc.collect()
        return len(threads() - threads_before) <= 1

    for _ in range(4):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(use_and_drop())
        loop.close()
    eventually(collected)


@pytest.mark.parametrize("listens", [False, True])
async def test_a_lease_may_be_asked_in_another_thread(listens: bool) -> None:
    told: list[object] = []
    kinds: list[str] = []
    async with holdfast.connect("memory://elsewhere") as locks:
        if listens:
            locks.on_event(lambda event: kinds.append(event.kind))
        lease = await locks.lock("x", ttl=0.2, renew=False).acquire()
        lease.on_lost(told.append)
        answers: list[bool] = []
        time.sleep(0.25)  # the loop is busy past the deadline
        thread = threading.Thread(target=lambda: answers.append(lease.held))
        thread.start()
        thread.join()
        assert answers == [False]
        assert told == [lease]
        assert kinds.count("lost") == listens


async def test_a_lease_may_be_asked_to_call_back_in_another_thread() -> None:
    told: list[object] = []
    async with holdfast.connect("memory://asked") as locks:
        lease = await locks.lock("x", ttl=0.3, renew=False).acquire()
        await asyncio.to_thread(lease.on_lost, told.append)
        async with asyncio.timeout(60.0):
            while not told:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


def test_a_manager_is_closed_by_a_generator_that_the_loop_ends() -> None:
    kept: list[Any] = []

    async def life() -> AsyncIterator[None]:
        async with holdfast.connect("memory://generator") as locks:
            kept.append(await locks.lock("x").acquire())
            yield

    async def begin() -> None:
        generator = life()
        kept.append(generator)
        await anext(generator)

    asyncio.run(begin())
    assert kept[1].state == "released"


def test_a_store_that_was_down_in_one_loop_is_asked_in_the_next() -> None:
    locks = holdfast.connect("memory://down")
    opener = locks._opening._opener
    down = True

    def make() -> Any:
        backend: Any = opener()

        async def refuse(deadline: float) -> None:
            await asyncio.sleep(0.02)
            raise holdfast.BackendUnavailable("nobody there")

        if down:
            backend.open = refuse
        return backend

    locks._opening._opener = make

    async def together() -> list[Any]:
        attempts = (locks.lock(f"x{number}").try_acquire() for number in range(3))
        return await asyncio.gather(*attempts, return_exceptions=True)

    async def and_close() -> list[Any]:
        found = await together()
        await locks.close()
        return found

    for _ in range(2):
        assert {type(one) for one in asyncio.run(together())} == {holdfast.BackendUnavailable}
    down = False
    assert {type(one) for one in asyncio.run(and_close())} == {holdfast.Lease}


def test_two_loops_that_open_at_once_do_not_share_a_session() -> None:
    locks = holdfast.connect("memory://two")
    opener = locks._opening._opener
    both = threading.Barrier(2)

    def make() -> Any:
        backend: Any = opener()

        async def slowly(deadline: float) -> None:
            await asyncio.to_thread(both.wait, 60.0)

        backend.open = slowly
        return backend

    locks._opening._opener = make
    found: list[object] = []
    seen = threading.Barrier(2)

    async def ask() -> None:
        try:
            found.append(await locks.lock("x").try_acquire())
        except holdfast.LockError as error:
            found.append(error)
        await asyncio.to_thread(seen.wait, 60.0)
        if (
            locks._opening.live is not None
            and locks._opening.live.home is asyncio.get_running_loop()
        ):
            await locks.close()

    runs = [threading.Thread(target=asyncio.run, args=(ask(),)) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert {type(one) for one in found} == {holdfast.Lease, holdfast.LockError}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_loops_that_were_closed_leave_no_sessions() -> None:
    locks = holdfast.connect("memory://loops")

    async def work() -> None:
        await (await locks.lock("x").acquire()).release()

    def ours(one: object) -> bool:
        return isinstance(one, Session) and one.listeners is locks._opening.listeners

    def use_one() -> None:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(work())
        loop.close()

    for _ in range(5):
        use_one()
    gc.collect()
    assert sum(map(ours, gc.get_objects())) == 1
    asyncio.run(locks.close())


async def test_one_of_several_locks_may_be_asked_in_another_thread() -> None:
    async with (
        holdfast.connect("memory://parts") as others,
        holdfast.connect("memory://parts") as locks,
    ):
        lease = await locks.multi(["x", "y"], ttl=180.0, renew=False).acquire()
        hold: Any = lease.leases["x"]._hold
        hold._deadline = 0.0
        assert await asyncio.to_thread(lambda: lease.held) is False
        async with asyncio.timeout(60.0):
            while (await others.inspect("y")).held:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
