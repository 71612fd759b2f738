"""What can happen on the way between a client and etcd: answers lost, requests late, the way cut."""

from __future__ import annotations

# unasync: aio-only
import asyncio
import gc

# unasync: end
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from _async.many import hold_many
from holdfast import aio as holdfast
from holdfast._async.backends import etcd_guard, etcd_leases
from holdfast._async.contract import Ticket
from holdfast.entries import Claim
from holdfast.etcd.messages import (
    LEASE_KEEP_ALIVE,
    RANGE,
    Event,
    KeyValue,
    parse_term,
    range_of,
)
from holdfast.lifecycle import drift_margin
from holdfast.model import GONE, Label, Queued, Renewed, new_owner
from servers.etcd import EtcdCluster
from servers.proxy import Proxy
from stores import etcd_cluster
from worlds.aio import Job, eventually, pause


@pytest.fixture
def cluster() -> EtcdCluster:
    cluster = etcd_cluster()
    cluster.wipe()
    return cluster


@pytest.fixture
def proxy(cluster: EtcdCluster) -> Iterator[Proxy]:
    proxy = Proxy(cluster.members[0].port)
    proxy.about = b"/lock/x/"
    yield proxy
    proxy.close()


@asynccontextmanager
async def through(proxy: Proxy) -> AsyncIterator[holdfast.Locks]:
    """A manager behind the proxy, with its connection and its lease made."""
    async with holdfast.connect(f"etcd://127.0.0.1:{proxy.port}") as locks:
        await (await locks.lock("warm").acquire()).release()
        yield locks


@pytest.fixture
def unguarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held is not watched: what the proxy sees next is what the test sends."""
    monkeypatch.setattr(etcd_guard, "SOON", 1e6)


async def waits(locks: holdfast.Locks, name: str = "x") -> None:
    async def one() -> bool:
        return len((await locks.inspect(name)).waiters) == 1

    await eventually(one)


async def test_an_acquire_whose_answer_was_lost_is_the_same_acquire(
    cluster: EtcdCluster, proxy: Proxy
) -> None:
    async with holdfast.connect(cluster.url) as watcher, through(proxy) as locks:
        proxy.reset_once = True
        lease = await locks.lock("x").acquire()
        assert not proxy.reset_once
        state = await watcher.inspect("x")
        assert [holder.token for holder in state.holders] == [lease.token]
        assert state.waiters == ()
        assert await lease.release() is True
        assert not (await watcher.inspect("x")).held


@pytest.mark.usefixtures("unguarded")
async def test_a_release_whose_answer_was_lost_says_that_it_was_ours(
    cluster: EtcdCluster, proxy: Proxy
) -> None:
    async with holdfast.connect(cluster.url) as watcher, through(proxy) as locks:
        lease = await locks.lock("x").acquire()
        proxy.reset_once = True
        assert await lease.release() is True
        assert not proxy.reset_once
        assert not (await watcher.inspect("x")).held
        assert await lease.release() is False


async def test_a_lock_that_is_handed_over_is_not_taken_a_second_time(cluster: EtcdCluster) -> None:
    """Its heartbeat has just seen that it is its turn. A second grant would end the first one."""
    async with holdfast.connect(cluster.url) as locks, holdfast.connect(cluster.url) as others:
        before = await locks.lock("x").acquire()
        giving: Any = (await locks._session()).backend
        taking: Any = (await others._session()).backend
        by = taking.clock.now() + 20.0
        ticket = Ticket("x", new_owner(), 30.0, Label("here", 1))
        assert isinstance(await taking.acquire(ticket, by), Queued)
        attempt = taking._roll.known("x", ticket.owner)
        lease_to_hold = taking._roll.lease_to_hold

        async def meanwhile(*args: Any) -> Any:
            taking._roll.lease_to_hold = lease_to_hold
            found = await giving._calls.range(range_of(attempt.line.start, attempt.line.end), by)
            await giving._leaving.hand_on(giving._roll.line_of(found.keys), by)
            await eventually(lambda: attempt.token)  # the bell
            return await lease_to_hold(*args)

        await giving._leaving._drop(giving._roll.known("x", before.owner), by)
        taking._roll.lease_to_hold = meanwhile
        (outcome,) = await taking.renew([Claim("x", ticket.owner, 30.0)], by)
        told = await taking.wait(ticket, by)
        assert isinstance(outcome, Renewed)
        assert outcome.token == told.token
        (holder,) = (await locks.inspect("x")).holders
        assert holder.token == told.token
        assert await taking.release("x", ticket.owner, by) is True


async def test_what_is_forgotten_twice_leaves_the_next_alone(cluster: EtcdCluster) -> None:
    """A try that finds no room leaves the line, and is over: by then its key may be another's."""
    async with holdfast.connect(cluster.url) as locks:
        roll: Any = (await locks._session()).backend._roll  # type: ignore[attr-defined]

        def enrolled() -> Any:
            return roll.enrol(Ticket("x", new_owner(), 30.0, Label("here", 1)))

        first = enrolled()
        roll.forget(first)
        second = enrolled()
        assert second.key == first.key
        roll.forget(first)
        third = enrolled()
        assert third.key != second.key
        for attempt in (second, third):
            roll.forget(attempt)


