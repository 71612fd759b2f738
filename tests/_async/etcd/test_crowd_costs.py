"""Hundreds of waiters of one manager: none of them makes the others go through the whole queue."""

from __future__ import annotations

from typing import Any

import pytest

from _async.etcd.scenes import backend_of, soon, watched
from _async.etcd.test_crowds import managers, ticket_of
from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.entries import Claim
from holdfast.model import GONE, Granted, Queued, Waiting
from worlds.aio import Job, eventually

CROWD = 40


def claim_of(owner: str) -> Claim:
    return Claim("x", owner, 60.0)


def count_reads(backend: Any) -> list[bytes]:
    """Returns the list of reads that the manager makes from now on."""
    read, reads = backend._retrier.range, []

    async def noted(request: bytes, deadline: float) -> Any:
        reads.append(request)
        return await read(request, deadline)

    backend._retrier.range = noted
    return reads


async def enqueue(backend: Any, number: int = CROWD) -> list[Any]:
    """Returns the attempts of so many waiters, in the order of the queue."""
    waiter_watch = backend._attempts.waiter_watch
    waiter_watch.listen()  # or else they are told to look when that stands
    await eventually(lambda: waiter_watch._wakeup.confirmed)
    owners = [f"w{one}" for one in range(number)]
    for owner in owners:
        assert isinstance(await backend.acquire(ticket_of(owner), soon(backend)), Queued)
    return [backend._attempts.known("x", owner) for owner in owners]


async def test_waiters_that_ask_at_once_share_a_read(cluster: EtcdCluster) -> None:
    """As all do whose manager has begun to listen to wake-ups only after they had joined."""
    async with managers(cluster) as (others, _, backend):
        held = await others.lock("x").acquire()
        attempts = await enqueue(backend)
        reads = count_reads(backend)
        for attempt in attempts:
            backend._attempts.waiter_watch.hint(attempt)

        async def ask(owner: str) -> Any:
            return await backend.renew([claim_of(owner)], soon(backend))

        jobs = [Job(ask, attempt.owner) for attempt in attempts]
        for job in jobs:
            (outcome,) = await job.result()
            assert isinstance(outcome, Waiting)
        assert 1 <= len(reads) <= 2
        await held.release()


async def test_those_who_clean_up_after_a_failure_share_a_read(cluster: EtcdCluster) -> None:
    """Nobody knows of these owners here: another manager may have asked for them."""
    async with managers(cluster) as (others, _, backend):
        held = await others.lock("x").acquire()
        reads = count_reads(backend)
        lookups = backend._renewer._lookups
        find, read = lookups.find, backend._retrier.range
        came: list[str] = []

        async def counted(name: str, owner: str, deadline: float) -> Any:
            came.append(owner)
            return await find(name, owner, deadline)

        async def when_all_have_come(request: bytes, deadline: float) -> Any:
            await eventually(lambda: len(came) == CROWD)
            backend._retrier.range = read
            return await read(request, deadline)

        async def clean_up(owner: str) -> bool:
            return bool(await backend.release("x", owner, soon(backend)))

        lookups.find, backend._retrier.range = counted, when_all_have_come
        owners = [f"w{one}" for one in range(CROWD - 1)]
        jobs = [Job(clean_up, owner) for owner in (*owners, held.owner)]
        assert [await job.result() for job in jobs] == [False] * len(owners) + [True]
        assert len(reads) == 2  # the first one's, and another for all who came after it
        await eventually(lambda: not len(lookups._lookups))
        assert not (await others.inspect("x")).holders


async def test_what_was_heard_since_a_read_calls_for_another(cluster: EtcdCluster) -> None:
    async with managers(cluster) as (others, _, backend):
        held = await others.lock("x").acquire()
        first, second = await enqueue(backend, 2)
        claims = [claim_of("w0"), claim_of("w1")]
        reads = count_reads(backend)
        await backend.renew(claims, soon(backend))
        assert len(reads) == 1
        second.stir(backend.clock.now())
        await backend.renew(claims, soon(backend))
        assert len(reads) == 2
        assert second.stirred < backend._attempts.waiter_watch._blockers[second].looked
        # One that has joined since is in no older read.
        backend._attempts.waiter_watch.drop(first)
        first.created, created = first.queue.reading.revision + 1, first.created
        await backend.renew(claims, soon(backend))
        assert len(reads) == 3
        first.created = created
        await held.release()


async def test_a_read_serves_no_longer_than_the_holder_may_have_the_lock(
    cluster: EtcdCluster,
) -> None:
    """And the waiter asks after that, not before: it would be told the same again at once."""
    async with managers(cluster) as (others, _, backend):
        held = await others.lock("x").acquire()
        (waiter,) = await enqueue(backend, 1)
        reads = count_reads(backend)
        (outcome,) = await backend.renew([claim_of("w0")], soon(backend))
        reading = waiter.queue.reading
        assert outcome.since + outcome.remaining >= min(
            reading.began + reading.longest_hold, outcome.since + waiter.lease.use / 3
        )
        reading.longest_hold = 0.0  # as if nobody had been seen to hold the lock
        backend._attempts.waiter_watch.drop(waiter)
        (outcome,) = await backend.renew([claim_of("w0")], soon(backend))
        assert len(reads) == 2
        now = backend.clock.now()
        waiter.queue.reading.longest_hold = 0.0
        assert waiter.queue.reading.serves(waiter, waiter.queue.reading.began, now)
        assert not waiter.queue.reading.serves(waiter, now, now)
        await held.release()


