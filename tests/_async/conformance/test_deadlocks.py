"""Those who wait for each other in a circle are found, on every store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.model import LockState
from worlds.aio import Job, eventually


async def test_two_managers_that_wait_for_each_other(url: str) -> None:
    async with (
        holdfast.connect(url, label="one") as one,
        holdfast.connect(url, label="two") as two,
        holdfast.connect(url) as watcher,
    ):
        x = await one.lock("x").acquire()
        y = await two.lock("y").acquire()
        assert await watcher.deadlocks() == []
        first = Job(one.lock("y", timeout=60.0).acquire)
        await until_waiting(watcher, name="y")
        assert await watcher.deadlocks() == []  # only one of them waits
        second = Job(two.lock("x", timeout=60.0).acquire)
        await until_waiting(watcher, name="x")
        (deadlock,) = await watcher.deadlocks()
        steps = {wait.waiter.label.text: wait for wait in deadlock.cycle}
        assert steps.keys() == {"one", "two"}
        assert (steps["one"].name, steps["two"].name) == ("y", "x")
        assert (steps["one"].blocker.owner, steps["two"].blocker.owner) == (y.owner, x.owner)
        assert steps["one"].blocker.token == y.token
        assert sorted(deadlock.names) == ["x", "y"]
        assert sorted(label.text for label in deadlock.participants) == ["one", "two"]
        assert deadlock.since == max(wait.waiter.since for wait in deadlock.cycle)
        assert "waits for 'x', which is held by one" in str(deadlock)
        assert [each.names for each in await one.deadlocks()] == [deadlock.names]
        await x.release()
        lease = await second.result()
        assert await watcher.deadlocks() == []
        await lease.release()
        await y.release()
        await (await first.result()).release()


async def test_a_lock_that_is_only_waited_for_is_no_deadlock(url: str) -> None:
    async with holdfast.connect(url) as one, holdfast.connect(url) as two:
        held = await one.lock("x").acquire()
        jobs = [Job(manager.lock("x", timeout=60.0).acquire) for manager in (one, two)]
        await until_waiting(one, 2)
        assert await one.deadlocks() == []
        await held.release()

        async def granted() -> bool:
            return any(job.done() for job in jobs)

        while jobs:  # in whatever order they are served
            await eventually(granted)
            (done, *_) = [job for job in jobs if job.done()]
            await (await done.result()).release()
            jobs.remove(done)


async def test_a_reader_and_a_writer_behind_each_other(fair_url: str) -> None:
    async with holdfast.connect(fair_url) as one, holdfast.connect(fair_url) as two:
        book = await one.rwlock("book").read().acquire()
        x = await two.lock("x").acquire()
        jobs = [Job(two.rwlock("book", timeout=60.0).write().acquire)]
        await until_waiting(one, name="book")
        jobs.append(Job(one.lock("x", timeout=60.0).acquire))
        await until_waiting(one, name="x")
        (deadlock,) = await one.deadlocks()
        assert sorted(deadlock.names) == ["book", "x"]
        await book.release()
        await (await jobs[0].result()).release()
        await x.release()
        await (await jobs[1].result()).release()


async def test_a_session_is_a_party_of_its_own() -> None:
    async with holdfast.connect("memory://") as one, holdfast.connect("memory://") as two:
        owners = [(await one.lock("x").acquire()).owner, (await two.lock("z").acquire()).owner]
        again = (await one.lock("y").acquire()).owner
        assert owners[0][:10] == again[:10] != owners[1][:10]
        assert len({*owners, again}) == 3
        assert all(len(owner) == 24 for owner in owners)


async def test_what_was_seen_in_one_reading_only_is_not_told() -> None:
    """A store reads one lock after another: what it shows may never have been true at once."""
    url = "memory://readings"
    async with holdfast.connect(url) as one, holdfast.connect(url) as two:
        x = await one.lock("x").acquire()
        y = await two.lock("y").acquire()
        first = Job(one.lock("y", timeout=60.0).acquire)
        await until_waiting(one, name="y")
        backend: Any = (await one._session()).backend
        true_list = backend.list

        async def never_true(prefix: str, deadline: float) -> Sequence[LockState]:
            """Shows the second manager as waiting for "x" as well, once."""
            backend.list = true_list
            first, *rest = await true_list(prefix, deadline)
            assert first.name == "x"
            waiter = first.holders[0]._replace(owner=y.owner[:10] + "0" * 14, token=0)
            return [first._replace(waiters=(waiter,)), *rest]

        backend.list = never_true
        assert await one.deadlocks() == []
        assert backend.list is not never_true
        await x.release()
        await y.release()
        await (await first.result()).release()
