"""Giving a lease away (`export`, `adopt`), a writer that becomes a reader, a lock that stays closed."""

from __future__ import annotations

import pytest

from holdfast import aio as holdfast
from holdfast.fences import MemoryFence
from worlds.aio import Job, eventually


async def test_a_lease_is_given_away(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as elsewhere:
        lease = await locks.lock("x").acquire()
        text = await lease.export()
        assert not lease.held
        assert lease.state == "released"
        assert await lease.release() is False
        assert await elsewhere.lock("x").try_acquire() is None  # never free in between
        adopted = await elsewhere.adopt(text)
        assert adopted.held
        assert adopted.token > lease.token
        assert (adopted.name, adopted.kind) == ("x", "lock")
        assert adopted.ttl == pytest.approx(lease.ttl, abs=1.0)
        with pytest.raises(holdfast.LeaseLost):
            await elsewhere.adopt(text)  # once only
        assert adopted.held
        assert await adopted.release() is True


async def test_the_givers_late_writes_are_stale(url: str) -> None:
    fence = MemoryFence()
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x").acquire()
        token = lease.token
        adopted = await locks.adopt(await lease.export())
        fence.guard("row", adopted.token)
        with pytest.raises(holdfast.StaleToken):
            fence.guard("row", token)
        await adopted.release()


async def test_a_lease_that_is_given_away_outlives_its_manager(url: str) -> None:
    async with holdfast.connect(url) as elsewhere:
        async with holdfast.connect(url) as locks:
            text = await (await locks.lock("x").acquire()).export()
        assert (await elsewhere.inspect("x")).held
        async with await elsewhere.adopt(text) as adopted:
            assert adopted.held
        assert not (await elsewhere.inspect("x")).held


async def test_what_is_not_adopted_ends_with_its_ttl(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x", ttl=1.0).acquire()
        text = await lease.export()
        following = await locks.lock("x").acquire(timeout=30.0)
        assert following.token > lease.token
        with pytest.raises(holdfast.LeaseLost):
            await locks.adopt(text)
        assert following.held
        await following.release()


async def test_a_waiter_waits_for_the_adopter(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as elsewhere:
        lease = await locks.lock("x").acquire()
        waiter = Job(locks.lock("x").acquire)

        async def waits() -> bool:
            return not locks.guarantees.fair or bool((await locks.inspect("x")).waiters)

        await eventually(waits)
        adopted = await elsewhere.adopt(await lease.export())
        assert adopted.held
        assert [one.owner for one in (await locks.inspect("x")).holders] == [adopted.owner]
        await adopted.release()
        following = await waiter.result()
        assert following.token > adopted.token
        await following.release()


async def test_inside_a_body_the_rest_of_it_holds_nothing(url: str) -> None:
    async with holdfast.connect(url) as locks:
        async with locks.lock("x") as lease:
            text = await lease.export()
            with pytest.raises(holdfast.LeaseLost):
                lease.ensure()
        adopted = await locks.adopt(text)  # leaving the body has not released it
        await adopted.release()


async def test_a_lost_lease_cannot_be_given_away(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x").acquire()
        await locks.force_release("x")
        with pytest.raises(holdfast.LeaseLost):
            await lease.export()


async def test_a_permit_and_a_term_are_given_away(url: str) -> None:
    async with holdfast.connect(url) as locks:
        permits = [await locks.semaphore("s", permits=3).acquire() for _ in range(3)]
        adopted = await locks.adopt(await permits[1].export())
        assert adopted.kind == "semaphore"
        assert adopted.slot == permits[1].slot
        term = await locks.election("e", "first").campaign()
        following = await locks.adopt(await term.export())
        assert isinstance(following, holdfast.Term)
        leader = await locks.election("e").leader()
        assert leader is not None
        assert leader.token == following.token > term.token
        assert leader.holders[0].label.text == "first"
        await following.resign()


async def test_texts_that_are_no_lease_are_refused(url: str) -> None:
    async with holdfast.connect(url, namespace="one") as locks:
        text = await (await locks.lock("x").acquire()).export()
        for bad in ("", "x", text[:-3], text[:20], text + "!", text.upper(), 7, None, b"x"):
            with pytest.raises(holdfast.ConfigError):
                await locks.adopt(bad)  # type: ignore[arg-type]
        async with holdfast.connect(url, namespace="two") as other:
            with pytest.raises(holdfast.ConfigError, match="namespace"):
                await other.adopt(text)
        adopted = await locks.adopt(text)
        await adopted.release()


# Writers that become readers.


async def test_a_writer_becomes_a_reader(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as elsewhere:
        rwlock = locks.rwlock("x")
        lease = await rwlock.write().acquire()
        token = lease.token
        assert not lease.shared
        reader = Job(elsewhere.rwlock("x").read().acquire)
        await lease.downgrade()
        assert lease.shared
        assert lease.token == token
        reading = await reader.result()
        assert lease.held
        assert reading.held
        assert await rwlock.write().try_acquire() is None
        await lease.downgrade()  # again: nothing changes
        await reading.release()
        await lease.release()
        async with rwlock.write() as writing:
            assert writing.token > token


async def test_a_reader_does_not_become_a_writer(url: str) -> None:
    async with holdfast.connect(url) as locks:
        async with locks.rwlock("x").read() as lease:
            with pytest.raises(holdfast.GuaranteeError, match="for ever"):
                lease.upgrade()
            assert lease.held
        async with locks.lock("y") as lease:
            with pytest.raises(holdfast.ConfigError, match="writer"):
                await lease.downgrade()


async def test_a_lost_writer_does_not_become_a_reader(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.rwlock("x").write().acquire()
        await locks.force_release("x")
        with pytest.raises(holdfast.LeaseLost):
            await lease.downgrade()
        assert not lease.held


# Locks that stay closed after an expiry.


async def test_a_lock_stays_closed_after_an_expiry(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as elsewhere:
        lease = await locks.lock("x", ttl=1.0, renew=False, lock_delay=3.0).acquire()
        assert lease.ttl <= 2.0
        clock = lease._hold._session.clock
        granted = clock.now()
        assert await lease.wait_lost(timeout=20.0) is True
        lost = clock.now()
        assert lost < granted + 2.5
        following = await elsewhere.lock("x").acquire(timeout=60.0)
        assert clock.now() >= granted + 4.0 - 0.2
        assert following.token > lease.token
        await following.release()


async def test_a_release_opens_it_at_once(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x", ttl=2.0, lock_delay=20.0).acquire()
        await lease.renew()
        assert lease.ttl <= 3.0
        assert await lease.release() is True
        following = await locks.lock("x").try_acquire()
        assert following is not None
        await following.release()


async def test_a_waiter_with_a_delay_is_handed_the_lock(url: str) -> None:
    async with holdfast.connect(url) as locks:
        first = await locks.lock("x").acquire()
        waiter = Job(locks.lock("x", ttl=5.0, lock_delay=5.0).acquire)

        async def waits() -> bool:
            return not locks.guarantees.fair or bool((await locks.inspect("x")).waiters)

        await eventually(waits)
        await first.release()
        lease = await waiter.result()
        await lease.renew()
        assert lease.remaining() <= 6.0
        assert (await locks.inspect("x")).holders[0].remaining > 6.0
        await lease.release()


async def test_delays_that_make_no_sense_are_refused() -> None:
    locks = holdfast.connect("memory://")
    for bad in (-1.0, True, "5", float("inf"), 10.0**9):
        with pytest.raises(holdfast.ConfigError):
            locks.lock("x", lock_delay=bad)  # type: ignore[arg-type]
