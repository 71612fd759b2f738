"""Which attempts a manager has under way: what it keeps of them, and what it takes a bell for."""

from __future__ import annotations

from typing import Any

import pytest

from _async.etcd.scenes import soon, waits
from holdfast import aio as holdfast
from holdfast.entries import Claim
from holdfast.model import Label, Queued
from holdfast.stores._async.contract import Terms, Ticket
from holdfast.stores.etcd._async import attempts as etcd_roll
from holdfast.stores.etcd.wire.messages import Event, KeyValue, range_of
from servers.etcd import EtcdCluster
from worlds.aio import Job, eventually


async def backend_of(locks: holdfast.Locks) -> Any:
    return (await locks._session()).backend


def ticket_of(owner: str, name: str = "x") -> Ticket:
    return Ticket(Terms(name, 60.0, Label("here", 1)), owner)


async def test_what_is_over_is_kept_while_its_key_may_live_on(cluster: EtcdCluster) -> None:
    """Its lease is alive, so it has to be ended by us; that is not to be forgotten."""
    async with holdfast.connect(cluster.url) as locks:
        lease = await locks.lock("x", ttl=60.0).acquire()
        backend = await backend_of(locks)
        roll = backend._roll
        attempt = roll.known("x", lease.owner)
        until, attempt.until = attempt.until, 0.0
        roll._sweep()
        assert roll.known("x", lease.owner) is attempt
        attempt.until = until
        assert await lease.release() is True


async def test_a_line_in_which_a_key_is_in_use_or_burned_is_remembered(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_roll, "LINES", 2)
    async with holdfast.connect(cluster.url) as locks:
        roll = (await backend_of(locks))._roll
        used = roll.enrol(ticket_of("a"))
        burned = roll.enrol(ticket_of("a", "y"))
        burned.burn()
        roll.forget(burned)
        for number in range(3):
            roll.forget(roll.enrol(ticket_of("b", f"other {number}")))
        assert len(roll._lines) <= 3
        assert roll.enrol(ticket_of("b")).key != used.key
        assert roll.enrol(ticket_of("b", "y")).key != burned.key


