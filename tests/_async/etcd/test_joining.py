"""Who has just handed a lock on and asks again stands behind those who wait, without a look at them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast import aio as holdfast
from holdfast.model import Label, Queued
from holdfast.stores._async.contract import Terms, Ticket
from holdfast.stores.etcd._async import release as etcd_leaving
from holdfast.stores.etcd.keys import WAITING, Entry
from holdfast.stores.etcd.wire import messages
from holdfast.stores.etcd.wire.messages import Event, KeyValue
from servers.etcd import EtcdCluster
from stores import etcd_cluster
from worlds.aio import Job, eventually


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> EtcdCluster:
    monkeypatch.setattr(etcd_leaving, "TAIL", 1e6)
    cluster = etcd_cluster()
    cluster.wipe()
    return cluster


class Scene:
    """One has just handed the lock on; another holds it, and more wait."""

    def __init__(
        self,
        locks: holdfast.Locks,
        backend: Any,
        held: holdfast.Lease,
        waiting: list[Job[holdfast.Lease]],
    ) -> None:
        self.locks = locks
        self.backend = backend
        self.held = held
        self.waiting = waiting
        self.looks = 0
        """How often it asked in a way that looks at the line."""
        ask = backend._asking._request

        def counted(*args: Any) -> bytes:
            self.looks += 1
            request: bytes = ask(*args)
            return request

        backend._asking._request = counted

    async def line(self) -> tuple[str, ...]:
        state = await self.locks.inspect("x")
        return tuple(one.owner for one in (*state.holders, *state.waiters))

    async def to_its_end(self) -> int:
        """All those have it in their turn. Answers the last token."""
        await self.held.release()
        while self.waiting:
            self.held = await self.waiting.pop(0).result()
            await self.held.release()
        return self.held.token


@asynccontextmanager
async def handed_on(cluster: EtcdCluster) -> AsyncIterator[Scene]:
    async with (
        holdfast.connect(cluster.url) as first,
        holdfast.connect(cluster.url) as second,
        holdfast.connect(cluster.url) as third,
        holdfast.connect(cluster.url) as fourth,
        holdfast.connect(cluster.url) as fifth,
    ):
        held = await first.lock("x").acquire()
        jobs: list[Job[holdfast.Lease]] = []
        for locks in (second, third, fourth, fifth):
            jobs.append(Job(locks.lock("x").acquire))

            async def all_wait() -> bool:
                return len((await first.inspect("x")).waiters) == len(jobs)

            await eventually(all_wait)
        # The first sees two of them, the second is told of the one behind it; the third has to look.
        for job in jobs[:3]:
            await held.release()
            held = await job.result()
        backend: Any = (await third._session()).backend
        scene = Scene(third, backend, held, jobs[3:])
        yield scene
        await scene.to_its_end()


async def test_behind_those_who_still_wait(cluster: EtcdCluster) -> None:
    async with handed_on(cluster) as scene:
        job = Job(scene.locks.lock("x").acquire)

        async def joined() -> bool:
            return len(await scene.line()) == 3

        await eventually(joined)
        assert scene.looks == 0
        token = await scene.to_its_end()
        assert (await job.result()).token > token


async def test_all_have_had_it_meanwhile(cluster: EtcdCluster) -> None:
    async with handed_on(cluster) as scene:
        token = await scene.to_its_end()
        assert (await scene.locks.lock("x").acquire(timeout=30.0)).token > token
        assert scene.looks > 0


async def test_what_was_given_up_before_it_arrived_is_refused(cluster: EtcdCluster) -> None:
    async with handed_on(cluster) as scene:
        backend = scene.backend
        deadline = backend.clock.now() + 10.0
        left = messages.put_for_ever(backend._naming.left("me"), b"")
        await backend._calls.txn(messages.then(left), deadline)
        attempt = backend._roll.enrol(Ticket(Terms("x", 30.0, Label("here", 1)), "me"))
        assert await backend._asking._join(attempt, deadline) is None
        assert len(await scene.line()) == 2


async def test_of_two_who_would_join_so_at_once_one_looks_at_the_line(cluster: EtcdCluster) -> None:
    """The other one, in another thread, knows of nobody who waits: the line may be of another kind."""
    async with handed_on(cluster) as scene:
        backend = scene.backend
        deadline = backend.clock.now() + 10.0
        before = await scene.line()
        first, second = (
            backend._roll.enrol(Ticket(Terms("x", 30.0, Label("here", 1)), owner))
            for owner in ("me", "you")
        )
        assert isinstance(await backend._asking._join(first, deadline), Queued)
        assert await backend._asking._join(second, deadline) is None
        assert await scene.line() == (*before, "me")
        await backend.release("x", "me", deadline)


async def test_a_key_that_is_still_there_is_left_alone(cluster: EtcdCluster) -> None:
    """From an attempt whose lease is just ending."""
    async with handed_on(cluster) as scene:
        backend = scene.backend
        deadline = backend.clock.now() + 10.0
        (line,) = backend._roll._lines.values()
        entry = Entry(WAITING, "old", 1, 30.0, 0.0, 0, Label("here", 1)).encode()
        lease = await backend._leases.own(30.0, deadline)
        await backend._calls.txn(
            messages.then(messages.put(line.mine + b"0", entry, lease.on)), deadline
        )
        answer = await backend.acquire(Ticket(Terms("x", 30.0, Label("here", 1)), "me"), deadline)
        assert isinstance(answer, Queued)
        *_, last_but_one, last = await scene.line()
        assert (last_but_one, last) == ("old", "me")


async def test_a_bell_that_is_heard_before_the_answer_counts(cluster: EtcdCluster) -> None:
    async with handed_on(cluster) as scene:
        backend = scene.backend
        deadline = backend.clock.now() + 10.0
        ticket = Ticket(Terms("x", 30.0, Label("here", 1)), "me")
        txn = backend._calls.txn
        rang = 0

        async def rings_first(*args: Any, **options: Any) -> Any:
            nonlocal rang
            answer = await txn(*args, **options)
            rang = answer.revision + 1
            value = b"me\t" + backend._roll.known("x", "me").key
            backend._roll._rung([Event(False, KeyValue(b"bell", value, rang, rang, 0))])
            return answer

        backend._calls.txn = rings_first
        assert isinstance(await backend.acquire(ticket, deadline), Queued)
        backend._calls.txn = txn
        grant = await backend.wait(ticket, deadline)
        assert grant is not None
        assert grant.token == rang
        backend._roll.known("x", "me").token = 0  # it was not true


async def test_who_may_have_missed_the_bell_asks(cluster: EtcdCluster) -> None:
    async with handed_on(cluster) as scene:
        backend = scene.backend
        backend._roll._bell.began = 2**60
        ticket = Ticket(Terms("x", 30.0, Label("here", 1)), "me")
        deadline = backend.clock.now() + 10.0
        assert isinstance(await backend.acquire(ticket, deadline), Queued)
        assert await backend.wait(ticket, deadline) is None
        assert backend.clock.now() < deadline


async def test_one_that_is_given_up_before_it_is_answered_is_told(cluster: EtcdCluster) -> None:
    async with handed_on(cluster) as scene:
        backend = scene.backend
        deadline = backend.clock.now() + 10.0
        txn = backend._calls.txn

        async def given_up(*args: Any, **options: Any) -> Any:
            backend._calls.txn = txn
            answer = await txn(*args, **options)
            await backend.release("x", "me", deadline)
            return answer

        backend._calls.txn = given_up
        with pytest.raises(holdfast.BackendUnavailable, match="given up"):
            await backend.acquire(Ticket(Terms("x", 30.0, Label("here", 1)), "me"), deadline)
        assert scene.looks == 0
        assert len(await scene.line()) == 2


async def test_its_time_counts_from_what_renewed_its_lease(cluster: EtcdCluster) -> None:
    async with handed_on(cluster) as scene:
        backend = scene.backend
        deadline = backend.clock.now() + 10.0
        lease = await backend._leases.shared("queue", backend.claim_window, deadline)
        lease.sent -= lease.lasting / 2  # fresh enough to hang more on it
        queued = await backend.acquire(Ticket(Terms("x", 30.0, Label("here", 1)), "me"), deadline)
        assert scene.looks == 0
        assert queued.since == lease.sent
        assert backend._roll.known("x", "me").until == lease.sent + lease.ttl


async def test_a_lease_that_has_ended_is_made_anew(cluster: EtcdCluster) -> None:
    async with handed_on(cluster) as scene:
        backend = scene.backend
        deadline = backend.clock.now() + 10.0
        leases = [one for one in backend._leases._all.values() if one.kind == "queue"]
        for lease in leases:
            await backend._calls.call(messages.LEASE_REVOKE, messages.lease_id(lease.id), deadline)
        answer = await backend.acquire(Ticket(Terms("x", 30.0, Label("here", 1)), "me"), deadline)
        assert isinstance(answer, Queued)
        assert (await scene.line())[-1] == "me"
