"""The attempts that a manager has under way: what it keeps of them, and which wake-ups it believes."""

from __future__ import annotations

from typing import Any

import pytest

from _async.etcd.scenes import backend_of, soon, watched
from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.entries import Claim
from holdfast.model import Label, Queued
from holdfast.stores._async.contract import Terms, Ticket
from holdfast.stores.etcd._async import attempts as attempts_module
from holdfast.stores.etcd.wire.messages import Event, KeyValue, range_of
from worlds.aio import Job, eventually


def ticket_of(owner: str, name: str = "x") -> Ticket:
    return Ticket(Terms(name, 60.0, Label("here", 1)), owner)


async def test_what_is_over_is_kept_while_its_key_may_live_on(cluster: EtcdCluster) -> None:
    """Its lease is alive, so it has to be ended by us; that is not to be forgotten."""
    async with holdfast.connect(cluster.url) as locks:
        lease = await locks.lock("x", ttl=60.0).acquire()
        backend = await backend_of(locks)
        attempts = backend._attempts
        attempt = attempts.known("x", lease.owner)
        until, attempt.until = attempt.until, 0.0
        attempts._sweep()
        assert attempts.known("x", lease.owner) is attempt
        attempt.until = until
        assert await lease.release() is True


async def test_a_queue_in_which_a_key_is_in_use_is_remembered(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts_module, "QUEUES", 2)
    async with holdfast.connect(cluster.url) as locks:
        attempts = (await backend_of(locks))._attempts
        attempts._drop_queues_at = 2
        used = attempts.enrol(ticket_of("a"))
        for number in range(3):
            attempts.forget(attempts.enrol(ticket_of("b", f"other {number}")))
        assert len(attempts._queues) <= 3
        again = attempts.enrol(ticket_of("b"))
        assert again.queue is used.queue
        assert again.key != used.key