async def test_who_ends_while_others_are_renewed_is_not_looked_for(cluster: EtcdCluster) -> None:
    """A queue that goes from hand to hand ends some of each renewal's waiters."""
    async with managers(cluster) as (others, _, backend):
        held = await others.lock("x").acquire()
        attempts = await enqueue(backend)
        keep_alive = backend._leases.keep_alive

        async def meanwhile(*args: Any, **options: Any) -> Any:
            backend._leases.keep_alive = keep_alive
            for attempt in attempts[1:]:
                await backend._releaser.release(attempt, soon(backend))
            reads.clear()
            return await keep_alive(*args, **options)

        reads = count_reads(backend)
        backend._leases.keep_alive = meanwhile
        claims = [claim_of(attempt.owner) for attempt in attempts]
        first, *rest = await backend.renew(claims, soon(backend))
        assert isinstance(first, Waiting)
        assert set(rest) == {GONE}
        assert len(reads) == 1
        await held.release()


async def test_behind_a_waiter_of_its_own_manager_nothing_is_watched(cluster: EtcdCluster) -> None:
    async with managers(cluster) as (others, _, backend):
        held = await others.lock("x").acquire()
        attempts = await enqueue(backend)
        claims = [claim_of(attempt.owner) for attempt in attempts]
        await backend.renew(claims, soon(backend))
        await eventually(lambda: all(watched(backend, attempt) for attempt in attempts))
        assert len(backend._watches._watches) == 1  # the first waiter's, of the holder
        waiter_watch = backend._attempts.waiter_watch
        ahead, behind = attempts[3], attempts[4]
        assert waiter_watch.is_quiet(behind)
        # It counts only as long as it waits, and its key cannot end before that of the other.
        ahead.token = 7
        assert not waiter_watch.is_quiet(behind)
        ahead.token = 0
        assert waiter_watch.is_quiet(behind)
        lease, ahead.lease = ahead.lease, None
        assert not waiter_watch.is_quiet(behind)
        ahead.lease = lease
        assert waiter_watch.is_quiet(behind)
        await backend._releaser.release(ahead, soon(backend))
        assert not waiter_watch.is_quiet(behind)
        await held.release()


async def test_behind_one_that_has_left_its_predecessor_counts(cluster: EtcdCluster) -> None:
    async with managers(cluster) as (others, _, backend):
        held = await others.lock("x").acquire()
        first, second, third = await enqueue(backend, 3)
        claims = [claim_of(attempt.owner) for attempt in (first, second, third)]
        await backend.renew(claims, soon(backend))
        await backend._releaser.release(second, soon(backend))

        async def stands_behind_the_first() -> bool:
            await backend.renew([claims[0], claims[2]], soon(backend))
            return backend._attempts.waiter_watch._blockers[third].ahead is first

        await eventually(stands_behind_the_first)
        await held.release()


async def test_a_release_tells_a_waiter_of_its_own_manager(cluster: EtcdCluster) -> None:
    """It need not wait for the wake-up, which is for the waiters of others."""
    async with managers(cluster) as (_, _locks, backend):
        assert isinstance(await backend.acquire(ticket_of("holder"), soon(backend)), Granted)
        (attempt,) = await enqueue(backend, 1)
        backend._attempts.waiter_watch._wakeup.heard = lambda events: None
        assert await backend.release("x", "holder", soon(backend)) is True
        grant = await backend.wait(attempt.ticket, soon(backend))
        assert grant is not None
        assert grant.handed
        assert grant.token == attempt.token == attempt.changed


async def test_from_hand_to_hand_the_queue_is_seldom_read(cluster: EtcdCluster) -> None:
    async with managers(cluster) as (others, locks, backend):
        held = await others.lock("x").acquire()
        tokens: list[int] = []

        async def take_turn() -> None:
            async with locks.lock("x") as lease:
                tokens.append(lease.token)

        crowd = [Job(take_turn) for _ in range(CROWD)]
        await until_waiting(others, CROWD)
        await eventually(
            lambda: all(watched(backend, one) for one in backend._attempts._attempts.values())
        )
        reads = count_reads(backend)
        sent: list[bytes] = []
        backend._watches._stream.send = sent.append
        await held.release()
        for job in crowd:
            await job.result()
        assert tokens == sorted(set(tokens))
        assert len(tokens) == CROWD
        assert len(reads) < CROWD / 2
        assert len(sent) < CROWD / 2  # watches begun and ended


