"""A client that is starved renews late: whose place is kept then, and how the others leave."""

from __future__ import annotations

from typing import Any

from _async.etcd.scenes import backend_of, soon
from _async.etcd.test_crowd_costs import claim_of, enqueue
from _async.etcd.test_crowds import managers, noted, ticket_of
from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.model import GONE, Granted, Label, Queued, Renewed, Waiting
from holdfast.stores._async.contract import Terms, Ticket
from holdfast.stores.etcd._async.leases import HOLD, QUEUE
from worlds.aio import Job, eventually


def make_late(backend: Any, *attempts: Any) -> None:
    """Lets it be so long since the renewal of `attempts` that their time is over; their lease lives."""
    for attempt in attempts:
        attempt.until = backend.clock.now()


async def keep_alive(backend: Any, lease: Any) -> None:
    """Keeps a lease alive as one does who joins the queue."""
    lease.sent -= lease.fresh_for
    assert await backend._leases.shared(QUEUE, backend.claim_window, soon(backend)) is lease


def ours(backend: Any) -> set[str]:
    return {attempt.owner for attempt in backend._attempts._attempts.values()}


async def waiting(locks: Any) -> list[str]:
    return [one.owner for one in (await locks.inspect("x")).waiters]


async def test_who_is_waited_for_keeps_its_place_though_its_heartbeat_is_late(
    cluster: EtcdCluster,
) -> None:
    async with managers(cluster) as (others, locks, backend):
        held = await others.lock("x").acquire()
        granted: list[str] = []

        async def take_turn() -> None:
            async with locks.lock("x", timeout=60.0) as lease:
                granted.append(lease.owner)

        crowd = [Job(take_turn) for _ in range(3)]
        await until_waiting(others, 3)
        attempts = [one for one in backend._attempts._attempts.values() if one.name == "x"]
        await eventually(lambda: all(one.attended for one in attempts))
        before = await waiting(others)
        make_late(backend, *attempts)
        await keep_alive(backend, attempts[0].lease)
        assert await waiting(others) == before
        await held.release()
        for job in crowd:
            await job.result()
        assert granted == before


async def test_who_is_waited_for_on_behalf_of_another_process_loses_its_place(
    cluster: EtcdCluster,
) -> None:
    """A service waits for clients that may be gone: their heartbeats count, and nothing else."""
    async with managers(cluster) as (others, _, backend):
        held = await others.lock("x").acquire()
        ticket = Ticket(Terms("x", 60.0, Label("here", 1), bound=False), "theirs")
        assert isinstance(await backend.acquire(ticket, soon(backend)), Queued)
        waiter = Job(backend.wait, ticket, soon(backend))
        attempt = backend._attempts.known("x", "theirs")
        make_late(backend, attempt)
        await keep_alive(backend, attempt.lease)
        assert await waiting(others) == []
        ticket.tell()
        await waiter.result()
        await held.release()


async def test_who_is_renewed_late_has_not_lapsed(cluster: EtcdCluster) -> None:
    async with managers(cluster) as (others, _, backend):
        held = await others.lock("x").acquire()
        attempts = await enqueue(backend, 3)
        make_late(backend, *attempts)
        attempts[0].lease.sent -= 1.0  # so it is kept alive now
        claims = [claim_of(one.owner) for one in attempts[:2]]
        outcomes = await backend.renew(claims, soon(backend))
        assert all(isinstance(one, Waiting) for one in outcomes)
        assert await waiting(others) == ["w0", "w1"]  # and the third has lapsed
        assert await backend.renew([claim_of("w2")], soon(backend)) == [GONE]
        await held.release()


async def test_a_crowd_that_has_lapsed_leaves_by_few_requests(cluster: EtcdCluster) -> None:
    async with managers(cluster) as (others, locks, backend):
        held = await others.lock("x").acquire()
        first, *rest = await enqueue(backend)
        make_late(backend, *rest)
        requests = await noted(locks)
        await keep_alive(backend, first.lease)
        assert len(requests) == 1
        assert await waiting(others) == ["w0"]
        assert ours(backend) == {"w0"}
        assert first.lease.attempts == {first}
        await held.release()