async def test_an_acquire_that_arrives_after_its_release_leaves_no_ghost(
    cluster: EtcdCluster, proxy: Proxy
) -> None:
    async with holdfast.connect(cluster.url) as watcher, through(proxy) as locks:
        roll: Any = (await locks._session()).backend._roll  # type: ignore[attr-defined]
        proxy.keep_once = True
        lease = await locks.lock("x").acquire()  # a second try; the first one is under way
        key = roll.known("x", lease.owner).key
        assert await lease.release() is True
        proxy.let_go()
        assert not (await watcher.inspect("x")).held
        rival = await watcher.lock("x").try_acquire()
        assert rival is not None
        assert rival.token > lease.token
        await rival.release()
        # What gave it up deletes its key without a condition, and might be late as well.
        again = await locks.lock("x").acquire()
        assert roll.known("x", again.owner).key != key


@pytest.mark.usefixtures("unguarded")
async def test_a_release_that_arrives_late_does_not_free_the_next_holder(
    cluster: EtcdCluster, proxy: Proxy
) -> None:
    async with holdfast.connect(cluster.url) as watcher, through(proxy) as locks:
        lease = await locks.lock("x").acquire()
        proxy.keep_once = True
        assert await lease.release() is True
        second = await locks.lock("x").acquire(timeout=5.0)
        proxy.let_go()
        assert [one.token for one in (await watcher.inspect("x")).holders] == [second.token]
        await second.renew()
        assert await second.release() is True


async def test_a_waiter_hears_again_after_its_watch_was_lost_and_compacted(
    cluster: EtcdCluster, proxy: Proxy
) -> None:
    async with holdfast.connect(cluster.url) as others, through(proxy) as locks:
        lease = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await waits(others)
        backend: Any = (await locks._session()).backend
        await eventually(lambda: any(map(backend._roll.watched, backend._roll._attempts.values())))
        proxy.refuse = True
        proxy.hang_up()
        for number in range(3):
            cluster.ctl("put", "unrelated", str(number))
        revision = int(
            cluster.ctl("get", "unrelated", "-w", "fields").split('"Revision" : ')[1].split()[0]
        )
        cluster.ctl("compact", str(revision))
        proxy.refuse = False
        await eventually(lambda: any(map(backend._roll.watched, backend._roll._attempts.values())))
        await eventually(lambda: backend._roll._bell.next > revision)  # from what is there still
        assert not waiter.done()
        await lease.release()
        assert (await waiter.result()).token > lease.token


