"""The queue: its order, its hand-overs, and that nobody is left in it."""

from __future__ import annotations

import pytest

from holdfast import aio as holdfast
from worlds.aio import Job, eventually, pause


class Line:
    """Waiters that join one after the other, and note the order in which they were served."""

    def __init__(self, locks: holdfast.Locks, name: str = "x") -> None:
        self.locks = locks
        self.name = name
        self.served: list[str] = []
        self.jobs: list[Job[None]] = []

    async def join(self, who: str, lock: holdfast.Lock) -> None:
        before = {one.owner for one in (await self.locks.inspect(self.name)).waiters}

        async def wait() -> None:
            async with lock:
                self.served.append(who)

        async def joined() -> bool:
            present = {one.owner for one in (await self.locks.inspect(self.name)).waiters}
            return bool(present - before) or job.done()

        job = Job(wait)
        self.jobs.append(job)
        await eventually(joined)

    async def finish(self) -> list[str]:
        for job in self.jobs:
            await job.result()
        return self.served


async def waiters(locks: holdfast.Locks, name: str = "x") -> int:
    return len((await locks.inspect(name)).waiters)


async def test_first_come_first_served(fair_url: str) -> None:
    async with holdfast.connect(fair_url) as locks, holdfast.connect(fair_url) as others:
        assert locks.guarantees.fair
        lease = await locks.lock("x").acquire()
        line = Line(locks)
        for number in range(6):
            side = (locks, others)[number % 2]
            await line.join(f"w{number}", side.lock("x", fair=True))
        assert await locks.lock("x").try_acquire() is None
        await lease.release()
        assert await line.finish() == [f"w{number}" for number in range(6)]


async def test_a_newcomer_does_not_overtake_a_fair_queue(fair_url: str) -> None:
    async with holdfast.connect(fair_url) as locks:
        lease = await locks.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)

        async def waits() -> bool:
            return await waiters(locks) == 1

        await eventually(waits)
        await lease.release()
        assert await locks.lock("x").try_acquire() is None
        held = await waiter.result()
        assert held.held
        assert held.token > lease.token


async def test_an_unfair_newcomer_may_take_a_free_lock(url: str) -> None:
    # On Redlock a wake-up is a hint. It is missed where the release stands still for longer than the
    # waiter's four rounds take; then three heartbeats find the lock that is free.
    async with holdfast.connect(url, heartbeat=5.0) as locks:
        lease = await locks.lock("x").acquire()
        waiter = Job(locks.lock("x", fair=False).acquire)

        async def waits() -> bool:
            return await waiters(locks) == 1

        await eventually(waits)
        # Released and taken again at once: the waiter is woken, and finds it taken or takes it.
        await lease.release()
        taken = await locks.lock("x", fair=False).try_acquire()
        if taken is not None:
            await taken.release()
        assert (await waiter.result()).held


async def test_an_unfair_waiter_is_served_at_last(url: str) -> None:
    async with holdfast.connect(url) as locks:
        line = Line(locks)
        lease = await locks.lock("x").acquire()
        for number in range(4):
            await line.join(f"w{number}", locks.lock("x", fair=False))
        await lease.release()
        assert sorted(await line.finish()) == ["w0", "w1", "w2", "w3"]