async def test_a_line_that_was_dropped_gives_out_no_more_keys(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be another of the same lock by then, which gives out the same."""
    monkeypatch.setattr(etcd_roll, "LINES", 1)
    async with holdfast.connect(cluster.url) as locks:
        roll = (await backend_of(locks))._roll
        ticket = ticket_of("a")
        roll.forget(roll.enrol(ticket))
        roll.forget(roll.enrol(ticket_of("a", "y")))
        keys = {roll.enrol(ticket_of("b")).key, roll.enrol(Ticket(ticket.terms, "c")).key}
        assert len(keys) == 2


async def test_a_bell_is_for_one_attempt_and_counts_once(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x").acquire()
        backend = await backend_of(locks)
        roll = backend._roll
        ticket = ticket_of("me")
        assert isinstance(await backend.acquire(ticket, soon(backend)), Queued)
        attempt = roll.known("x", "me")

        def rings(owner: str, revision: int) -> None:
            value = owner.encode() + b"\t" + attempt.key
            roll._rung([Event(False, KeyValue(b"bell", value, revision, revision, 0))])

        rings("an earlier one with this key", attempt.created + 1)
        assert not attempt.token
        attempt.owed = True
        rings("me", attempt.created + 1)
        assert not attempt.token
        attempt.owed = False
        rings("me", attempt.created + 2)
        rings("me", attempt.created + 7)
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
        await waits(others)
        backend = await backend_of(locks)
        roll = backend._roll
        (attempt,) = roll._attempts.values()
        await eventually(lambda: attempt.blocker is not None)
        roll._unblock(attempt)
        add = roll.watches.add
        added: list[Any] = []

        def given_up(*args: Any, **options: Any) -> Any:
            attempt.owed = True
            added.append(add(*args, **options))
            return added[0]

        line = range_of(attempt.line.start, attempt.line.end)
        found = await backend._calls.range(line, soon(backend))
        roll.watches.add = given_up
        roll.watch_blocker(attempt, roll.line_of(found.keys), 0, 0)
        roll.watches.add = add
        attempt.owed = False
        assert attempt.blocker is None
        assert added[0].id not in roll.watches._watches
        await lease.release()
        assert (await waiter.result()).token > lease.token


async def test_who_leaves_the_line_leaves_no_watch_behind(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").try_acquire, 60.0)
        await waits(others)
        backend = await backend_of(locks)
        (attempt,) = backend._roll._attempts.values()
        await eventually(lambda: attempt.blocker is not None)
        watch = attempt.blocker
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
        attempt = await backend._roll.find("x", lease.owner, soon(backend))
        assert await backend.release("x", lease.owner, soon(backend)) is True
        assert attempt.line.used == 0  # no key of ours was in use
        assert backend._roll.known("x", lease.owner) is None
        assert await backend.release("x", lease.owner, soon(backend)) is False
        assert not (await locks.inspect("x")).held


async def test_what_an_older_look_says_is_not_believed(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x").acquire()
        backend = await backend_of(locks)
        roll = backend._roll
        assert isinstance(await backend.acquire(ticket_of("me"), soon(backend)), Queued)
        attempt = roll.known("x", "me")
        line = range_of(attempt.line.start, attempt.line.end)
        old = roll.line_of((await backend._calls.range(line, soon(backend))).keys)[1]
        hung = attempt.lease
        value = b"me\t" + attempt.key
        revision = attempt.changed + 5
        roll._rung([Event(False, KeyValue(b"bell", value, revision, revision, 0))])
        assert attempt in roll.guard._new  # its key will be watched
        roll.guard.drop(attempt)
        moved = old._replace(kv=old.kv._replace(lease=7))
        roll.recognise(attempt, moved)
        assert (attempt.changed, attempt.token, attempt.lease) == (revision, revision, hung)
        # And what a newer one says, is.
        attempt.token = 0
        granted = old.entry.granted(1.0)
        newer = old._replace(kv=old.kv._replace(changed=revision + 1, lease=77), entry=granted)
        roll.recognise(attempt, newer)
        assert (attempt.changed, attempt.token) == (revision + 1, revision + 1)
        assert attempt.lease.id == 77
        assert attempt in roll.guard._new
        attempt.token = 0
        await lease.release()


async def test_what_is_heard_of_a_key_that_was_taken_away(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x").acquire()
        backend = await backend_of(locks)
        roll = backend._roll
        assert isinstance(await backend.acquire(ticket_of("me"), soon(backend)), Queued)
        attempt = roll.known("x", "me")
        heard: list[Any] = []
        roll.look = heard.append

        def taken_away(revision: int) -> Any:
            heard.clear()
            attempt.looked = 1.0
            roll._taken_away([Event(True, KeyValue(attempt.key, b"", 0, revision, 0))])
            return list(heard), attempt.looked

        after = attempt.created + 1
        assert taken_away(after) == ([], 0.0)  # a waiter: the line is looked at for it
        attempt.token = 7
        assert taken_away(after) == ([["me"]], 1.0)  # a holder: it is asked about
        assert taken_away(attempt.created) == ([], 1.0)  # an earlier one, which had the same key
        attempt.owed = True
        assert taken_away(after) == ([], 1.0)  # by ourselves
        attempt.owed, attempt.token = False, 0
        await lease.release()


async def test_who_waits_is_told_only_while_all_its_watches_stand(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await waits(others)
        roll = (await backend_of(locks))._roll
        (attempt,) = roll._attempts.values()
        await eventually(lambda: roll.watched(attempt))
        for watch in (roll._bell, attempt.blocker):
            watch.standing = False
            assert not roll.watched(attempt)
            watch.standing = True
            assert roll.watched(attempt)
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
        first, second = (backend._roll.known("x", owner) for owner in ("first", "second"))
        assert (first.blocker.key, first.blocker.end) == (first.line.start, first.line.end)
        assert first.blocker.deletions_only
        assert (second.blocker.key, second.blocker.end) == (first.key, b"")
        assert not second.blocker.deletions_only
        for lease in held:
            await lease.release()