async def test_a_holder_whose_way_is_cut_is_told_before_its_rival_is_granted(
    cluster: EtcdCluster, proxy: Proxy
) -> None:
    """Ten times out of ten: ten holders at once, each with a manager and a rival of its own."""
    names = [f"n{number}" for number in range(10)]
    holders = [holdfast.connect(f"etcd://127.0.0.1:{proxy.port}") for _ in names]
    async with holdfast.connect(cluster.url) as rivals:
        lost: list[str] = []
        leases: dict[str, holdfast.Lease] = {}
        for name, locks in zip(names, holders, strict=True):
            leases[name] = await locks.lock(name, ttl=2.0).acquire()
            leases[name].on_lost(lambda one: lost.append(one.name))
        granted: dict[str, bool] = {}
        """By name: whether the holder held it still."""

        async def take(name: str) -> None:
            rival = await rivals.lock(name).acquire()
            granted[name] = leases[name].held
            assert rival.held

        jobs = [Job(take, name) for name in names]

        async def all_wait() -> bool:
            return sum(len(state.waiters) for state in await rivals.list()) == len(names)

        await eventually(all_wait)
        for lease in leases.values():
            await lease.renew()
        proxy.stalled = True  # nothing gets through, either way
        for job in jobs:
            await job.result()
        assert granted == dict.fromkeys(names, False)
        await eventually(lambda: sorted(lost) == names)
        proxy.stalled = False
        proxy.hang_up()
        for locks in holders:
            await locks.close()


