"""Many attempts of one manager that ask for the same mutex: what they make the server go through.

etcd goes through the whole queue for a condition on all its keys, and for a read in their order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from _async.etcd.scenes import backend_of, soon
from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.model import Granted, Label, Queued
from holdfast.stores._async.contract import Terms, Ticket
from holdfast.stores.etcd._async.acquire import FIRST_LOOK
from holdfast.stores.etcd._async.leases import QUEUE
from holdfast.stores.etcd.wire import messages
from worlds.aio import Job, eventually, pause
from worlds.stalls import stand_still

CROWD = 60


def ticket_of(owner: str) -> Ticket:
    return Ticket(Terms("x", 60.0, Label("here", 1)), owner)


async def noted(locks: holdfast.Locks) -> list[bytes]:
    """Returns the list of transactions that the manager makes from now on."""
    backend = await backend_of(locks)
    txn, requests = backend._retrier.txn, []

    async def note(request: bytes, *args: Any, **options: Any) -> Any:
        requests.append(request)
        return await txn(request, *args, **options)

    backend._retrier.txn = note
    return requests


def through_the_queue(requests: list[bytes]) -> int:
    """Returns how many requests have a condition on the whole queue of the lock, or a read of it."""
    start = b"/holdfast/holdfast/lock/x/"
    end = messages.after(start)
    return sum(end in request for request in requests)


@asynccontextmanager
async def managers(
    cluster: EtcdCluster,
) -> AsyncIterator[tuple[holdfast.Locks, holdfast.Locks, Any]]:
    """Yields two managers, the second with its leases made; and that one's backend."""
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        await (await locks.lock("warm").acquire()).release()
        yield others, locks, await backend_of(locks)


async def test_of_a_crowd_one_asks_whether_the_queue_is_empty(cluster: EtcdCluster) -> None:
    async with managers(cluster) as (others, locks, _):
        held = await others.lock("x").acquire()
        requests = await noted(locks)
        tokens: list[int] = []

        async def take_turn() -> None:
            async with locks.lock("x") as lease:
                tokens.append(lease.token)

        crowd = [Job(take_turn) for _ in range(CROWD)]
        await until_waiting(others, CROWD)
        joins = [request for request in requests if b"waiting " in request]
        assert len(joins) >= CROWD
        assert through_the_queue(joins) <= 2
        await held.release()
        for job in crowd:
            await job.result()
        assert len(tokens) == CROWD
        assert tokens == sorted(set(tokens))


async def test_behind_a_neighbour_that_has_gone_the_lock_may_be_free(cluster: EtcdCluster) -> None:
    async with managers(cluster) as (_, locks, backend):
        assert isinstance(await backend.acquire(ticket_of("first"), soon(backend)), Granted)
        key = backend._attempts.known("x", "first").key
        await backend._retrier.call(messages.DELETE, messages.delete_one(key), soon(backend))
        assert isinstance(await backend.acquire(ticket_of("second"), soon(backend)), Granted)
        assert [one.owner for one in (await locks.inspect("x")).holders] == ["second"]


async def test_behind_a_key_that_is_used_again_the_lock_may_be_free(cluster: EtcdCluster) -> None:
    """The key is there, but is not the neighbour's entry: nobody of ours would hand the lock on."""
    async with managers(cluster) as (_, locks, backend):
        assert isinstance(await backend.acquire(ticket_of("first"), soon(backend)), Granted)
        neighbour = backend._attempts.known("x", "first")
        neighbour.created -= 1
        assert isinstance(await backend.acquire(ticket_of("second"), soon(backend)), Queued)
        assert neighbour is not backend._attempts.known("x", "second").queue.neighbour
        neighbour.created += 1  # it was not true
        assert len((await locks.inspect("x")).waiters) == 1


