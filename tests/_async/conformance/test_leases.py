"""A lease while it is held, and when it ends under its holder."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from holdfast import aio as holdfast
from worlds.aio import Job, eventually


async def test_a_held_lease_is_renewed_by_itself(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x", ttl=6.0).acquire()
        renewals: list[holdfast.Event] = []
        locks.on_event(renewals.append)
        await eventually(lambda: [e.kind for e in renewals].count("renewed") >= 1)
        assert lease.held
        assert lease.state == "held"
        session = await locks._session()
        for _ in range(3):  # and again, without waiting until it is due
            renewals.clear()
            session.look_at([lease.owner])
            await eventually(lambda: [e.kind for e in renewals].count("renewed") >= 1)
        assert lease.held
        assert (await locks.inspect("x")).token == lease.token


async def test_without_renewal_it_ends_by_itself(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x", ttl=0.1, renew=False).acquire(timeout=10.0)
        await eventually(lambda: not lease.held)
        assert lease.state == "lost"
        with pytest.raises(holdfast.LeaseLost) as raised:
            lease.ensure()
        assert raised.value.token == lease.token
        assert raised.value.lost_at is not None
        with pytest.raises(holdfast.LeaseLost):
            await lease.renew()


async def test_it_ends_for_us_before_it_ends_at_the_store(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x", ttl=30.0, renew=False).acquire()
        state = await locks.inspect("x")
        # Asked later, the store still gives it longer than we count on.
        assert lease.remaining() < state.holders[0].remaining


async def test_renew_makes_it_longer_and_never_shorter(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x", ttl=5.0).acquire()
        if not locks.guarantees.renew_ttl:
            with pytest.raises(holdfast.GuaranteeError, match="acquire it with that ttl"):
                await lease.renew(ttl=60.0)
            await lease.renew(ttl=1.0)
            assert lease.remaining() > 2.0
            return
        await lease.renew(ttl=60.0)
        assert lease.ttl == 60.0
        assert lease.remaining() > 50.0
        assert (await locks.inspect("x")).holders[0].remaining > 50.0
        await lease.renew(ttl=5.0)
        assert lease.remaining() > 50.0
        assert (await locks.inspect("x")).holders[0].remaining > 50.0


async def test_ensure_can_ask_for_time_to_come(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x", ttl=5.0).acquire()
        lease.ensure(at_least=1.0)
        with pytest.raises(holdfast.LeaseLost, match="only"):
            lease.ensure(at_least=30.0)
        assert lease.held


async def test_max_hold_ends_it_whatever_happens(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x", ttl=30.0, max_hold=0.4).acquire(timeout=10.0)
        with contextlib.suppress(holdfast.LeaseLost):
            await lease.renew()  # in vain, or too late already
        assert lease.remaining() <= 0.4
        assert await lease.wait_lost(timeout=10.0) is True
        with pytest.raises(holdfast.LeaseLost, match="max_hold"):
            lease.ensure()
        assert (await locks.lock("x").acquire(timeout=10.0)).token > lease.token


async def test_max_hold_frees_the_store_at_once(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x", ttl=30.0, max_hold=0.2).acquire(timeout=10.0)
        assert lease.remaining() <= 0.2
        await lease.wait_lost(timeout=10.0)

        async def free() -> bool:
            return not (await locks.inspect("x")).held

        await eventually(free)


async def test_on_lost_is_called_once(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x", ttl=0.1, renew=False).acquire(timeout=10.0)
        calls: list[object] = []
        lease.on_lost(calls.append)
        await eventually(lambda: calls)
        assert calls == [lease]
        lease.on_lost(calls.append)
        assert calls == [lease, lease]
        assert not lease.held


async def test_on_lost_is_not_called_for_a_release(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x").acquire()
        calls: list[object] = []
        lease.on_lost(calls.append)
        await lease.release()
        lease.on_lost(calls.append)
        assert calls == []


async def test_a_callback_that_fails_harms_nobody(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x", ttl=0.1, renew=False).acquire(timeout=10.0)
        calls: list[object] = []

        def bad(lost: object) -> None:
            raise RuntimeError("mine")

        lease.on_lost(bad)
        lease.on_lost(calls.append)
        await eventually(lambda: calls)
        assert "on_lost callback" in caplog.text


async def test_wait_lost(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x", ttl=30.0).acquire()
        assert await lease.wait_lost(timeout=0.02) is False
        job = Job(lease.wait_lost)
        await locks.force_release("x")
        with pytest.raises(holdfast.LeaseLost):
            await lease.renew()
        assert await job.result() is True
        released = await locks.lock("x").acquire()
        job = Job(released.wait_lost)
        await released.release()
        assert await job.result() is False


async def test_a_loss_is_noticed_by_the_keeper(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x").acquire()
        await locks.force_release("x")
        (await locks._session()).look_at([lease.owner])  # rather than wait until it is due
        assert await lease.wait_lost(timeout=10.0) is True
        with pytest.raises(holdfast.LeaseLost, match="ended"):
            lease.ensure()


async def test_leaving_with_after_a_loss_raises(url: str) -> None:
    async with holdfast.connect(url) as locks:
        with pytest.raises(holdfast.LeaseLost) as raised:
            async with locks.lock("x") as lease:
                await locks.force_release("x")
        assert raised.value.token == lease.token
        assert raised.value.lost_at is not None


async def test_leaving_with_after_a_loss_does_not_hide_the_bodys_exception(url: str) -> None:
    async with holdfast.connect(url) as locks:

        async def work() -> None:
            async with locks.lock("x"):
                await locks.force_release("x")
                raise KeyError("mine")

        with pytest.raises(KeyError) as raised:
            await work()
        assert "lost" in raised.value.__notes__[0]


async def test_a_release_inside_the_body_is_no_loss(url: str) -> None:
    async with holdfast.connect(url) as locks:
        async with locks.lock("x") as lease:
            await lease.release()
            rival = await locks.lock("x").acquire()
        assert rival.held


# unasync: aio-only
async def test_losing_the_lease_cancels_the_body(url: str) -> None:
    async with holdfast.connect(url) as locks:
        reached = False

        async def work() -> None:
            nonlocal reached
            async with locks.lock("x", ttl=0.2, renew=False, timeout=10.0):
                await asyncio.sleep(30.0)
                reached = True

        with pytest.raises(holdfast.LeaseLost):
            await work()
        assert not reached
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)


async def test_a_cancellation_from_outside_stays_one(url: str) -> None:
    async with holdfast.connect(url) as locks:
        entered = asyncio.Event()

        async def work() -> None:
            async with locks.lock("x"):
                entered.set()
                await asyncio.sleep(30.0)

        task = asyncio.create_task(work())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not (await locks.inspect("x")).held


async def test_a_cancellation_from_outside_wins_over_the_loss(url: str) -> None:
    async with holdfast.connect(url) as locks:

        async def work() -> None:
            async with locks.lock("x", ttl=1.5) as lease:
                lease.on_lost(lambda lost: task.cancel())
                await locks.force_release("x")  # noticed at the next renewal
                await asyncio.sleep(30.0)

        task = asyncio.create_task(work())
        await asyncio.wait({task})
        assert task.cancelled()


# unasync: end
