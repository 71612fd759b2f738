"""Renewals find an entry that is there and ours, or not; also where that comes too late."""

from __future__ import annotations

from typing import Any

import pytest

from _async.etcd.scenes import backend_of, soon, watched
from holdfast import aio as holdfast
from holdfast.chaos.servers.etcd import EtcdCluster
from holdfast.entries import Claim
from holdfast.model import GONE, Granted, Label, Queued, Waiting
from holdfast.stores._async.contract import Terms, Ticket
from holdfast.stores.etcd._async.reading import RECENT
from holdfast.stores.etcd._async.waiter_watch import LOOK_AGAIN
from holdfast.stores.etcd.keys import GRANTED
from holdfast.stores.etcd.wire import messages
from worlds.aio import eventually


async def asked(backend: Any, owner: str = "me") -> Any:
    """An attempt that holds the lock or waits for it."""
    ticket = Ticket(Terms("x", 60.0, Label("here", 1)), owner)
    assert isinstance(await backend.acquire(ticket, soon(backend)), Granted | Queued)
    return backend._attempts.known("x", owner)


async def renewed(backend: Any, owner: str = "me") -> Any:
    (outcome,) = await backend.renew([Claim("x", owner, 60.0)], soon(backend))
    return outcome


async def delete(backend: Any, key: bytes) -> None:
    await backend._retrier.call(messages.DELETE, messages.delete_one(key), soon(backend))


async def test_what_was_given_up_or_is_not_known_to_be_there_is_not_renewed(
    cluster: EtcdCluster,
) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        attempt = await asked(backend)
        attempt.released = True
        kept = attempt.lease.sent = attempt.lease.sent - 20.0
        assert await renewed(backend) is GONE
        attempt.released = False
        created, attempt.created = attempt.created, 0
        assert await renewed(backend) is GONE
        attempt.created = created
        assert attempt.lease.sent == kept  # nothing was asked for it
        assert backend._attempts.known("x", "me") is attempt  # whoever gave it up tells the store
        assert await backend.release("x", "me", soon(backend)) is True