async def test_what_was_given_up_joins_behind_no_neighbour(cluster: EtcdCluster) -> None:
    async with managers(cluster) as (_, locks, backend):
        assert isinstance(await backend.acquire(ticket_of("first"), soon(backend)), Granted)
        left = messages.put_for_ever(backend._naming.tombstone("second"), b"")
        await backend._retrier.txn(messages.then(left), soon(backend))
        with pytest.raises(holdfast.BackendUnavailable):
            await backend.acquire(ticket_of("second"), soon(backend))
        assert (await locks.inspect("x")).waiters == ()


async def test_who_has_joined_already_joins_once(cluster: EtcdCluster) -> None:
    """The reply was lost, and so the request was sent again."""
    async with managers(cluster) as (_, locks, backend):
        assert isinstance(await backend.acquire(ticket_of("first"), soon(backend)), Granted)
        txn = backend._retrier.txn

        async def twice(request: bytes, deadline: float, unanswered: Any = None) -> Any:
            backend._retrier.txn = txn
            await txn(request, deadline, unanswered)
            unanswered()
            return await txn(request, deadline, unanswered)

        await backend._leases.shared(QUEUE, backend.claim_window, soon(backend))
        backend._retrier.txn = twice
        assert isinstance(await backend.acquire(ticket_of("second"), soon(backend)), Queued)
        assert [one.owner for one in (await locks.inspect("x")).waiters] == ["second"]


async def test_who_has_joined_already_has_as_long_to_find_that_out_as_it_had_to_join(
    cluster: EtcdCluster,
) -> None:
    """It stood behind others of its manager for longer than the store is given."""
    async with managers(cluster) as (_, locks, backend):
        assert isinstance(await backend.acquire(ticket_of("first"), soon(backend)), Granted)
        turnstile, txn = backend._acquirer._turnstile, backend._retrier.txn
        del turnstile._turns[1:]
        (turn,) = turnstile._turns

        async def twice(request: bytes, deadline: float, unanswered: Any = None) -> Any:
            backend._retrier.txn = txn
            await txn(request, deadline, unanswered)
            unanswered()
            return await txn(request, deadline, unanswered)

        async def ask(deadline: float) -> Any:
            return await backend.acquire(ticket_of("second"), deadline)

        assert await turn.take(10.0)
        try:
            deadline = backend.clock.now() + 2.0
            second = Job(ask, deadline)
            await eventually(lambda: backend.clock.now() > deadline)
            await backend._leases.shared(QUEUE, backend.claim_window, soon(backend))
            backend._retrier.txn = twice
        finally:
            turn.end()
        assert isinstance(await second.result(), Queued)
        assert [one.owner for one in (await locks.inspect("x")).waiters] == ["second"]


async def test_the_first_behind_a_holder_looks_soon(cluster: EtcdCluster) -> None:
    """That one may give the lock back before it has heard of a waiter."""
    async with managers(cluster) as (_, _locks, backend):
        assert isinstance(await backend.acquire(ticket_of("first"), soon(backend)), Granted)
        began = backend.clock.now()
        second = await backend.acquire(ticket_of("second"), soon(backend))
        third = await backend.acquire(ticket_of("third"), soon(backend))
        assert isinstance(second, Queued)
        assert isinstance(third, Queued)
        lease = backend._attempts.known("x", "third").lease
        assert second.remaining <= backend.clock.now() - min(began, lease.sent) + FIRST_LOOK
        assert third.remaining == lease.ttl / 3


async def test_a_crowd_joins_though_its_process_stands_still_again_and_again(
    cluster: EtcdCluster,
) -> None:
    """The time in which a client does not run is not the store's."""
    async with managers(cluster) as (others, locks, _):
        held = await others.lock("x").acquire()
        session = await locks._session()
        session.patience = 1.0

        async def stand_still_often() -> None:
            for _ in range(10):
                stand_still(0.4)
                await pause(0.005)

        async def take_turn() -> None:
            async with locks.lock("x"):
                granted.append(True)

        granted: list[bool] = []
        stalls = Job(stand_still_often)
        crowd = [Job(take_turn) for _ in range(CROWD)]
        await stalls.result()
        await until_waiting(others, CROWD)
        await held.release()
        for job in crowd:
            await job.result()
        assert len(granted) == CROWD
