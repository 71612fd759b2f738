"""Waiters: on which session their znodes are, who comes in together, and what a grant rests on."""

from __future__ import annotations

from typing import Any

import pytest

from _async.waiting import until_waiting
from holdfast import aio as holdfast
from holdfast.chaos.servers.proxy import Proxy
from holdfast.chaos.servers.zookeeper import TICK, lock_path, raw_client
from holdfast.stores.zookeeper.session import ClientSession
from stores import zookeeper_ensemble
from worlds.aio import Job, eventually


class Place:
    """The znode of an owner."""

    def __init__(self, raw: Any, url: str) -> None:
        self._raw = raw
        self._lock = lock_path(url, "x")

    def path(self, owner: str) -> str:
        return next(
            f"{self._lock}/{child}"
            for child in self._raw.get_children(self._lock)
            if child.startswith(owner)
        )

    def session(self, owner: str) -> int:
        found: int = self._raw.exists(self.path(owner)).ephemeralOwner
        return found


async def until_parked(locks: holdfast.Locks) -> None:
    """Returns once the only attempt of `locks` is on the session for waiting.

    Others see a waiter before that: its znode is moved once it knows that it has to wait.
    """
    backend: Any = (await locks._session()).backend
    attempts = backend._attempts._attempts
    await eventually(lambda: [one.parked for one in attempts.values()] == [True])


@pytest.mark.parametrize("again", [False, True])
async def test_a_waiter_is_on_a_short_session_and_a_holder_on_its_own(
    url: str, raw: Any, again: bool
) -> None:
    """`again`: the manager knows that it has to wait, and creates its znode where it belongs."""
    place = Place(raw, url)
    async with holdfast.connect(url, tick=TICK) as locks, holdfast.connect(url) as others:
        holder = await others.lock("x").acquire()
        if again:
            assert await locks.lock("x", ttl=60.0).try_acquire(timeout=0.2) is None
        waiter = Job(locks.lock("x", ttl=60.0).acquire)
        await until_waiting(others, 1)
        (owner,) = (one.owner for one in (await others.inspect("x")).waiters)
        backend: Any = (await locks._session()).backend
        sessions = backend._attempts._sessions
        await until_parked(locks)
        assert place.session(owner) == sessions[2.0].session_id
        before = place.path(owner)
        await holder.release()
        lease = await waiter.result()
        assert lease.ttl == 60.0
        await eventually(lambda: place.session(owner) == sessions[60.0].session_id)
        assert place.path(owner) == before
        await lease.renew()
        assert lease.remaining() > 50.0
        assert not sessions[2.0].attempts
        assert await lease.release() is True


async def test_a_holder_that_has_waited_outlives_the_session_for_waiting(
    url: str, raw: Any
) -> None:
    async with holdfast.connect(url, tick=TICK) as locks, holdfast.connect(url) as others:
        holder = await others.lock("x").acquire()
        waiter = Job(locks.lock("x", ttl=60.0).acquire)
        await until_parked(locks)
        await holder.release()
        lease = await waiter.result()
        await lease.renew()
        backend: Any = (await locks._session()).backend
        identity = backend._attempts._sessions[2.0].client.client_id
        with raw_client(zookeeper_ensemble().hosts, client_id=identity):
            pass  # leaving closes the session
        await lease.renew()
        assert (await others.inspect("x")).holders[0].owner == lease.owner
        assert await lease.release() is True


async def test_readers_behind_a_writer_come_in_together(
    url: str, through: str, proxy: Proxy
) -> None:
    """Stands for many readers, of whom the first in the queue is slow to take the lock."""
    number = 20
    async with (
        holdfast.connect(url) as writers,
        holdfast.connect(through, claim_window=30.0) as slow,
        holdfast.connect(url, heartbeat=60.0, claim_window=60.0) as locks,
    ):
        # So long that nobody asks again before this test is over.
        writer = await writers.rwlock("x", ttl=90.0).write().acquire()
        first = Job(slow.rwlock("x").read().acquire)
        await until_waiting(writers, 1)
        readers = [Job(locks.rwlock("x").read().acquire) for _ in range(number)]
        await until_waiting(writers, number + 1)
        proxy.stalled = True
        await writer.release()
        leases = [await reader.result() for reader in readers]
        assert len({lease.token for lease in leases}) == number
        assert all(lease.token > writer.token for lease in leases)
        proxy.stalled = False
        proxy.hang_up()
        assert (await first.result()).token > writer.token


