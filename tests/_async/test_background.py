"""Work in the background outlives whatever happens to its task or thread."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import pytest

from _async.renewals import heard, renewed
from holdfast import aio as holdfast
from worlds.aio import eventually


async def session_of(locks: holdfast.Locks) -> Any:
    return await locks._session()


async def test_a_keeper_that_failed_begins_anew(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with holdfast.connect(url) as locks:
        session = await session_of(locks)
        keeper = session.keeper
        lease = await locks.lock("x").acquire()
        renew = keeper._renew
        failed: list[object] = []

        async def fail(some: object) -> None:
            if not failed:
                failed.append(some)
                raise RuntimeError("on purpose")
            await renew(some)

        keeper._renew = fail
        await renewed(session, lease.owner)
        assert failed
        assert lease.held
        assert "on purpose" in caplog.text


# unasync: aio-only
def cancel_all_others() -> None:
    import asyncio

    for task in asyncio.all_tasks():
        if task is not asyncio.current_task():
            task.cancel()


async def test_leases_are_renewed_after_all_tasks_were_cancelled(url: str) -> None:
    async with holdfast.connect(url) as locks:
        session = await session_of(locks)
        first = await locks.lock("x", ttl=4.0).acquire()
        await eventually(lambda: first._hold._kept)
        kinds = heard(session, first.owner)
        cancel_all_others()
        await eventually(lambda: "renewed" in kinds)  # when that is due
        for _ in range(2):
            cancel_all_others()
            await renewed(session, first.owner)
        second = await locks.lock("y").acquire()
        await renewed(session, second.owner)
        assert first.held


async def test_a_renewal_that_was_cancelled_is_sent_again(url: str) -> None:
    import asyncio

    async with holdfast.connect(url) as locks:
        session = await session_of(locks)
        asked: list[object] = []
        renew = session.backend.renew

        async def cancelled(claims: object, deadline: float) -> Any:
            asked.append(claims)
            if len(asked) == 1:
                await asyncio.sleep(60.0)
            return await renew(claims, deadline)

        session.backend.renew = cancelled
        lease = await locks.lock("x").acquire()
        kinds = heard(session, lease.owner)
        session.look_at([lease.owner])
        await eventually(lambda: asked)
        cancel_all_others()
        await eventually(lambda: "renewed" in kinds)
        assert lease.held


async def test_observers_see_what_comes_after_all_tasks_were_cancelled(url: str) -> None:
    import asyncio

    async with holdfast.connect(url) as locks, holdfast.connect(url) as elsewhere:
        session = await session_of(elsewhere)
        async with aclosing(elsewhere.election("chief").observe()) as changes:
            assert await anext(changes) is None
            for number in range(3):
                other = asyncio.create_task(_first_of(elsewhere))
                await eventually(lambda: len(session.observers) == 2)
                cancel_all_others()
                await asyncio.wait({other})
                assert other.cancelled()
                term = await locks.election("chief", f"leader {number}").campaign()
                state = await anext(changes)
                assert state is not None
                assert state.token == term.token
                cancel_all_others()
                await term.resign()
                assert await anext(changes) is None
                assert len(session.observers) == 1


async def _first_of(locks: holdfast.Locks) -> None:
    """Observes an election in which nobody is elected."""
    async with aclosing(locks.election("nobody").observe()) as changes:
        async for _ in changes:
            pass


async def test_a_body_whose_loop_cancels_everything_frees_its_lock(url: str) -> None:
    import asyncio

    async with holdfast.connect(url) as others:
        locks = holdfast.connect(url)

        async def body() -> None:
            async with locks.lock("x", ttl=30.0):
                await asyncio.sleep(60.0)

        tasks = [asyncio.create_task(body())]

        async def held() -> bool:
            return (await others.inspect("x")).held

        await eventually(held)
        cancel_all_others()
        await asyncio.wait(tasks)
        assert await others.lock("x").try_acquire(5.0) is not None
        await locks.close()


async def test_a_close_that_was_cancelled_with_all_else_frees_everything(url: str) -> None:
    import asyncio

    async with holdfast.connect(url) as others:
        locks = holdfast.connect(url)
        leases = [await locks.lock(f"x{number}", ttl=30.0).acquire() for number in range(20)]
        closing = asyncio.create_task(locks.close())
        await asyncio.sleep(0)
        cancel_all_others()
        await asyncio.wait({closing})
        for number in range(20):
            assert await others.lock(f"x{number}").try_acquire(5.0) is not None
        assert not any(lease.held for lease in leases)


async def test_a_close_finishes_what_one_that_was_cancelled_twice_has_left(url: str) -> None:
    import asyncio

    async with holdfast.connect(url) as others:
        locks = holdfast.connect(url)
        leases = [await locks.lock(f"x{number}", ttl=60.0).acquire() for number in range(20)]
        closing = [asyncio.create_task(locks.close()) for _ in range(2)]
        for _ in range(2):
            await asyncio.sleep(0.001)
            cancel_all_others()
        async with asyncio.timeout(25.0):
            await locks.close()
            await asyncio.wait(closing)
        assert not any(lease.held for lease in leases)
        for number in range(20):
            assert await others.lock(f"x{number}").try_acquire() is not None


@pytest.mark.filterwarnings("ignore:the manager of locks at:ResourceWarning")
def test_a_loop_that_ends_leaves_no_word(capfd: pytest.CaptureFixture[str]) -> None:
    import asyncio
    import gc

    async def program() -> None:
        locks = holdfast.connect("memory://ends")
        await locks.lock("x", ttl=3.0).acquire()

    asyncio.run(program(), debug=True)
    gc.collect()
    assert capfd.readouterr().err == ""


# unasync: end