# Joining.


async def test_a_few_at_a_time_join(cluster: EtcdCluster) -> None:
    """A thousand requests at once would keep the lease of all from being kept alive in time."""
    async with managers(cluster) as (others, locks, backend):
        held = await others.lock("x").acquire()
        join, at_once, most = backend._retrier.txn, 0, 0

        async def counted(request: bytes, *args: Any, **options: Any) -> Any:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            try:
                return await join(request, *args, **options)
            finally:
                at_once -= 1

        backend._retrier.txn = counted
        del backend._acquirer._turnstile._turns[2:]

        async def take_turn() -> None:
            async with locks.lock("x"):
                pass

        crowd = [Job(take_turn) for _ in range(CROWD)]
        await until_waiting(others, CROWD)
        assert 1 <= most <= 3  # and the first of all, which asks
        backend._retrier.txn = join
        await held.release()
        for job in crowd:
            await job.result()


async def test_the_time_behind_others_of_its_manager_is_not_the_stores(
    cluster: EtcdCluster,
) -> None:
    async with managers(cluster) as (_, _locks, backend):
        assert isinstance(await backend.acquire(ticket_of("holder"), soon(backend)), Granted)
        turnstile = backend._acquirer._turnstile
        del turnstile._turns[1:]
        (turn,) = turnstile._turns
        assert await turn.take(10.0)
        deadline = backend.clock.now() + 0.3

        async def ask(owner: str) -> Any:
            return await backend.acquire(ticket_of(owner), deadline)

        try:
            waiter = Job(ask, "unanswered")
            await eventually(lambda: backend.clock.now() > deadline + 0.3)
            assert not waiter.done()
            turnstile.failed()  # whoever has the turn was not answered
            with pytest.raises(holdfast.BackendUnavailable, match="did not answer in time"):
                await waiter.result()
        finally:
            turn.end()
        assert isinstance(await ask("answered"), Queued)


async def test_the_time_behind_the_first_of_its_manager_is_not_the_stores(
    cluster: EtcdCluster,
) -> None:
    """Nobody of its manager is in the queue yet: the first one asks, and the others stand in line."""
    async with managers(cluster) as (_, _locks, backend):
        turnstile = backend._acquirer._turnstile
        del turnstile._turns[1:]
        backend._attempts.enrol(ticket_of("another"))  # so they are several
        answering: list[bool] = []
        txn = backend._retrier.txn

        async def late(*args: Any, **options: Any) -> Any:
            answering.append(False)
            await eventually(lambda: all(answering))
            return await txn(*args, **options)

        async def ask(owner: str, deadline: float) -> Any:
            return await backend.acquire(ticket_of(owner), deadline)

        backend._retrier.txn = late
        first = Job(ask, "first", soon(backend))
        await eventually(lambda: answering)
        backend._retrier.txn = txn
        second = Job(ask, "second", soon(backend))
        taken = turnstile._turns[0]
        await eventually(lambda: _is_taken(taken))
        turnstile._answered = backend.clock.now() + 60.0  # the store answers others
        deadline = backend.clock.now() + 0.3
        third = Job(ask, "third", deadline)
        await eventually(lambda: backend.clock.now() > deadline + 0.3)
        assert not third.done()
        answering[:] = [True]
        assert isinstance(await first.result(), Granted)
        assert isinstance(await second.result(), Queued)
        assert isinstance(await third.result(), Queued)
        assert turnstile._answered <= backend.clock.now()


def _is_taken(turn: Any) -> bool:
    """Tells whether somebody has the turn, in either world."""
    lock = turn._lock
    return bool(lock.locked() if hasattr(lock, "locked") else "count=0" not in repr(lock))


async def test_a_lock_that_nobody_asks_for_is_asked_for_beside_a_crowd(
    cluster: EtcdCluster,
) -> None:
    """The crowd stands in line for another lock."""
    async with managers(cluster) as (_, _locks, backend):
        turnstile = backend._acquirer._turnstile
        del turnstile._turns[1:]
        turn = turnstile._turns[0]
        assert await turn.take(1.0)
        try:
            backend._attempts.enrol(ticket_of("another"))  # so they are several
            answer = Job(backend.acquire, ticket_of("first"), soon(backend))
            assert isinstance(await answer.result(), Granted)
        finally:
            turn.end()


async def test_a_caller_that_gives_up_does_not_stand_behind_others_for_longer(
    cluster: EtcdCluster,
) -> None:
    async with managers(cluster) as (_, locks, backend):
        held = await locks.lock("x").acquire()
        turnstile = backend._acquirer._turnstile
        del turnstile._turns[1:]
        (turn,) = turnstile._turns
        assert await turn.take(10.0)
        try:
            turnstile._answered = backend.clock.now() + 60.0
            with pytest.raises(holdfast.BackendUnavailable):
                await Job(locks.lock("x").try_acquire, 0.2).result()
        finally:
            turn.end()
        assert (await backend_of(locks)) is backend
        await held.release()