async def test_a_writer_s_token_is_above_those_of_readers_who_came_before_it(url: str) -> None:
    async with holdfast.connect(url) as locks:
        both = locks.rwlock("x")
        first = await both.write().acquire()
        reader = Job(both.read().acquire)
        await until_waiting(locks, 1)
        writer = Job(both.write().acquire)
        await until_waiting(locks, 2)
        await first.release()
        read = await reader.result()
        assert read.token > first.token
        await read.release()
        last = await writer.result()
        assert last.token > read.token


async def test_a_waiter_whose_znode_goes_along_with_the_holder_s_is_not_granted(
    url: str, raw: Any
) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        holder = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await until_waiting(others, 1)
        (before,) = (await others.inspect("x")).waiters
        path = lock_path(url, "x")
        backend: Any = (await locks._session()).backend
        attempt = backend._attempts._attempts[before.owner]
        await eventually(lambda: attempt.parked and attempt.watched_path and not attempt.in_flight)
        removal = raw.transaction()
        for child in raw.get_children(path):
            removal.delete(f"{path}/{child}")
        assert removal.commit() == [True, True]
        lease = await waiter.result()
        assert lease.owner != before.owner
        assert lease.token > holder.token
        (child,) = raw.get_children(path)
        assert child.startswith(lease.owner)


async def test_a_holder_whose_znode_is_removed_after_a_reconnect_is_told_at_once(
    url: str, through: str, proxy: Proxy, raw: Any
) -> None:
    events: list[str] = []
    async with holdfast.connect(through, on_event=lambda one: events.append(one.kind)) as locks:
        lease = await locks.lock("x", ttl=3600.0).acquire()  # its next renewal is far away
        await lease.renew()  # from the first renewal on it is watched
        for _ in range(3):
            seen = len(events)
            proxy.hang_up()
            await eventually(lambda seen=seen: "uncertain" in events[seen:])  # type: ignore[misc]
            await eventually(lambda: lease.state == "held")
        raw.delete(Place(raw, url).path(lease.owner))
        assert await lease.wait_lost(timeout=10.0) is True


async def test_a_waiter_is_not_moved_to_a_session_that_may_end_before_its_claim(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holdfast.connect(url, tick=TICK) as locks, holdfast.connect(url) as others:
        holder = await others.lock("x").acquire()
        backend: Any = (await locks._session()).backend
        sessions = backend._attempts._sessions
        unsure = property(
            lambda one: 0.0 if one is sessions.get(2.0) else one._table.clock.now() + 9
        )
        with monkeypatch.context() as patch:
            patch.setattr(ClientSession, "sure_until", unsure)
            waiter = Job(locks.lock("x", ttl=60.0).acquire)
            await until_waiting(others, 1)
            await eventually(lambda: 2.0 in sessions and sessions[2.0].ready)
            (attempt,) = backend._attempts._attempts.values()
            seen = attempt.counted_until
            await eventually(lambda: attempt.counted_until > seen)  # by a heartbeat
            assert not attempt.parked
        await eventually(lambda: attempt.parked)  # by the next one
        await holder.release()
        assert (await waiter.result()).token > holder.token


async def test_a_lock_for_which_nobody_waits_any_more_is_taken_in_one_step(url: str) -> None:
    async with holdfast.connect(url, tick=TICK) as locks, holdfast.connect(url) as others:
        holder = await others.lock("x").acquire()
        waiter = Job(locks.lock("x", ttl=60.0).acquire)
        await until_parked(locks)
        await holder.release()
        await (await waiter.result()).release()
        backend: Any = (await locks._session()).backend
        assert backend._attempts._known_locks[lock_path(url, "x")] is True

        async def taken_in_one_step() -> bool:
            lease = await locks.lock("x", ttl=60.0).acquire()
            attempt = backend._attempts._attempts[lease.owner]
            at_once = bool(attempt.settled and attempt.czxid == lease.token)
            await lease.renew()
            assert attempt.settled
            assert lease.remaining() > 50.0
            assert await lease.release() is True
            return at_once

        await eventually(taken_in_one_step)