async def test_an_entry_that_was_made_anew_is_not_ours(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        attempt = await asked(backend)
        await delete(backend, attempt.key)
        put = messages.put(attempt.key, attempt.entry(GRANTED, 1.0).encode(), attempt.lease.on)
        await backend._retrier.txn(messages.then(put), soon(backend))
        assert await renewed(backend) is GONE
        assert backend._attempts.known("x", "me") is None


async def test_one_that_is_gone_and_may_still_arrive_is_refused_then(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        attempt = await asked(backend)
        attempt.doubt()
        await delete(backend, attempt.key)
        assert await renewed(backend) is GONE
        assert backend._attempts.known("x", "me") is None
        assert "left/me" in cluster.ctl("get", "--prefix", "--keys-only", "/holdfast/")


@pytest.mark.parametrize("quiet", [False, True])
async def test_a_waiter_that_is_given_up_while_it_is_renewed_waits_no_more(
    cluster: EtcdCluster, quiet: bool
) -> None:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        await others.lock("x").acquire()
        backend = await backend_of(locks)
        attempt = await asked(backend)
        keep = backend._leases.keep_alive
        if quiet:
            assert isinstance(await renewed(backend), Waiting)
            await eventually(lambda: watched(backend, attempt))

        async def given_up(*args: Any) -> bool:
            attempt.released = True
            kept: bool = await keep(*args)
            return kept

        backend._leases.keep_alive = given_up
        assert await renewed(backend) is GONE
        backend._leases.keep_alive = keep


async def test_a_waiter_whose_lease_has_ended_is_told_though_its_watches_are_quiet(
    cluster: EtcdCluster,
) -> None:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        await others.lock("x").acquire()
        backend = await backend_of(locks)
        attempt = await asked(backend)
        assert isinstance(await renewed(backend), Waiting)
        await eventually(lambda: watched(backend, attempt))
        request = messages.lease_id(attempt.lease.id)
        await backend._retrier.call(messages.LEASE_REVOKE, request, soon(backend))
        attempt.lease.sent -= 1.5  # not so fresh any more
        attempt.lease.unproven = attempt.lease.sent
        assert await renewed(backend) is GONE


async def test_a_waiter_looks_now_and_then_though_its_watches_are_quiet(
    cluster: EtcdCluster,
) -> None:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        await others.lock("x").acquire()
        backend = await backend_of(locks)
        attempt = await asked(backend)
        assert isinstance(await renewed(backend), Waiting)
        await eventually(lambda: watched(backend, attempt))
        look = backend._retrier.range
        looks: list[bytes] = []

        async def looked(request: bytes, deadline: float) -> Any:
            looks.append(request)
            return await look(request, deadline)

        backend._retrier.range = looked
        blocker = backend._attempts.waiter_watch._blockers[attempt]
        blocker.looked = backend.clock.now() + 60.0
        assert isinstance(await renewed(backend), Waiting)
        assert looks == []
        blocker.looked = backend.clock.now() - LOOK_AGAIN
        attempt.queue.reading.began -= RECENT
        assert isinstance(await renewed(backend), Waiting)
        assert len(looks) == 1


async def test_a_forced_release_leaves_the_next_alone_who_has_the_same_key(
    cluster: EtcdCluster,
) -> None:
    """Between its look and its deletion the lock is given back, and granted again."""
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        first = await asked(backend, "first")
        look = backend._retrier.range

        async def meanwhile(request: bytes, deadline: float) -> Any:
            backend._retrier.range = look
            found = await look(request, deadline)
            await backend.release("x", "first", deadline)
            assert (await asked(backend, "second")).key == first.key
            return found

        backend._retrier.range = meanwhile
        assert await backend.force_release("x", "a test", soon(backend)) is False
        assert [one.owner for one in (await locks.inspect("x")).holders] == ["second"]


async def test_what_was_refused_is_forgotten(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        await asked(backend)
        other = Ticket(Terms("x", 60.0, Label("here", 1), 1, 3, "semaphore"), "other")
        with pytest.raises(holdfast.ConfigError):
            await backend.acquire(other, soon(backend))
        assert backend._attempts.known("x", "other") is None


async def test_of_many_holders_only_those_whose_keys_are_gone_are_told(
    cluster: EtcdCluster, unwatched: None
) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        leases = [await locks.lock(f"l{number}", ttl=60.0).acquire() for number in range(130)]
        claims = [Claim(f"l{number}", one.owner, 60.0) for number, one in enumerate(leases)]
        calls: list[str] = []
        call = backend._retrier.call

        async def noted(method: str, *args: Any) -> Any:
            calls.append(method)
            return await call(method, *args)

        backend._retrier.call = noted
        outcomes = await backend.renew(claims, soon(backend))
        assert [outcome.token for outcome in outcomes] == [one.token for one in leases]
        assert calls.count(messages.TXN) == 2  # a hundred at once
        gone = {7, 99, 129}
        for number in gone:
            await delete(backend, backend._attempts.known(f"l{number}", leases[number].owner).key)
        outcomes = await backend.renew(claims, soon(backend))
        assert {number for number, one in enumerate(outcomes) if one is GONE} == gone


async def test_one_read_serves_all_waiters_that_are_renewed_together(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks:
        backend = await backend_of(locks)
        await asked(backend, "holder")
        waiters = [await asked(backend, f"w{number}") for number in range(30)]
        claims = [Claim("x", waiter.owner, 60.0) for waiter in waiters]
        await backend.renew(claims, soon(backend))
        await eventually(lambda: all(watched(backend, waiter) for waiter in waiters))
        reads: list[bytes] = []
        read = backend._retrier.range

        async def noted(request: bytes, deadline: float) -> Any:
            reads.append(request)
            return await read(request, deadline)

        backend._retrier.range = noted
        for waiter in waiters:
            waiter.stir(backend.clock.now())
        for _ in range(3):  # from the second on all of them are quiet
            outcomes = await backend.renew(claims, soon(backend))
            assert all(isinstance(outcome, Waiting) for outcome in outcomes)
            assert len(reads) == 1
