"""Ends that come at the moment of something else: of a permit, a term, a lease that is passed on."""

from __future__ import annotations

from contextlib import suppress

import pytest

from holdfast import aio as holdfast
from holdfast._async import closing
from worlds.aio import PATIENCE, Job, eventually


async def test_two_cannot_adopt_one_lease(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as elsewhere:
        lease = await locks.lock("x").acquire()
        text = await lease.export()
        jobs = [Job(side.adopt, text) for side in (locks, elsewhere)]
        errors = [await job.error() for job in jobs]
        (lost,) = [error for error in errors if error is not None]
        assert isinstance(lost, holdfast.LeaseLost)
        (heir,) = [job for job, error in zip(jobs, errors, strict=True) if error is None]
        adopted = await heir.result()
        assert adopted.token > lease.token
        assert [holder.owner for holder in (await locks.inspect("x")).holders] == [adopted.owner]
        assert await adopted.release() is True
        assert (await locks.inspect("x")).holders == ()


async def test_a_lease_is_adopted_while_it_is_ended_by_force(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as elsewhere:
        lease = await locks.lock("x", ttl=60.0).acquire()
        heir = Job(locks.adopt, await lease.export())
        await elsewhere.force_release("x")
        error = await heir.error()
        if error is None:
            adopted = await heir.result()
            assert adopted.token > lease.token
            await adopted.release()
        else:
            assert isinstance(error, holdfast.LeaseLost)
        following = await elsewhere.lock("x").acquire(timeout=15.0)
        assert following.token > lease.token
        await following.release()


async def test_permits_are_released_while_their_manager_closes(url: str) -> None:
    async with holdfast.connect(url) as elsewhere:
        locks = holdfast.connect(url)
        permits = [await locks.semaphore("x", permits=3).acquire() for _ in range(3)]
        jobs = [Job(permit.release) for permit in permits]
        await locks.close()
        for job in jobs:
            error = await job.error()
            assert error is None or isinstance(error, holdfast.LockError)
        again = [await elsewhere.semaphore("x", permits=3).acquire(timeout=15.0) for _ in range(3)]
        for permit in again:
            assert await permit.release() is True


async def test_a_term_ends_with_its_manager_when_its_work_has_ended(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "BODY_LIMIT", PATIENCE)  # the store is asked meanwhile
    async with holdfast.connect(url) as elsewhere:
        locks = holdfast.connect(url)
        term = await locks.election("chief").campaign()
        begun: list[bool] = []
        led: list[int] = []

        async def work() -> None:
            async with term:
                begun.append(True)
                with suppress(BaseException):  # in asyncio it is cancelled here
                    await eventually(lambda: not term.held)
                leader = await elsewhere.election("chief").leader()
                led.append(leader.token if leader is not None else 0)

        working = Job(work)
        await eventually(lambda: begun)
        candidate = Job(elsewhere.election("chief").campaign)
        await locks.close()
        assert led == [term.token]
        with pytest.raises(holdfast.LeaseLost, match="closed"):
            await working.result()
        following = await candidate.result()
        assert following.token > term.token
        await following.resign()
