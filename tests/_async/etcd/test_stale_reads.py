"""A grant may rest on an older read of the queue: an entry that has changed since is left alone."""

from __future__ import annotations

from typing import Any

from _async.etcd.scenes import soon
from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.stores.etcd.wire import messages
from worlds.aio import Job, eventually


async def hand_on(first: holdfast.Locks, *others: holdfast.Locks) -> list[Job[holdfast.Lease]]:
    """The others wait in this order, and the first, which had the lock, gives it back."""
    lease = await first.lock("x").acquire()
    jobs: list[Job[holdfast.Lease]] = []

    async def all_wait() -> bool:
        return len((await first.inspect("x")).waiters) == len(jobs)

    for locks in others:
        jobs.append(Job(locks.lock("x").acquire))
        await eventually(all_wait)
    await lease.release()
    return jobs


async def begins_anew(locks: holdfast.Locks) -> tuple[bytes, str]:
    """The waiter of this manager loses its entry, and makes another of the same key."""
    backend: Any = (await locks._session()).backend
    (attempt,) = backend._attempts._attempts.values()
    key, owner = attempt.key, attempt.owner
    request = messages.delete_one(key)
    await backend._retrier.call(messages.DELETE, request, soon(backend))
    backend._attempts.waiter_watch.hint(attempt)

    async def again() -> bool:
        return [one.owner for one in (await locks.inspect("x")).waiters] not in ([], [owner])

    await eventually(again)
    (attempt,) = backend._attempts._attempts.values()
    assert attempt.key == key
    return key, attempt.owner


async def test_the_heir_has_joined_anew(cluster: EtcdCluster) -> None:
    async with (
        holdfast.connect(cluster.url) as first,
        holdfast.connect(cluster.url) as second,
        holdfast.connect(cluster.url) as third,
    ):
        jobs = await hand_on(first, second, third)
        lease = await jobs[0].result()  # and is told who stands behind
        _, owner = await begins_anew(third)
        assert await lease.release() is True
        heir = await jobs[1].result()
        assert heir.owner == owner
        assert heir.token > lease.token
        (holder,) = (await first.inspect("x")).holders
        assert (holder.owner, holder.token) == (heir.owner, heir.token)


async def test_what_was_taken_away_cannot_be_handed_over(cluster: EtcdCluster) -> None:
    async with (
        holdfast.connect(cluster.url) as first,
        holdfast.connect(cluster.url) as second,
        holdfast.connect(cluster.url) as third,
    ):
        jobs = await hand_on(first, second, third)
        lease = await jobs[0].result()
        backend: Any = (await second._session()).backend
        deadline = soon(backend)
        request = messages.delete_one(backend._attempts.known("x", lease.owner).key)
        await backend._retrier.call(messages.DELETE, request, deadline)
        assert await backend.release("x", lease.owner, deadline) is False
        assert (await jobs[1].result()).token > lease.token


async def test_a_grant_that_follows_is_for_the_entry_that_was_seen(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await until_waiting(others)
        backend: Any = (await others._session()).backend
        deadline = soon(backend)
        queue = backend._attempts.known("x", lease.owner).queue
        found = await backend._retrier.range(messages.range_of(queue.start, queue.end), deadline)
        seen = backend._naming.stored_entries(found.keys)[1:]
        _, owner = await begins_anew(locks)
        await backend._releaser.hand_on(seen, deadline)
        state = await others.inspect("x")
        assert [one.owner for one in state.holders] == [lease.owner]
        assert [one.owner for one in state.waiters] == [owner]
        await lease.release()
        assert (await waiter.result()).token > lease.token