async def test_while_a_crowd_leaves_its_lease_is_kept_alive(cluster: EtcdCluster) -> None:
    async with managers(cluster) as (others, _, backend):
        held = await others.lock("x").acquire()
        first, *rest = await enqueue(backend, 3)
        lease = first.lease
        make_late(backend, *rest)
        txn, leaving = backend._retrier.txn, []

        async def late(*args: Any, **options: Any) -> Any:
            backend._retrier.txn = txn
            leaving.append(True)
            await eventually(lambda: not leaving)
            return await txn(*args, **options)

        backend._retrier.txn = late
        lease.sent -= lease.fresh_for
        job = Job(backend.renew, [claim_of("w0")], soon(backend))
        await eventually(lambda: leaving)
        sent = lease.sent
        await keep_alive(backend, lease)
        (outcome,) = await backend.renew([claim_of("w0")], soon(backend))
        assert isinstance(outcome, Waiting)
        assert lease.sent > sent
        assert leaving
        leaving.clear()
        assert isinstance((await job.result())[0], Waiting)
        assert await waiting(others) == ["w0"]
        await held.release()


async def test_one_that_was_granted_the_lock_as_it_lapsed_hands_it_on(cluster: EtcdCluster) -> None:
    async with managers(cluster) as (others, _, backend):
        held = await others.lock("x").acquire()
        first, second, third = await enqueue(backend, 3)
        backend._attempts.waiter_watch._wakeup.heard = lambda events: None  # it does not know
        await held.release()
        await eventually(lambda: _holder_is(others, "w0"))
        assert not first.token
        make_late(backend, first, third)
        await keep_alive(backend, second.lease)
        await eventually(lambda: _holder_is(others, "w1"))
        assert await waiting(others) == []
        (outcome,) = await backend.renew([claim_of("w1")], soon(backend))
        assert isinstance(outcome, Renewed)
        assert ours(backend) == {"w1"}


async def _holder_is(locks: Any, owner: str) -> bool:
    return [one.owner for one in (await locks.inspect("x")).holders] == [owner]


async def test_what_left_without_an_answer_leaves_again_and_meets_nobody_else(
    cluster: EtcdCluster,
) -> None:
    """The first request was carried out. It arrives once more when the keys are in use again."""
    async with managers(cluster) as (others, _, backend):
        held = await others.lock("x").acquire()
        first, *rest = await enqueue(backend, 4)
        make_late(backend, *rest)
        txn, sent = backend._retrier.txn, []

        async def lost(request: bytes, deadline: float, unanswered: Any = None) -> Any:
            backend._retrier.txn = txn
            sent.append(request)
            await txn(request, deadline, unanswered)
            if unanswered is not None:
                unanswered()
            raise holdfast.BackendUnavailable("the answer was lost")

        backend._retrier.txn = lost
        await keep_alive(backend, first.lease)
        assert await waiting(others) == ["w0"]
        assert ours(backend) == {"w0", "w1", "w2", "w3"}  # until there is an answer
        assert all(one.released for one in rest)
        await keep_alive(backend, first.lease)
        assert ours(backend) == {"w0"}
        keys = {one.key for one in rest}
        for owner in ("n1", "n2", "n3"):
            assert isinstance(await backend.acquire(ticket_of(owner), soon(backend)), Queued)
        assert {backend._attempts.known("x", one).key for one in ("n1", "n2", "n3")} == keys
        await txn(sent[0], soon(backend))
        assert await waiting(others) == ["w0", "n1", "n2", "n3"]
        await held.release()


async def test_a_holder_that_has_lapsed_hands_the_lock_on(cluster: EtcdCluster) -> None:
    async with managers(cluster) as (others, locks, backend):
        assert isinstance(await backend.acquire(ticket_of("holder"), soon(backend)), Granted)
        attempt = backend._attempts.known("x", "holder")
        make_late(backend, attempt)
        waiter = Job(others.lock("x").acquire, 60.0)
        await until_waiting(others, 1)
        lease = attempt.lease
        lease.sent -= lease.fresh_for
        assert await backend._leases.shared(HOLD, 60.0, soon(backend)) is lease
        assert (await waiter.result()).token > attempt.token
        assert (await backend_of(locks))._attempts.known("x", "holder") is None
