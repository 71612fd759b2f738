"""Acquiring a lock while something else happens to the same attempt, its key or its leases."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from _async.etcd.scenes import soon
from holdfast import aio as holdfast
from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.model import GONE, Granted, Label, Queued, Renewed
from holdfast.stores._async.contract import Terms, Ticket
from holdfast.stores.etcd._async.leases import FRESH, HOLD, OWN, QUEUE
from holdfast.stores.etcd.keys import WAITING, Entry
from holdfast.stores.etcd.wire import messages
from holdfast.stores.etcd.wire.messages import Event, KeyValue
from worlds.aio import eventually


def ticket_of(owner: str = "me") -> Ticket:
    return Ticket(Terms("x", 60.0, Label("here", 1)), owner)


async def queue_of(locks: holdfast.Locks) -> list[str]:
    state = await locks.inspect("x")
    return [one.owner for one in (*state.holders, *state.waiters)]


class Scene:
    """Another holds the lock; we ask through the backend itself."""

    def __init__(self, others: holdfast.Locks, locks: holdfast.Locks, backend: Any) -> None:
        self.others = others
        self.locks = locks
        self.backend = backend

    async def waiting(self, owner: str = "me") -> Any:
        answer = await self.backend.acquire(ticket_of(owner), soon(self.backend))
        assert isinstance(answer, Queued)
        return self.backend._attempts.known("x", owner)

    async def left_by_an_earlier_one(self) -> bytes:
        """A key of ours that is still there, from an attempt whose lease is just ending."""
        backend, deadline = self.backend, soon(self.backend)
        earlier = backend._attempts.enrol(ticket_of())
        backend._attempts.forget(earlier)
        entry = Entry(WAITING, "old", 1, 30.0, 0.0, 0, Label("here", 1)).encode()
        lease = await backend._leases.own(30.0, deadline)
        await backend._leases.shared(QUEUE, backend.claim_window, deadline)
        await backend._retrier.txn(
            messages.then(messages.put(earlier.key, entry, lease.on)), deadline
        )
        key: bytes = earlier.key
        return key


@asynccontextmanager
async def held_by_another(cluster: EtcdCluster) -> AsyncIterator[Scene]:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        await others.lock("x", ttl=60.0).acquire()
        session: Any = await locks._session()
        yield Scene(others, locks, session.backend)


async def test_one_that_is_given_up_before_it_is_answered_is_not_granted(
    cluster: EtcdCluster,
) -> None:
    """The store has granted it, and taken it back: so who asked must not be told that it holds it."""
    async with holdfast.connect(cluster.url) as locks:
        backend: Any = (await locks._session()).backend
        txn = backend._retrier.txn

        async def given_up(*args: Any, **options: Any) -> Any:
            backend._retrier.txn = txn
            answer = await txn(*args, **options)
            await backend.release("x", "me", soon(backend))
            return answer

        backend._retrier.txn = given_up
        with pytest.raises(holdfast.BackendUnavailable, match="given up"):
            await backend.acquire(ticket_of(), soon(backend))
        assert await queue_of(locks) == []


async def test_one_that_is_given_up_as_it_takes_the_lock_does_not_have_it(
    cluster: EtcdCluster,
) -> None:
    async with held_by_another(cluster) as scene:
        backend = scene.backend
        attempt = await scene.waiting()
        txn = backend._retrier.txn

        async def given_up(*args: Any, **options: Any) -> Any:
            backend._retrier.txn = txn
            answer = await txn(*args, **options)
            attempt.released = True
            return answer

        backend._retrier.txn = given_up
        assert await backend._granter.take(attempt, soon(backend)) is GONE


async def test_what_was_given_up_before_it_arrived_joins_no_queue(cluster: EtcdCluster) -> None:
    async with held_by_another(cluster) as scene:
        backend, deadline = scene.backend, soon(scene.backend)
        left = messages.put_for_ever(backend._naming.tombstone("me"), b"")
        await backend._retrier.txn(messages.then(left), deadline)
        attempt = backend._attempts.enrol(ticket_of())
        hold = await backend._granter.lease_to_hold(attempt, deadline)
        wait = await backend._leases.shared(QUEUE, backend.claim_window, deadline)
        answer = await backend._retrier.txn(
            backend._acquirer._request(attempt, hold, wait, 1.0), deadline
        )
        assert not answer.succeeded
        assert len(await queue_of(scene.locks)) == 1
        backend._attempts.forget(attempt)


async def test_what_was_given_up_before_it_arrived_is_told_so(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend: Any = (await locks._session()).backend
        left = messages.put_for_ever(backend._naming.tombstone("me"), b"")
        await backend._retrier.txn(messages.then(left), soon(backend))
        with pytest.raises(holdfast.BackendUnavailable, match="given up"):
            await backend.acquire(ticket_of(), soon(backend))
        assert await queue_of(locks) == []
        assert backend._attempts.known("x", "me") is None


async def test_who_asks_for_another_kind_joins_no_queue(cluster: EtcdCluster) -> None:
    """Though it has all that it needs to wait."""
    async with held_by_another(cluster) as scene:
        backend, deadline = scene.backend, soon(scene.backend)
        await backend._leases.shared(QUEUE, backend.claim_window, deadline)
        other = Ticket(Terms("x", 60.0, Label("here", 1), 1, 3, "semaphore"), "me")
        with pytest.raises(holdfast.ConfigError, match="is in use as"):
            await backend.acquire(other, deadline)
        assert len(await queue_of(scene.locks)) == 1


async def test_an_owner_that_another_manager_uses_is_refused(cluster: EtcdCluster) -> None:
    async with held_by_another(cluster) as scene:
        (owner,) = await queue_of(scene.locks)
        with pytest.raises(holdfast.ConfigError, match="owner id"):
            await scene.backend.acquire(ticket_of(owner), soon(scene.backend))


async def test_what_was_handed_over_does_not_stay_on_the_lease_of_those_who_wait(
    cluster: EtcdCluster,
) -> None:
    """Also where that is as long as the one that was asked for."""
    async with held_by_another(cluster) as scene:
        backend, deadline = scene.backend, soon(scene.backend)
        ttl = backend.claim_window
        ticket = Ticket(Terms("x", ttl, Label("here", 1), renew=False), "me")
        assert isinstance(await backend.acquire(ticket, deadline), Queued)
        attempt = backend._attempts.known("x", "me")
        assert attempt.lease.kind == QUEUE
        assert attempt.handed_over(7, attempt.changed + 1, 1.0, ())
        attempt.changed -= 1  # it was not true
        assert isinstance(await backend._granter.confirm(attempt, ttl, deadline), Renewed)
        assert attempt.lease.kind == OWN


async def test_a_key_that_is_still_there_keeps_its_place(cluster: EtcdCluster) -> None:
    """From an attempt whose lease is just ending: nobody may have its place by writing over it."""
    async with held_by_another(cluster) as scene:
        key = await scene.left_by_an_earlier_one()
        attempt = await scene.waiting()
        assert attempt.key != key
        assert (await queue_of(scene.locks))[1:] == ["old", "me"]


async def test_whose_request_may_still_arrive_keeps_its_key(cluster: EtcdCluster) -> None:
    """The tombstone refuses what arrives late for that key; under another key it would wait on."""
    async with held_by_another(cluster) as scene:
        backend, deadline = scene.backend, soon(scene.backend)
        await scene.left_by_an_earlier_one()
        txn = backend._retrier.txn
        requests: list[bytes] = []

        async def unsure(request: bytes, deadline: float, doubt: Any = None, **options: Any) -> Any:
            if doubt is not None:
                doubt()
                requests.append(request)
            return await txn(request, deadline, doubt, **options)

        backend._retrier.txn = unsure
        with pytest.raises(holdfast.BackendUnavailable, match="ask again"):
            await backend.acquire(ticket_of(), deadline)
        await backend.release("x", "me", deadline)
        backend._retrier.txn = txn
        assert len(await queue_of(scene.locks)) == 1
        for request in requests:
            await txn(request, deadline)
        assert len(await queue_of(scene.locks)) == 1


async def test_a_wake_up_that_is_heard_before_the_reply_counts(cluster: EtcdCluster) -> None:
    async with held_by_another(cluster) as scene:
        backend, deadline = scene.backend, soon(scene.backend)
        attempts, txn = backend._attempts, backend._retrier.txn
        await backend._leases.shared(QUEUE, backend.claim_window, deadline)

        woken = 0

        async def woken_first(*args: Any, **options: Any) -> Any:
            nonlocal woken
            reply = await txn(*args, **options)
            woken = reply.revision + 1
            value = b"me\t" + attempts.known("x", "me").key
            kv = KeyValue(b"bell", value, 1, woken, 0)
            attempts.waiter_watch._heard([Event(False, kv)])
            return reply

        backend._retrier.txn = woken_first
        ticket = ticket_of("me")
        assert isinstance(await backend.acquire(ticket, deadline), Queued)
        backend._retrier.txn = txn
        grant = await backend.wait(ticket, deadline)
        assert grant is not None
        assert grant.token == attempts.known("x", "me").token == woken
        attempts.known("x", "me").token = 0  # it was not true


async def test_who_may_have_missed_a_wake_up_asks(cluster: EtcdCluster) -> None:
    async with held_by_another(cluster) as scene:
        backend = scene.backend
        await scene.waiting("first")
        waiter_watch = backend._attempts.waiter_watch
        await eventually(lambda: waiter_watch._wakeup.confirmed)
        for began, told in ((0, False), (2**60, True)):
            waiter_watch._wakeup.began = began
            hinted: list[Any] = []
            waiter_watch.hint = hinted.append
            attempt = await scene.waiting(f"from {began}")
            assert (attempt in hinted) is told
            del waiter_watch.hint


async def test_leases_that_have_ended_are_made_anew(cluster: EtcdCluster) -> None:
    async with held_by_another(cluster) as scene:
        backend, deadline = scene.backend, soon(scene.backend)
        for kind, ttl in ((QUEUE, backend.claim_window), (HOLD, 60.0)):
            lease = await backend._leases.shared(kind, ttl, deadline)
            await backend._retrier.call(
                messages.LEASE_REVOKE, messages.lease_id(lease.id), deadline
            )
        txn = backend._retrier.txn
        tries = 0

        async def counted(*args: Any, **options: Any) -> Any:
            nonlocal tries
            tries += 1
            return await txn(*args, **options)

        backend._retrier.txn = counted
        await scene.waiting()
        backend._retrier.txn = txn
        assert tries <= 4  # both were looked at when one was found to be gone
        assert (await queue_of(scene.locks))[1:] == ["me"]


async def test_a_deadline_counts_from_what_renewed_the_lease(cluster: EtcdCluster) -> None:
    """Whatever is answered: the lease on which it rests may be older than the question."""
    async with held_by_another(cluster) as scene:
        backend, deadline = scene.backend, soon(scene.backend)
        attempt = await scene.waiting("first")
        wait = attempt.lease
        wait.sent -= wait.fresh_for / 2  # fresh enough to hang more on it
        queued = await backend.acquire(ticket_of("second"), deadline)
        assert isinstance(queued, Queued)
        assert queued.since == wait.sent
        assert backend._attempts.known("x", "second").until <= wait.sent + wait.ttl
        ticket = Ticket(Terms("y", 60.0, Label("here", 1)), "me")
        granted = await backend.acquire(ticket, deadline)
        assert isinstance(granted, Granted)
        hold = backend._attempts.known("y", "me").lease
        hold.sent -= hold.ttl / FRESH / 2
        again = await backend.acquire(ticket, deadline)
        assert isinstance(again, Granted)
        assert again.since == hold.sent
        assert again.token == granted.token


async def test_a_lock_that_was_handed_over_unheard_keeps_its_token(cluster: EtcdCluster) -> None:
    """A second grant would end the first one."""
    async with held_by_another(cluster) as scene:
        backend, deadline = scene.backend, soon(scene.backend)
        attempt = await scene.waiting()
        backend._attempts.waiter_watch._heard = lambda events: None
        giving: Any = (await scene.others._session()).backend
        (holder,) = giving._attempts._attempts.values()
        await giving._releaser._delete_blindly(holder, deadline)
        backend._attempts.waiter_watch._wakeup.heard = lambda events: None
        found = await giving._retrier.range(
            messages.range_of(holder.queue.start, holder.queue.end), deadline
        )
        await giving._releaser.hand_on(giving._naming.stored_entries(found.keys), deadline)
        (granted,) = (await scene.locks.inspect("x")).holders
        outcome = await backend._granter.take(attempt, deadline)
        assert isinstance(outcome, Renewed)
        assert outcome.token == granted.token
        assert [one.token for one in (await scene.locks.inspect("x")).holders] == [granted.token]


async def test_what_is_moved_to_another_lease_stays_what_it_is(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend: Any = (await locks._session()).backend
        granted = await backend.acquire(ticket_of(), soon(backend))
        assert isinstance(granted, Granted)
        attempt = backend._attempts.known("x", "me")
        attempt.ttl = 90.0
        moved = await backend._granter._move(attempt, soon(backend))
        assert isinstance(moved, Renewed)
        assert (moved.token, moved.ttl) == (granted.token, 90.0)
        assert (attempt.lease.requested, attempt.until) == (90, moved.since + 90.0)
        (holder,) = (await locks.inspect("x")).holders
        assert holder.token == granted.token
        # Nothing is made anew that was taken away; and nothing is said to be held that was given up.
        attempt.released = True
        assert await backend._granter._move(attempt, soon(backend)) is GONE
        attempt.released = False
        await backend._retrier.call(
            messages.DELETE, messages.delete_one(attempt.key), soon(backend)
        )
        assert await backend._granter._move(attempt, soon(backend)) is GONE
        assert await queue_of(locks) == []


async def test_a_renewal_for_less_shortens_nothing(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend: Any = (await locks._session()).backend
        assert isinstance(await backend.acquire(ticket_of(), soon(backend)), Granted)
        attempt = backend._attempts.known("x", "me")
        held, until = backend._granter.confirm, attempt.until
        assert isinstance(await held(attempt, 5.0, soon(backend)), Renewed)
        assert (attempt.lease.requested, attempt.until) == (60, until)
        attempt.until = backend.clock.now()  # until less is left than is asked for
        assert isinstance(await held(attempt, 5.0, soon(backend)), Renewed)
        assert attempt.lease.requested == 5
        assert isinstance(await held(attempt, 90.0, soon(backend)), Renewed)
        assert (attempt.lease.requested, attempt.until) == (90, attempt.lease.sent + 90.0)
