"""Many waiters of one manager at one mutex: few of them read the names of all the others."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from kazoo.protocol.states import EventType, WatchedEvent

from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.entries import Claim
from holdfast.model import Waiting
from holdfast.stores.zookeeper import queue
from holdfast.stores.zookeeper.attempt import WAITING
from holdfast.stores.zookeeper.lines import JOINS_AT_ONCE, Line
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
        assert 1 <= most <= JOINS_AT_ONCE
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

        def gone(attempt: Any, path: str) -> None:
            if path == neighbour.path:
                raw.delete(path)
            watch(attempt, path)

        attempts._watch_neighbour = gone
        second = Job(locks.lock("x").acquire)
        await eventually(lambda: neighbour.state != WAITING)
        del attempts._watch_neighbour
        await held.release()
        leases = [await second.result()]
        await leases[0].release()
        assert (await waiter.result()).token > leases[0].token


async def test_a_neighbour_that_is_another_entry_by_now_is_not_waited_for(url: str) -> None:
    """It was lost while it joined, and has joined again: behind us."""
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        held = await others.lock("x").acquire()
        first = await one_waits(locks, others)
        attempts = await attempts_of(locks)
        (neighbour,) = attempts._attempts.values()
        created, watched = attempts._on_created_behind, []

        def late(before: Any, path: str, *reply: Any) -> None:
            assert (before, path) == (neighbour, neighbour.path)
            created(before, f"{path}-before", *reply)

        def seen(attempt: Any, path: str) -> None:
            watched.append(path)
            watch(attempt, path)

        attempts._lines[neighbour.lock_path].latest = neighbour
        watch, attempts._watch_neighbour = attempts._watch_neighbour, seen
        attempts._on_created_behind = late
        neighbour_session, neighbour.session = neighbour.session, neighbour.home
        second = Job(locks.lock("x").acquire)
        await eventually(lambda: watched)
        neighbour.session = neighbour_session
        assert watched == [""]
        del attempts._on_created_behind, attempts._watch_neighbour
        await held.release()
        await (await first.result()).release()
        await (await second.result()).release()


async def test_a_change_of_the_neighbour_while_it_is_read_is_not_missed(url: str) -> None:
    """The watch of another that waited for it tells of that, and ours does not stand yet."""
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        held = await others.lock("x").acquire()
        first = await one_waits(locks, others)
        attempts = await attempts_of(locks)
        watch = attempts._watch_neighbour
        fired: list[Any] = []

        def changed(attempt: Any, path: str) -> None:
            watch(attempt, path)
            fired.append(attempt)
            attempt.session._on_event(WatchedEvent(EventType.DELETED, "CONNECTED", path))

        attempts._watch_neighbour = changed
        second = Job(locks.lock("x").acquire)
        await eventually(lambda: fired)
        del attempts._watch_neighbour
        (waiter,) = fired

        def is_told() -> bool:
            with attempts.mutex:
                watches = waiter.session._watches
                return waiter.state == WAITING and waiter in watches.get(waiter.watched_path, ())

        await eventually(is_told)
        await held.release()
        await (await first.result()).release()
        await (await second.result()).release()


async def test_whoever_has_no_connection_is_not_stood_behind() -> None:
    line = Line(0.0)
    attempts: list[Any] = [Mock(session=Mock(ready=True)) for _ in range(3)]
    gone, first, _ = attempts
    line.waiting = dict.fromkeys(attempts)
    gone.session.ready = False
    assert line.first is first
    gone.session.ready = True
    assert line.first is gone
    for one in attempts:
        one.session.ready = False
    assert line.first is None


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
        session = await locks._session()
        attempts = (await attempts_of(locks))._attempts
        await eventually(
            lambda: len(session.waiters) == sum(one.parked for one in [*attempts.values()]) == CROWD
        )
        checked: list[Any] = []
        check = queue.Queue.check_waiter

        def noted(self: Any, attempt: Any, read: Any) -> float:
            checked.append(read)
            return check(self, attempt, read)

        monkeypatch.setattr(queue.Queue, "check_waiter", noted)
        claims = [Claim("x", owner, 60.0) for owner in session.waiters]
        backend: Any = session.backend
        outcomes = await backend.renew(claims, backend.clock.now() + 10.0)
        assert all(isinstance(outcome, Waiting) for outcome in outcomes)
        assert CROWD in map(checked.count, checked)
        await held.release()
        for job in crowd:
            await job.result()
