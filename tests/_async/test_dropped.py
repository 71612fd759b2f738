"""Leases and managers that are dropped: a warning says so, as for a file that nobody closed."""

from __future__ import annotations

import gc
import warnings

import pytest

from _async.renewals import renewed
from holdfast import aio as holdfast
from worlds.aio import eventually


def drop(things: list[object]) -> None:
    things.clear()
    gc.collect()


async def test_a_lease_that_is_dropped_is_warned_of_and_goes_on(url: str) -> None:
    """Programs that run once at a time take a lock, and hold it until they end."""
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x").acquire()
        owner = lease.owner
        things: list[object] = [lease]
        del lease
        with pytest.warns(ResourceWarning, match="the lease on 'x' .* was dropped"):
            drop(things)
        await renewed(await locks._session(), owner)
        await renewed(await locks._session(), owner)
        async with holdfast.connect(url) as others:
            assert await others.lock("x").try_acquire() is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with holdfast.connect(url) as others:
            lease = await others.lock("x").acquire(10.0)
            await lease.release()


async def test_a_lease_with_a_callback_is_warned_of_and_the_callback_called(url: str) -> None:
    """The engine keeps the callback, and not the lease: nobody could release it any more."""
    told: list[holdfast.Lease] = []
    async with holdfast.connect(url) as locks:
        election = locks.election("x")
        things: list[object] = [await election.campaign()]
        things[0].on_lost(told.append)  # type: ignore[attr-defined]
        with pytest.warns(ResourceWarning, match="the lease on 'x' .* was dropped"):
            drop(things)
        assert not told
    assert [(one.name, one.state) for one in told] == [("x", "lost")]
    assert isinstance(told[0], holdfast.Term)


async def test_a_lease_that_its_callback_keeps_is_not_warned_of(url: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with holdfast.connect(url) as locks:
            told: list[object] = []
            lease = await locks.lock("x").acquire()
            lease.on_lost(lambda _, lease=lease: told.append(lease))  # type: ignore[misc]
            kept = id(lease)
            del lease
            gc.collect()
        assert [id(one) for one in told] == [kept]


async def test_what_is_not_dropped_is_not_warned_of(url: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        locks = holdfast.connect(url)
        async with locks.lock("a"):
            pass
        async with await locks.lock("b").acquire():
            pass
        lease = await locks.lock("c").acquire()
        await lease.release()
        del lease
        await locks.lock("d", ttl=1.0, renew=False).acquire()
        again = await locks.rlock("f").acquire()
        assert await locks.rlock("f").acquire() is again
        await again.release()
        await again.release()
        gc.collect()
        await locks.close()
        del locks
        gc.collect()


async def test_a_manager_that_is_dropped_is_warned_of_and_lets_go(url: str) -> None:
    locks = holdfast.connect(url)
    await locks.inspect("x")
    session = locks._live
    assert session is not None
    things: list[object] = [locks]
    del locks
    with pytest.warns(ResourceWarning, match="was dropped and never closed"):
        drop(things)
    await eventually(lambda: session.finished)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_manager_that_is_dropped_lets_go_where_warnings_are_errors(url: str) -> None:
    locks = holdfast.connect(url)
    await locks.inspect("x")
    session = locks._live
    assert session is not None
    things: list[object] = [locks]
    del locks
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drop(things)
    await eventually(lambda: session.finished)


async def test_a_manager_whose_lease_is_in_use_is_in_use(url: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lease = await holdfast.connect(url).lock("x").acquire()
        gc.collect()
        session = lease._hold._session
        await renewed(session, lease.owner)
        assert lease.held
        await lease.release()
    things: list[object] = [lease]
    del lease
    with pytest.warns(ResourceWarning, match="was dropped and never closed"):
        drop(things)
    await eventually(lambda: session.finished)


async def test_a_manager_that_was_never_used_is_not_warned_of(url: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        holdfast.connect(url).lock("x")
        gc.collect()


async def test_leases_whose_manager_is_dropped_too_go_on(url: str) -> None:
    lease = await holdfast.connect(url).lock("x").acquire()
    session, owner = lease._hold._session, lease.owner
    things: list[object] = [lease]
    del lease
    with pytest.warns(ResourceWarning, match="was dropped"):
        drop(things)
    await renewed(session, owner)
    await renewed(session, owner)
    async with holdfast.connect(url) as others:
        assert await others.lock("x").try_acquire() is None
        await others.force_release("x")
        assert await others.lock("x").try_acquire(10.0) is not None
    await session.close()
