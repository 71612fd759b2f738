"""Several locks as one, on a line that is cut, loses answers or is silent."""

from __future__ import annotations

import pytest

from _async.line import scene
from holdfast import aio as holdfast
from worlds.aio import Job, eventually, pause

NAMES = ["a", "b", "c", "d"]


async def nothing_is_left(locks: holdfast.Locks) -> None:
    async def free() -> bool:
        return not await locks.list()

    await eventually(free)


@pytest.mark.parametrize("one_by_one", [False, True])
async def test_a_busy_one_leaves_none_of_the_others(one_by_one: bool) -> None:
    """Whether the store takes several in one step or not."""
    async with scene(f"memory://multi-busy-{one_by_one}") as there:
        there.line.one_by_one = one_by_one
        held = await there.others.lock("c").acquire()
        several = there.locks.multi(NAMES)
        assert await several.try_acquire() is None
        with pytest.raises(holdfast.LockTimeout, match="'c'" if one_by_one else "some of them"):
            await several.acquire(timeout=0)
        assert [state.name for state in await there.others.list()] == ["c"]
        await held.release()
        lease = await several.try_acquire()
        assert lease is not None
        assert await lease.release() is True
        await nothing_is_left(there.others)


@pytest.mark.parametrize("one_by_one", [False, True])
async def test_an_answer_that_was_lost_leaves_nothing(one_by_one: bool) -> None:
    async with scene(f"memory://multi-lost-{one_by_one}") as there:
        there.line.one_by_one = one_by_one
        there.line.lose.add("acquire")
        with pytest.raises(holdfast.BackendUnavailable, match="'a', 'b', 'c', 'd'"):
            await there.locks.multi(NAMES).acquire(timeout=5.0)
        await nothing_is_left(there.others)
        session = await there.locks._session()
        assert not session.leases
        assert not session.tickets


async def test_a_silent_store_is_given_its_time_once() -> None:
    """And not for each of the locks."""
    async with scene("memory://multi-silent") as there:
        lease = await there.locks.multi(NAMES).acquire()
        session = await there.locks._session()
        there.line.silent |= {"acquire", "release"}
        with pytest.raises(holdfast.BackendUnavailable):
            await there.locks.multi(["x", "y", "z"]).acquire(timeout=1.0)
        with pytest.raises(holdfast.BackendUnavailable, match="could not be given back"):
            await lease.release()
        assert sum(part._hold._releases for part in lease.leases.values()) == 1
        there.line.silent.clear()
        await lease.release()
        await nothing_is_left(there.others)
        await eventually(lambda: not session.leases and not session.tickets)


async def test_leaving_with_an_unreachable_store_does_not_raise() -> None:
    async with scene("memory://multi-cut") as there:
        async with there.locks.multi(["a", "b"]):
            there.line.cut = True
        assert "release_failed" in there.kinds()
        there.line.cut = False


async def test_a_store_that_does_not_answer_loses_the_whole_at_its_end() -> None:
    async with scene("memory://multi-end", heartbeat=0.1) as there:
        lease = await there.locks.multi(["a", "b"], ttl=1.5).acquire()
        told: list[object] = []
        lease.on_lost(told.append)
        there.line.cut = True
        assert await lease.wait_lost(20.0) is True
        await eventually(lambda: told == [lease])
        with pytest.raises(holdfast.LeaseLost):
            lease.ensure()
        lost = [event.name for event in there.events if event.kind == "lost"]
        assert sorted(lost) == ["a", "b"]


async def test_max_hold_tells_the_body_and_waits_for_its_end() -> None:
    async with scene("memory://multi-max") as there:
        order: list[str] = []

        async def body() -> None:
            async with there.locks.multi(["a", "b"], max_hold=1.5) as lease:
                order.append("in")
                try:
                    await lease.wait_lost(20.0)
                    await pause(0.3)
                finally:
                    await pause(0.3)
                    order.append("out")

        async def rival(name: str) -> None:
            await there.others.lock(name).acquire()
            order.append("rival")

        job = Job(body)
        await eventually(lambda: order)
        rivals = [Job(rival, name) for name in ("a", "b")]
        error = await job.error()
        assert isinstance(error, holdfast.LeaseLost)
        assert "max_hold" in str(error)
        for one in rivals:
            await one.result()
        assert order == ["in", "out", "rival", "rival"]


async def test_a_lease_that_is_not_renewed_is_not_used_up_by_waiting() -> None:
    async with scene("memory://multi-unrenewed") as there:
        held = await there.others.lock("b").acquire()
        job = Job(there.locks.multi(["a", "b"], ttl=1.5, renew=False).acquire)
        await pause(1.0)
        await held.release()
        lease = await job.result()
        assert lease.remaining() > 0.5
        await lease.release()


async def test_a_lease_that_nobody_got_is_given_back() -> None:
    """An exception came between the grant and the caller."""
    async with scene("memory://multi-dropped") as there:
        lease: object = await there.locks.multi(["a", "b"]).acquire()
        assert isinstance(lease, holdfast.MultiLease)
        lease._hold._usage.given = False
        del lease
        await nothing_is_left(there.others)


@pytest.mark.parametrize("given", [True, False])
async def test_the_others_are_seen_to_when_one_was_released_alone(given: bool) -> None:
    async with scene("memory://multi-alone") as there:
        lease: object = await there.locks.multi(["a", "b", "c"]).acquire()
        assert isinstance(lease, holdfast.MultiLease)
        assert await lease.leases["a"].release()
        lease._hold._usage.given = given
        if given:
            with pytest.warns(ResourceWarning, match="'b'") as warned:
                del lease
            assert len(warned) == 2
        else:
            del lease
            await nothing_is_left(there.others)


async def test_a_lease_that_is_dropped_is_warned_of() -> None:
    async with scene("memory://multi-warned") as there:
        lease: object = await there.locks.multi(["a"]).acquire()
        with pytest.warns(ResourceWarning, match="'a'"):
            del lease
