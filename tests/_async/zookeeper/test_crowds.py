"""Many waiters of one manager at one mutex: few of them read the names of all the others."""

from __future__ import annotations

from typing import Any

import pytest

from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.stores.zookeeper import queue
from holdfast.stores.zookeeper.attempt import WAITING
from holdfast.stores.zookeeper.lines import LANES
from holdfast.stores.zookeeper.session import ClientSession
from worlds.aio import Job, eventually

CROWD = 40


def count_sent(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Any]:
    """Returns the list of requests of that class that are sent from now on."""
    sent: list[Any] = []
    send = ClientSession.send

    def noted(session: Any, request: Any, *args: Any) -> None:
        if type(request).__name__ == name:
            sent.append(request)
        send(session, request, *args)

    monkeypatch.setattr(ClientSession, "send", noted)
    return sent


async def crowd_of(locks: holdfast.Locks, tokens: list[int]) -> list[Job[None]]:
    async def take_turn() -> None:
        async with locks.lock("x") as lease:
            tokens.append(lease.token)

    return [Job(take_turn) for _ in range(CROWD)]


async def one_waits(locks: holdfast.Locks, others: holdfast.Locks) -> Job[holdfast.Lease]:
    """Returns a waiter, once its znode is on the session for waiting."""
    waiter = Job(locks.lock("x").acquire)
    await until_waiting(others, 1)
    attempts = (await attempts_of(locks))._attempts
    await eventually(lambda: [one.parked for one in attempts.values()] == [True])
    return waiter


async def attempts_of(locks: holdfast.Locks) -> Any:
    backend: Any = (await locks._session()).backend
    return backend._attempts


async def test_a_crowd_joins_without_reading_the_queue(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        held = await others.lock("x").acquire()
        first = await one_waits(locks, others)
        joined = count_sent(monkeypatch, "Create2")
        tokens: list[int] = []
        # By renewals the queue is read, too: those that are due now are not the crowd's.
        reads: list[Any] = []
        decide = queue.Queue._decide

        def decided(self: Any, attempt: Any, *args: Any) -> None:
            reads.append(attempt)
            decide(self, attempt, *args)

        monkeypatch.setattr(queue.Queue, "_decide", decided)
        crowd = await crowd_of(locks, tokens)
        await until_waiting(others, CROWD + 1)
        assert len(joined) >= CROWD
        assert len(reads) <= CROWD / 4
        watched = [one.watched_path for one in (await attempts_of(locks))._attempts.values()]
        assert len(set(watched)) > CROWD / 2  # each watches another, or nearly
        await held.release()
        await (await first.result()).release()
        for job in crowd:
            await job.result()
        assert tokens == sorted(set(tokens))
        assert len(tokens) == CROWD
        assert not (await attempts_of(locks))._lines


async def test_a_few_join_at_a_time_and_the_first_alone(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        held = await others.lock("x").acquire()
        await (await locks.lock("warm").acquire()).release()
        attempts = await attempts_of(locks)
        create, most, alone = attempts._create, 0, True

        def counted(attempt: Any) -> None:
            nonlocal most, alone
            line = attempts._lines[attempt.lock_path]
            most = max(most, len(line.joining))
            alone = alone and (line.neighbour is not None or line.joining == {attempt})
            create(attempt)

        attempts._create = counted
        tokens: list[int] = []
        crowd = await crowd_of(locks, tokens)
        await until_waiting(others, CROWD)
        assert alone
        assert 1 <= most <= LANES
        del attempts._create
        await held.release()
        for job in crowd:
            await job.result()
        assert len(tokens) == CROWD


async def test_a_neighbour_that_has_gone_is_not_waited_for(url: str, raw: Any) -> None:
    """Somebody deletes it between our creation and our look at it."""
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        held = await others.lock("x").acquire()
        waiter = await one_waits(locks, others)
        attempts = await attempts_of(locks)
        (neighbour,) = attempts._attempts.values()
        watch = attempts._watch_neighbour

        def gone(attempt: Any, before: Any) -> None:
            raw.delete(before.path)
            watch(attempt, before)

        attempts._watch_neighbour = gone
        second = Job(locks.lock("x").acquire)
        await eventually(lambda: neighbour.state != WAITING)
        del attempts._watch_neighbour
        await held.release()
        leases = [await second.result()]
        await leases[0].release()
        assert (await waiter.result()).token > leases[0].token


async def test_the_time_in_line_is_not_the_stores(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        held = await others.lock("x").acquire()
        waiter = await one_waits(locks, others)
        attempts = await attempts_of(locks)
        (first,) = attempts._attempts.values()
        now = attempts.clock.now()
        assert attempts.later_deadline(first.owner, None, 5.0) == 0.0  # it was answered
        line = attempts._lines[first.lock_path]
        with attempts.mutex:
            state, first.state = first.state, "creating"
            line.joining.add(first)
            first.sent_at = now
            assert attempts.later_deadline(first.owner, None, 5.0) == now + 5.0
            assert attempts.later_deadline(first.owner, now + 1.0, 5.0) == now + 1.0
            line.joining.discard(first)
            line.waiting[first] = None
            line.answered = now + 2.0
            assert attempts.later_deadline(first.owner, None, 5.0) == now + 7.0
            del line.waiting[first]
            first.state = state
        assert attempts.later_deadline("nobody", None, 5.0) == 0.0
        await held.release()
        await (await waiter.result()).release()


async def test_a_renewal_goes_through_the_queue_once_for_all_waiters(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        held = await others.lock("x").acquire()
        tokens: list[int] = []
        crowd = await crowd_of(locks, tokens)
        await until_waiting(others, CROWD)
        session = await locks._session()
        reads: list[int] = []
        read = queue.Queue.read_for_renewal

        def counted(self: Any, names: Any, pzxid: int) -> Any:
            reads.append(len(names))
            return read(self, names, pzxid)

        monkeypatch.setattr(queue.Queue, "read_for_renewal", counted)
        checked = 0
        check = queue.Queue.check_waiter

        def noted(self: Any, *args: Any) -> float:
            nonlocal checked
            checked += 1
            return check(self, *args)

        monkeypatch.setattr(queue.Queue, "check_waiter", noted)
        session.look_at(list(session.waiters))
        await eventually(lambda: checked >= CROWD)
        assert 1 <= len(reads) <= CROWD / 4
        await held.release()
        for job in crowd:
            await job.result()