async def test_a_keep_alive_counts_from_when_it_was_sent(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holdfast.connect(cluster.url) as locks:
        lease = await locks.lock("x", ttl=60.0).acquire()
        session: Any = await locks._session()
        roll, calls = session.backend._roll, session.backend._calls
        kept = roll.known("x", lease.owner).lease
        kept.sent -= 20.0  # not fresh any more
        call = calls.call
        asked: list[float] = []

        async def called(method: str, *args: Any) -> Any:
            if method == LEASE_KEEP_ALIVE:
                asked.append(session.clock.now())
            return await call(method, *args)

        monkeypatch.setattr(calls, "call", called)
        await lease.renew()
        assert asked[0] - 10.0 < kept.sent <= asked[0]
        kept.sent -= 8.0  # still fresh enough to hang more on it, which renews nothing
        another = await locks.lock("y", ttl=60.0).acquire()
        assert roll.known("y", another.owner).lease is kept
        assert another.remaining() <= 60.0 - drift_margin(60.0) - 8.0


async def test_what_needs_proof_is_proved_by_a_transaction_of_the_same_term(
    cluster: EtcdCluster,
) -> None:
    async with holdfast.connect(cluster.url) as locks:
        session: Any = await locks._session()
        calls = session.backend._calls
        term = parse_term(await calls.call(RANGE, range_of(b"x"), session.by()))
        proved: list[str] = []
        calls.unproven[lambda: proved.append("kept alive in this term")] = term
        calls.unproven[lambda: proved.append("kept alive by another leader")] = term - 1
        assert await locks.lock("x").try_acquire() is not None
        assert proved == ["kept alive in this term"]
        assert not calls.unproven


async def test_a_lease_that_ended_while_waiting_is_made_anew(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await waits(others)
        before = (await others.inspect("x")).waiters[0].owner
        revoke(cluster, "waiting")

        async def again() -> bool:
            people = (await others.inspect("x")).waiters
            return bool(people) and people[0].owner != before

        await eventually(again)
        assert not waiter.done()
        await lease.release()
        assert (await waiter.result()).token > lease.token


async def test_a_waiter_whose_entry_is_gone_is_not_granted(cluster: EtcdCluster) -> None:
    """The lock is given back at the moment when the waiter's lease has ended."""
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await waits(others)
        old = (await others.inspect("x")).waiters[0].owner
        revoke(cluster, "waiting")
        await lease.release()
        granted = await waiter.result()
        assert granted.owner != old
        assert [one.owner for one in (await others.inspect("x")).holders] == [granted.owner]


async def test_a_waiter_whose_entry_goes_as_it_takes_the_lock_is_not_granted(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await waits(others)
        session: Any = await locks._session()
        asking = session.backend._asking
        take = asking.take
        outcomes: list[object] = []

        async def too_late(attempt: Any, by: float) -> object:
            if not outcomes:
                cluster.ctl("del", attempt.key.decode())
            outcomes.append(await take(attempt, by))
            return outcomes[-1]

        monkeypatch.setattr(asking, "take", too_late)
        revoke(cluster, "granted")  # nobody grants it the lock: it has to take that by itself
        lease = await waiter.result()
        assert outcomes[0] is GONE
        state = await others.inspect("x")
        assert [one.token for one in state.holders] == [lease.token]
        assert state.waiters == ()


async def test_what_could_not_be_given_back_ends_though_its_lease_lives_on(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        await locks.lock("beside it", ttl=2.0).acquire(timeout=10.0)
        lease = await locks.lock("x", ttl=2.0).acquire(timeout=10.0)
        session: Any = await locks._session()

        async def cut(*args: object) -> object:
            raise holdfast.BackendUnavailable("the way is cut")

        with monkeypatch.context() as patch:
            patch.setattr(session.backend._leaving, "_out", cut)
            with pytest.raises(holdfast.BackendUnavailable):
                await lease.release()
        assert (await others.lock("x").acquire(timeout=15.0)).token > lease.token


@pytest.mark.parametrize("renewed", [False, True])
async def test_a_holder_hears_at_once_that_its_lease_was_revoked(
    cluster: EtcdCluster, renewed: bool
) -> None:
    async with holdfast.connect(cluster.url) as locks:
        lease = await locks.lock("x", ttl=60.0).acquire()
        if renewed:
            await lease.renew()
        revoke(cluster, "granted")
        assert await lease.wait_lost(timeout=5.0) is True
        assert lease.state == "lost"
        assert not lease.held
        # And the next one is not put on the dead lease.
        assert (await locks.lock("x", ttl=60.0).acquire(timeout=5.0)).token > lease.token


async def test_a_holder_to_whom_it_was_handed_hears_at_once_of_a_forced_release(
    cluster: EtcdCluster,
) -> None:
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x", ttl=60.0).acquire()
        waiter = Job(locks.lock("x", ttl=60.0).acquire)
        await waits(others)
        await lease.release()
        heir = await waiter.result()
        assert await others.force_release("x") is True
        assert await heir.wait_lost(timeout=10.0) is True


async def test_a_forced_release_is_not_for_those_who_come_after(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holdfast.connect(cluster.url) as locks, holdfast.connect(cluster.url) as others:
        lease = await locks.lock("x").acquire()
        waiter = Job(others.lock("x").acquire)
        await waits(locks)
        session: Any = await locks._session()
        calls = session.backend._calls
        look = calls.range
        looks: list[int] = []

        async def slowly(*args: Any) -> Any:
            looks.append(1)
            if len(looks) == 2:
                await waiter.result()  # by its own look, when the holder has gone
            return await look(*args)

        monkeypatch.setattr(calls, "range", slowly)
        assert await locks.force_release("x") is True
        monkeypatch.undo()
        second = await waiter.result()
        assert len(looks) > 1
        await second.renew()
        assert [one.token for one in (await locks.inspect("x")).holders] == [second.token]
        assert await lease.wait_lost(timeout=10.0) is True


async def test_an_old_bell_grants_nothing(cluster: EtcdCluster) -> None:
    """It rang for an entry of the same attempt that has ended since. (Found by the simulator.)"""
    async with holdfast.connect(cluster.url) as others, holdfast.connect(cluster.url) as locks:
        lease = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await waits(others)
        backend: Any = (await locks._session()).backend
        roll = backend._roll
        (attempt,) = roll._attempts.values()
        await eventually(lambda: attempt.created > 0)

        def rings(revision: int) -> None:
            value = attempt.owner.encode() + b"\t" + attempt.key
            roll._rung([Event(False, KeyValue(b"bell", value, revision, revision, 0))])

        rings(attempt.created - 1)
        assert not attempt.token
        # The same while it is not known yet what came of the request.
        created, attempt.created = attempt.created, 0
        rings(created - 1)
        assert not attempt.token
        attempt.created = created
        roll.answer_bell(attempt)
        assert not attempt.token
        assert not waiter.done()
        await lease.release()
        assert (await waiter.result()).token > lease.token


async def test_what_was_given_up_is_not_renewed_and_what_was_renewed_is_not_given_up(
    cluster: EtcdCluster,
) -> None:
    """Both may be under way at once, for one that nobody had renewed. (Found by the simulator.)"""
    async with holdfast.connect(cluster.url) as locks:
        lease = await locks.lock("x", ttl=60.0).acquire()
        backend: Any = (await locks._session()).backend
        (attempt,) = backend._roll._attempts.values()
        asked = backend._leases.keep

        async def is_just_paid(*args: Any) -> bool:
            """Somebody else finds that its time is over while it is being renewed."""
            attempt.until = 0.0
            assert backend._leases._give_up(attempt)
            kept: bool = await asked(*args)
            return kept

        backend._leases.keep = is_just_paid
        assert await backend.renew([Claim("x", lease.owner, 60.0)], soon(backend)) == [GONE]
        backend._leases.keep = asked
        attempt.owed = False
        attempt.until = 0.0
        (renewed,) = await backend.renew([Claim("x", lease.owner, 60.0)], soon(backend))
        assert isinstance(renewed, Renewed)
        assert not backend._leases._give_up(attempt)


def soon(backend: Any) -> float:
    by: float = backend.clock.now() + 10.0
    return by


# unasync: aio-only
async def test_watches_that_broke_leave_no_task_behind(cluster: EtcdCluster, proxy: Proxy) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: complaints.append(what))
    async with holdfast.connect(cluster.url) as others, through(proxy) as locks:
        lease = await others.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)
        await waits(others)
        session: Any = await locks._session()
        roll = session.backend._roll
        for _ in range(3):
            await eventually(lambda: roll._bell is not None and roll._bell.standing)
            proxy.hang_up()
            await eventually(lambda: not roll._bell.standing)
        await lease.release()
        await (await waiter.result()).release()
    gc.collect()
    await pause(0)
    assert complaints == []


# unasync: end
async def test_nobody_is_kept_by_another_who_asks_the_cluster_for_the_same(
    cluster: EtcdCluster,
) -> None:
    async with holdfast.connect(cluster.url) as locks:
        await (await locks.lock("x").acquire()).release()
        session: Any = await locks._session()
        backend, clock = session.backend, session.clock
        leases = backend._leases
        lease = await leases.shared("hold", 30.0, session.by())
        lease.sent -= lease.ttl / 2  # not fresh any more
        for mutex in (lease.keeping, leases._granting):
            async with mutex:
                for owner in ("me", "you"):
                    ticket = Ticket("x", owner, 30.0, session.label)
                    with pytest.raises(holdfast.BackendUnavailable, match="in time"):
                        await backend.acquire(ticket, clock.now() + 0.1)
            lease.dead = True
        assert await locks.lock("x").try_acquire() is not None


async def test_a_crowd_in_one_manager_loses_nothing(
    cluster: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keep-alives at every turn, and none of them ends what another is just about to end."""
    monkeypatch.setattr(etcd_leases, "QUEUE_STALE", 0.0)
    async with holdfast.connect(cluster.url) as locks:
        turns = 0

        async def work(name: str) -> None:
            nonlocal turns
            for _ in range(30):
                async with locks.lock(name):
                    turns += 1

        jobs = [Job(work, name) for name in ("a", "b") for _ in range(4)]
        for job in jobs:
            await job.result()
        assert turns == 240
        assert await locks.list() == []


async def test_many_locks_cost_no_thread_each(cluster: EtcdCluster) -> None:
    async with holdfast.connect(cluster.url) as locks:
        first = await locks.lock("first").acquire()
        await first.renew()
        await hold_many(locks)


def revoke(cluster: EtcdCluster, state: str) -> None:
    """Take away the lease of the entry that is in this state."""
    answer = cluster.ctl("get", "--prefix", "/holdfast/holdfast/lock/x/", "-w", "fields")
    entries = answer.split('"Key" : ')[1:]
    (entry,) = [entry for entry in entries if f'"Value" : "{state}' in entry]
    lease = int(entry.split('"Lease" : ')[1].split()[0])
    cluster.ctl("lease", "revoke", f"{lease:x}")