async def test_a_queue_that_was_forgotten_gives_out_no_key_twice(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late request may still be under way to a key that it gave out."""
    monkeypatch.setattr(attempts_module, "QUEUES", 1)
    async with holdfast.connect(cluster.url) as locks:
        attempts = (await backend_of(locks))._attempts
        attempts._drop_queues_at = 1
        doubtful = attempts.enrol(ticket_of("a"))
        doubtful.doubt()
        attempts.forget(doubtful)
        attempts.forget(attempts.enrol(ticket_of("a", "y")))
        again = attempts.enrol(ticket_of("b"))
        assert again.queue is not doubtful.queue
        assert again.key != doubtful.key


async def test_a_key_is_used_again_unless_a_late_request_may_change_it(
    cluster: EtcdCluster,
) -> None:
    async with holdfast.connect(cluster.url) as locks:
        attempts = (await backend_of(locks))._attempts
        first = attempts.enrol(ticket_of("a"))
        attempts.forget(first)
        second = attempts.enrol(ticket_of("b"))
        assert second.key == first.key
        second.doubt()
        attempts.forget(second)
        assert attempts.enrol(ticket_of("c")).key != first.key


async def test_a_crowd_of_queues_in_use_is_not_searched_for_each_new_one(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts_module, "QUEUES", 8)

    async with holdfast.connect(cluster.url) as locks:
        attempts = (await backend_of(locks))._attempts
        attempts._drop_queues_at = 8
        searched_at = set()
        for number in range(1000):
            attempts.enrol(ticket_of("a", f"n{number}"))
            searched_at.add(attempts._drop_queues_at)
        assert len(attempts._queues) == 1000
        assert searched_at == {8 * 2**n for n in range(8)}
        for attempt in list(attempts._attempts.values()):
            attempts.forget(attempt)
        attempts._drop_queues_at = 1000
        attempts.enrol(ticket_of("a", "one more"))
        assert len(attempts._queues) == 1
        assert attempts._drop_queues_at == 8


async def test_a_wake_up_is_for_one_attempt_and_counts_once(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x").acquire()
        backend = await backend_of(locks)
        attempts = backend._attempts
        ticket = ticket_of("me")
        assert isinstance(await backend.acquire(ticket, soon(backend)), Queued)
        attempt = attempts.known("x", "me")

        def wakes(owner: str, revision: int) -> None:
            value = owner.encode() + b"\t" + attempt.key
            attempts.waiter_watch._heard(
                [Event(False, KeyValue(b"bell", value, revision, revision, 0))]
            )

        wakes("an earlier one with this key", attempt.created + 1)
        assert not attempt.token
        attempt.released = True
        wakes("me", attempt.created + 1)
        assert not attempt.token
        attempt.released = False
        wakes("me", attempt.created + 2)
        wakes("me", attempt.created + 7)
        assert attempt.token == attempt.changed == attempt.created + 2
        grant = await backend.wait(ticket, soon(backend))
        assert grant is not None
        assert grant.token == attempt.created + 2
        attempt.token = 0  # it was not true
        await lease.release()


async def test_a_watch_for_one_that_is_given_up_meanwhile_is_dropped(cluster: EtcdCluster) -> None:
    """By another thread, which could not see the watch yet."""
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await until_waiting(others)
        backend = await backend_of(locks)
        waiter_watch = backend._attempts.waiter_watch
        (attempt,) = backend._attempts._attempts.values()
        await eventually(lambda: attempt in waiter_watch._blockers)
        waiter_watch.drop(attempt)
        add = backend._watches.add
        added: list[Any] = []

        def given_up(*args: Any, **options: Any) -> Any:
            attempt.released = True
            added.append(add(*args, **options))
            return added[0]

        line = range_of(attempt.queue.start, attempt.queue.end)
        found = await backend._retrier.range(line, soon(backend))
        backend._watches.add = given_up
        waiter_watch.watch(attempt, backend._naming.stored_entries(found.keys), 0, 0)
        backend._watches.add = add
        attempt.released = False
        assert attempt not in waiter_watch._blockers
        assert added[0].id not in backend._watches._watches
        await lease.release()
        assert (await waiter.result()).token > lease.token


async def test_who_leaves_the_queue_leaves_no_watch_behind(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").try_acquire, 60.0)
        await until_waiting(others)
        backend = await backend_of(locks)
        blockers = backend._attempts.waiter_watch._blockers
        (attempt,) = backend._attempts._attempts.values()
        await eventually(lambda: attempt in blockers)
        watch = blockers[attempt].watch
        assert watch.id in backend._watches._watches
        assert await backend.release("x", attempt.owner, soon(backend)) is False
        assert watch.id not in backend._watches._watches
        await lease.release()
        granted = await waiter.result()  # by an attempt of its own
        assert granted is not None
        assert granted.owner != attempt.owner


async def test_another_managers_is_given_back_by_us(cluster: EtcdCluster) -> None:
    """Whoever names the owner may; and then nothing of it is remembered here."""
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x", ttl=60.0).acquire()
        backend = await backend_of(locks)
        attempt = await backend._renewer.find("x", lease.owner, soon(backend))
        assert await backend.release("x", lease.owner, soon(backend)) is True
        assert not attempt.queue.in_use  # no key of ours was
        assert backend._attempts.known("x", lease.owner) is None
        assert await backend.release("x", lease.owner, soon(backend)) is False
        assert not (await locks.inspect("x")).held


async def test_what_an_older_look_says_is_not_believed(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x").acquire()
        backend = await backend_of(locks)
        attempts = backend._attempts
        assert isinstance(await backend.acquire(ticket_of("me"), soon(backend)), Queued)
        attempt = attempts.known("x", "me")
        line = range_of(attempt.queue.start, attempt.queue.end)
        old = backend._naming.stored_entries(
            (await backend._retrier.range(line, soon(backend))).keys
        )[1]
        hung = attempt.lease
        value = b"me\t" + attempt.key
        revision = attempt.changed + 5
        attempts.waiter_watch._heard(
            [Event(False, KeyValue(b"bell", value, revision, revision, 0))]
        )
        assert attempt in attempts.holder_watch._new  # its key will be watched
        attempts.holder_watch.drop(attempt)
        moved = old._replace(kv=old.kv._replace(lease=7))
        attempts.seen(attempt, moved)
        assert (attempt.changed, attempt.token, attempt.lease) == (revision, revision, hung)
        # And what a newer one says, is.
        attempt.token = 0
        granted = old.entry.granted(1.0)
        newer = old._replace(kv=old.kv._replace(changed=revision + 1, lease=77), entry=granted)
        attempts.seen(attempt, newer)
        assert (attempt.changed, attempt.token) == (revision + 1, revision + 1)
        assert attempt.lease.id == 77
        assert attempt in attempts.holder_watch._new
        attempt.token = 0
        await lease.release()


async def test_what_is_heard_of_a_key_that_was_taken_away(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x").acquire()
        backend = await backend_of(locks)
        attempts = backend._attempts
        assert isinstance(await backend.acquire(ticket_of("me"), soon(backend)), Queued)
        attempt = attempts.known("x", "me")
        asked: list[Any] = []
        hinted: list[Any] = []
        attempts.ask_about = asked.append
        attempts.waiter_watch.hint = hinted.append

        def taken_away(revision: int) -> Any:
            asked.clear()
            hinted.clear()
            attempts._keys_deleted([Event(True, KeyValue(attempt.key, b"", 0, revision, 0))])
            return list(asked), list(hinted)

        after = attempt.created + 1
        assert taken_away(after) == ([], [attempt])  # a waiter: the queue is read for it
        attempt.token = 7
        assert taken_away(after) == ([["me"]], [])  # a holder: it is asked about
        assert taken_away(attempt.created) == ([], [])  # an earlier one, which had the same key
        attempt.released = True
        assert taken_away(after) == ([], [])  # by ourselves
        attempt.released, attempt.token = False, 0
        del attempts.waiter_watch.hint
        await lease.release()


async def test_what_is_heard_while_the_queue_is_read_calls_for_another_read(
    cluster: EtcdCluster,
) -> None:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x").acquire()
        backend = await backend_of(locks)
        assert isinstance(await backend.acquire(ticket_of("me"), soon(backend)), Queued)
        attempt = backend._attempts.known("x", "me")
        claim = Claim("x", "me", 60.0)
        await backend.renew([claim], soon(backend))
        waiter_watch = backend._attempts.waiter_watch
        await eventually(lambda: watched(backend, attempt))
        await backend.renew([claim], soon(backend))  # whatever it heard when the watch began
        assert waiter_watch.is_quiet(attempt)
        waiter_watch.hint(attempt)
        assert not waiter_watch.is_quiet(attempt)
        read = backend._retrier.range

        async def meanwhile(*args: Any) -> Any:
            backend._retrier.range = read
            found = await read(*args)
            waiter_watch.hint(attempt)
            return found

        backend._retrier.range = meanwhile
        await backend.renew([claim], soon(backend))
        assert not waiter_watch.is_quiet(attempt)
        await backend.renew([claim], soon(backend))
        assert waiter_watch.is_quiet(attempt)
        await lease.release()


async def test_who_waits_is_told_only_while_all_its_watches_stand(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await until_waiting(others)
        waiter_watch = (await backend_of(locks))._attempts.waiter_watch
        await eventually(lambda: any(map(waiter_watch.is_quiet, list(waiter_watch._blockers))))
        (attempt,) = waiter_watch._blockers
        for watch in (waiter_watch._wakeup, waiter_watch._blockers[attempt].watch):
            watch.confirmed = False
            assert not waiter_watch.is_quiet(attempt)
            watch.confirmed = True
            assert waiter_watch.is_quiet(attempt)
        await lease.release()
        assert (await waiter.result()).token > lease.token


async def test_behind_one_who_shares_a_lock_its_grant_matters_too(cluster: EtcdCluster) -> None:
    """Not only that it goes: whoever stands behind it may then be let in as well."""
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        held = [await others.semaphore("x", permits=2).acquire() for _ in range(2)]
        backend = await backend_of(locks)
        for owner in ("first", "second"):
            terms = Terms("x", 60.0, Label("here", 1), 1, 2, "semaphore")
            assert isinstance(await backend.acquire(Ticket(terms, owner), soon(backend)), Queued)
            await backend.renew([Claim("x", owner, 60.0)], soon(backend))
        first, second = (backend._attempts.known("x", owner) for owner in ("first", "second"))
        blockers = backend._attempts.waiter_watch._blockers
        before, behind = blockers[first].watch, blockers[second].watch
        assert (before.key, before.end) == (first.queue.start, first.queue.end)
        assert before.deletions_only
        assert (behind.key, behind.end) == (first.key, b"")
        assert not behind.deletions_only
        for lease in held:
            await lease.release()