async def test_a_timed_out_waiter_leaves_nothing_behind(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x").acquire()
        assert await locks.lock("x").try_acquire(timeout=0.05) is None
        with pytest.raises(holdfast.LockTimeout):
            await locks.lock("x").acquire(timeout=0.05)
        assert await waiters(locks) == 0
        await lease.release()
        assert not (await locks.inspect("x")).held
        assert await locks.lock("x").try_acquire() is not None


async def test_a_waiter_that_left_is_not_handed_the_lock(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x").acquire()
        quitter = Job(locks.lock("x").try_acquire, 0.2)
        line = Line(locks)

        async def waits() -> bool:
            return await waiters(locks) == 1 or quitter.done()

        await eventually(waits)
        await line.join("stayer", locks.lock("x"))
        assert await quitter.result() is None
        assert await waiters(locks) == 1
        await lease.release()
        assert await line.finish() == ["stayer"]


async def test_a_handed_over_lease_becomes_a_full_one(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x").acquire()
        waiter = Job(locks.lock("x", ttl=20.0).acquire)

        async def waits() -> bool:
            return await waiters(locks) == 1

        await eventually(waits)
        await lease.release()
        held = await waiter.result()
        assert held.ttl == 20.0
        await eventually(lambda: held.remaining() > 15.0)

        async def full() -> bool:
            return (await locks.inspect("x")).holders[0].remaining > 15.0

        await eventually(full)


async def test_an_expired_holder_makes_room_for_the_queue(fair_url: str) -> None:
    async with holdfast.connect(fair_url) as locks:
        lease = await locks.lock("x", ttl=0.3, renew=False).acquire(timeout=10.0)
        line = Line(locks)
        await line.join("a", locks.lock("x"))
        await line.join("b", locks.lock("x"))
        assert await line.finish() == ["a", "b"]
        assert not lease.held


async def test_each_holder_of_a_semaphore_has_a_slot_of_its_own(url: str) -> None:
    """Where the store says so. Whoever comes next has the one that became free, and a higher token."""
    async with holdfast.connect(url) as locks:
        semaphore = locks.semaphore("pool", permits=3)
        if not locks.guarantees.slots:
            assert (await semaphore.acquire()).slot is None
            return
        for turn in range(5):
            leases = [await semaphore.acquire() for _ in range(3)]
            assert sorted(str(lease.slot) for lease in leases) == ["0", "1", "2"]
            shown = {holder.owner: holder.slot for holder in (await locks.inspect("pool")).holders}
            assert shown == {lease.owner: lease.slot for lease in leases}
            freed = leases.pop(turn % 3)
            taking = Job(semaphore.acquire, 30.0)

            async def enrolled(job: Job[holdfast.Lease] = taking) -> bool:
                return job.done() or await waiters(locks, "pool") == 1

            await eventually(enrolled)
            await freed.release()  # which hands it over
            next_one = await taking.result()
            assert next_one.slot == freed.slot
            assert next_one.token > max(freed.token, *(lease.token for lease in leases))
            await next_one.renew()
            for lease in [*leases, next_one]:
                await lease.release()
        async with locks.lock("mutex") as lease:
            assert lease.slot is None


async def test_slots_under_a_crowd(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        if not locks.guarantees.slots:
            return
        inside: dict[int | None, str] = {}
        last: dict[int | None, int] = {}

        async def work(mine: holdfast.Locks, fair: bool | None) -> None:
            semaphore = mine.semaphore("pool", permits=3, fair=fair)
            for _ in range(10):
                async with semaphore as lease:
                    assert inside.setdefault(lease.slot, lease.owner) == lease.owner
                    assert last.get(lease.slot, 0) < lease.token  # for each slot they rise
                    last[lease.slot] = lease.token
                    await pause(0.001)
                    del inside[lease.slot]

        strict = True if locks.guarantees.fair else None
        sides = [(mine, fair) for mine in (locks, others) for fair in (strict, strict, False)]
        jobs = [Job(work, mine, fair) for mine, fair in sides]
        for job in jobs:
            await job.result()
        assert sorted(map(str, last)) == ["0", "1", "2"]


async def test_a_semaphore_admits_as_many_as_it_has_permits(url: str) -> None:
    async with holdfast.connect(url) as locks:
        semaphore = locks.semaphore("pool", permits=3)
        leases = [await semaphore.acquire() for _ in range(3)]
        assert len({lease.token for lease in leases}) == 3
        assert await semaphore.try_acquire() is None
        await leases[1].release()
        fourth = await semaphore.acquire(timeout=10.0)
        assert fourth.token > max(lease.token for lease in leases)
        state = await locks.inspect("pool")
        assert len(state.holders) == 3
        assert (state.kind, state.capacity) == ("semaphore", 3)


async def test_readers_share_and_writers_do_not(url: str) -> None:
    async with holdfast.connect(url) as locks:
        book = locks.rwlock("book")
        first = await book.read().acquire()
        second = await book.read().acquire(timeout=10.0)
        assert await book.write().try_acquire() is None
        await first.release()
        await second.release()
        writer = await book.write().acquire(timeout=10.0)
        assert writer.token > max(first.token, second.token)
        assert await book.read().try_acquire() is None
        assert await book.write().try_acquire() is None


async def test_a_waiting_writer_is_not_starved_by_readers(url: str) -> None:
    async with holdfast.connect(url) as locks:
        book = locks.rwlock("x")
        reader = await book.read().acquire()
        line = Line(locks)
        await line.join("writer", book.write())
        await line.join("late reader 1", book.read())
        await line.join("late reader 2", book.read())
        assert line.served == []
        await reader.release()
        served = await line.finish()
        assert served[0] == "writer"


async def test_readers_behind_a_writer_are_admitted_together(url: str) -> None:
    async with holdfast.connect(url) as locks:
        book = locks.rwlock("x")
        writer = await book.write().acquire()
        readers = [Job(book.read().acquire) for _ in range(3)]

        async def waiting() -> bool:
            return await waiters(locks) == 3

        await eventually(waiting)
        await writer.release()
        leases = [await reader.result() for reader in readers]
        assert all(lease.held for lease in leases)
        if locks.guarantees.fair:
            assert len({writer.token, *[lease.token for lease in leases]}) == 4
        assert min(lease.token for lease in leases) > writer.token
        assert len((await locks.inspect("x")).holders) == 3


async def test_a_waiting_writer_that_gives_up_lets_the_readers_in(url: str) -> None:
    async with holdfast.connect(url) as locks:
        book = locks.rwlock("x")
        first = await book.read().acquire()
        writer = Job(book.write().try_acquire, 0.25)

        async def one_waits() -> bool:
            return await waiters(locks) == 1 or writer.done()

        await eventually(one_waits)
        reader = Job(book.read().acquire)
        assert await writer.result() is None
        assert (await reader.result()).held
        assert first.held


async def test_a_name_has_one_kind_and_capacity_at_a_time(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x").acquire()
        with pytest.raises(holdfast.ConfigError, match="in use as a lock"):
            await locks.semaphore("x", permits=2).acquire()
        with pytest.raises(holdfast.ConfigError, match="in use as a lock"):
            await locks.rwlock("x").read().try_acquire()
        assert await waiters(locks) == 0
        await lease.release()
        permit = await locks.semaphore("x", permits=2).acquire()
        with pytest.raises(holdfast.ConfigError, match="semaphore of 2 permits"):
            await locks.semaphore("x", permits=3).try_acquire()
        assert permit.held


async def taken(locks: holdfast.Locks, kind: str) -> holdfast.Lease | holdfast.MultiLease | None:
    """Takes `x` as that kind of lock, without waiting."""
    if kind == "once":
        return await locks.once("x", 20.0)
    if kind == "several":
        return await locks.multi(["w", "x"]).try_acquire()
    if kind == "election":
        return await locks.election("x").campaign(timeout=0.0)
    if kind == "semaphore":
        return await locks.semaphore("x", permits=2).try_acquire()
    if kind == "rwlock":
        return await locks.rwlock("x").read().try_acquire()
    return await locks.lock("x").try_acquire()


@pytest.mark.parametrize("kind", ["lock", "once", "election", "semaphore", "rwlock"])
async def test_each_kind_is_told_from_all_others(url: str, kind: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as elsewhere:
        lease = await taken(locks, kind)
        assert lease is not None
        await lease.renew()
        others = {"lock", "several", "once", "election", "semaphore", "rwlock"} - {kind}
        for other in others - ({"several"} if kind == "lock" else set()):
            with pytest.raises(holdfast.ConfigError, match="in use as"):
                await taken(elsewhere, other)
        assert (await elsewhere.inspect("x")).kind == kind
        assert [state.kind for state in await elsewhere.list("x")] == [kind]
        if isinstance(lease, holdfast.OnceLease):
            await lease.give_back()
        else:
            await lease.release()


async def test_many_waiters_on_many_locks(url: str) -> None:
    async with holdfast.connect(url) as locks:
        counts = dict.fromkeys("abcd", 0)

        async def work(name: str) -> None:
            for _ in range(5):
                async with locks.lock(name, timeout=20.0):
                    before = counts[name]
                    counts[name] = before + 1

        jobs = [Job(work, name) for name in "abcd" for _ in range(5)]
        for job in jobs:
            await job.result()
        assert counts == dict.fromkeys("abcd", 25)
        assert await locks.list() == []
