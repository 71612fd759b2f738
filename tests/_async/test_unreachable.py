"""A store that does not answer, answers late, or whose answers and wake-ups are lost.

The faults are made between the engine and a real backend, so that every case can be had exactly; the
faults of real stores and processes are in `tests/faults`.
"""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from _async.line import scene
from holdfast import aio as holdfast
from worlds.aio import Job, eventually, pause


async def test_a_lease_that_cannot_be_renewed_is_uncertain_and_ends_first_for_us(url: str) -> None:
    async with scene(url) as s:
        lease = await s.locks.lock("x").acquire()
        s.line.cut = True
        await s.look_at(lease)
        await eventually(lambda: lease.state == "uncertain")
        assert lease.held

        async def ours_ends_first() -> bool:
            left = lease.remaining()  # asked first: a slow answer can only make the store's less
            (holder,) = (await s.others.inspect("x")).holders
            return holder.owner == lease.owner and 0 < left < holder.remaining

        await eventually(ours_ends_first)
        assert s.kinds().count("uncertain") == 1


async def test_a_lease_that_cannot_be_renewed_is_lost_by_our_own_clock(url: str) -> None:
    async with scene(url) as s:
        lease = await s.locks.lock("x", ttl=0.3).acquire(timeout=10.0)
        lost: list[object] = []
        lease.on_lost(lost.append)
        s.line.cut = True
        await eventually(lambda: lost)
        assert not lease.held
        with pytest.raises(holdfast.LeaseLost, match="before a renewal was answered"):
            lease.ensure()
        assert s.kinds().count("lost") == 1


async def test_a_renewal_that_succeeds_in_the_end_makes_it_certain_again(url: str) -> None:
    async with scene(url) as s:
        lease = await s.locks.lock("x").acquire()
        left = lease.remaining()
        s.line.cut = True
        await s.look_at(lease)
        await eventually(lambda: lease.state == "uncertain")
        assert lease.remaining() < left
        s.line.cut = False
        await s.look_at(lease)
        await eventually(lambda: lease.state == "held")
        assert lease.held


async def test_an_explicit_renewal_that_is_not_answered_says_so(url: str) -> None:
    async with scene(url) as s:
        lease = await s.locks.lock("x").acquire()
        s.line.cut = True
        with pytest.raises(holdfast.BackendUnavailable):
            await lease.renew()
        assert lease.held


async def test_nothing_is_granted_that_is_not_answered(url: str) -> None:
    async with scene(url) as s:
        s.line.cut = True
        with pytest.raises(holdfast.BackendUnavailable):
            await s.locks.lock("x").acquire(timeout=5.0)
        with pytest.raises(holdfast.BackendUnavailable):
            await s.locks.lock("x").try_acquire()


async def test_a_grant_whose_answer_was_lost_leaves_no_ghost(url: str) -> None:
    async with scene(url) as s:
        s.line.lose.add("acquire")
        with pytest.raises(holdfast.BackendUnavailable, match="lost"):
            await s.locks.lock("x").acquire()
        assert not (await s.others.inspect("x")).held
        assert await s.others.lock("x").try_acquire() is not None


async def test_leaving_with_while_the_store_is_gone_does_not_raise(url: str) -> None:
    async with scene(url) as s:
        async with s.locks.lock("x") as lease:
            s.line.cut = True
        assert s.kinds()[-1] == "release_failed"
        s.line.cut = False
        # Not renewed any more: the TTL frees it.
        assert not lease._hold._kept


async def test_an_explicit_release_raises_and_may_be_repeated(url: str) -> None:
    async with scene(url) as s:
        lease = await s.locks.lock("x").acquire()
        s.line.cut = True
        with pytest.raises(holdfast.BackendUnavailable):
            await lease.release()
        s.line.cut = False
        assert await lease.release() is True
        assert await lease.release() is False


async def test_a_release_whose_answer_was_lost_was_a_release(url: str) -> None:
    async with scene(url) as s:
        lease = await s.locks.lock("x").acquire()
        s.line.lose.add("release")
        with pytest.raises(holdfast.BackendUnavailable):
            await lease.release()
        rival = await s.others.lock("x").acquire(timeout=5.0)
        assert not lease.held
        assert lease.state == "uncertain"
        with pytest.raises(holdfast.LeaseLost, match="it is being released"):
            lease.ensure()
        with pytest.raises(holdfast.LeaseLost, match="it is being released"):
            await lease.renew()
        assert await lease.release() is True
        assert rival.held
        assert (await s.others.inspect("x")).token == rival.token


async def test_a_writer_whose_downgrade_is_not_answered_counts_as_a_reader(url: str) -> None:
    async with scene(url) as s:
        lease = await s.locks.rwlock("x").write().acquire()
        s.line.lose.add("amend")
        with pytest.raises(holdfast.BackendUnavailable, match="counts as one"):
            await lease.downgrade()
        reader = await s.others.rwlock("x").read().acquire(timeout=20.0)
        assert lease.shared
        await lease.downgrade()
        assert lease.held
        assert reader.held


async def test_a_release_during_an_export_that_fails_frees_it(url: str) -> None:
    async with scene(url) as s:
        lease = await s.locks.lock("x", ttl=60.0).acquire()
        line: Any = s.line

        async def detach(*args: object) -> bool:
            assert await lease.release() is False
            raise holdfast.BackendUnavailable("the line is cut")

        line.detach = detach
        with pytest.raises(holdfast.BackendUnavailable, match="could not be detached"):
            await lease.export()
        assert await s.others.lock("x").try_acquire(20.0) is not None
        assert not lease.held


@pytest.mark.parametrize("fails", [True, False])
async def test_close_waits_for_an_export_that_is_under_way(url: str, fails: bool) -> None:
    async with scene(url) as s:
        lease = await s.locks.lock("x", ttl=60.0).acquire()
        session: Any = await s.locks._session()
        line: Any = s.line
        detach = line._backend.detach
        began: list[bool] = []

        async def slowly(*args: object) -> bool:
            began.append(True)
            await eventually(lambda: session.closed)
            await pause(0.05)  # while it goes on, as far as that
            if fails:
                raise holdfast.BackendUnavailable("the line is cut")
            detached: bool = await detach(*args)
            return detached

        line.detach = slowly
        exporting = Job(lease.export)
        await eventually(lambda: began)
        await s.locks.close()
        if fails:
            assert isinstance(await exporting.error(), holdfast.BackendUnavailable)
            assert await s.others.lock("x").try_acquire(20.0) is not None
        else:
            adopted = await s.others.adopt(await exporting.result())
            assert await adopted.release() is True


async def test_what_was_perhaps_detached_is_not_left_behind(url: str) -> None:
    async with scene(url) as s:
        for kind in (s.locks.lock("x", ttl=60.0), s.locks.semaphore("s", permits=1, ttl=60.0)):
            lease = await kind.acquire(timeout=10.0)
            s.line.lose.add("detach")
            with pytest.raises(holdfast.BackendUnavailable, match="could not be detached"):
                await lease.export()
            s.events.clear()
            await s.look_at(lease)
            await eventually(lambda: {"renewed", "lost"} & set(s.kinds()))
            assert await lease.release() is ("renewed" in s.kinds())
            following = await kind.acquire(timeout=20.0)
            assert following.token > lease.token
            await following.release()


async def test_a_slot_that_was_perhaps_kept_is_not_held(url: str) -> None:
    async with scene(url) as s:
        lease = await s.locks.once("x", 60.0)
        assert lease is not None
        s.line.lose.add("detach")
        with pytest.raises(holdfast.BackendUnavailable, match="could not be detached"):
            await lease.release()
        assert not lease.held
        with pytest.raises(holdfast.LeaseLost, match="it is being released"):
            lease.ensure()
        assert await lease.release() is True
        assert await s.others.once("x", 60.0) is None


async def test_a_lease_is_not_held_from_the_moment_in_which_its_release_is_sent(url: str) -> None:
    async with scene(url) as s:
        leases = [await s.locks.lock("x").acquire(), await s.locks.lock("y").acquire()]
        release = s.line._backend.release
        held: list[bool] = []

        async def look_and_release(name: str, *args: object) -> bool:
            held.extend(lease.held for lease in leases if lease.name == name)
            freed: bool = await release(name, *args)
            return freed

        s.line._backend.release = look_and_release
        assert await leases[0].release() is True
        s.line.lose.add("release")
        await s.locks.close()
        assert held == [False, False]
        assert not leases[1].held
        rival = await s.others.lock("y").acquire(timeout=5.0)
        assert rival.token > leases[1].token


async def test_after_a_release_nothing_is_renewed_in_any_order(url: str) -> None:
    async with scene(url) as s:
        for turn in range(30):
            lease = await s.locks.lock("x").acquire(timeout=10.0)
            await s.look_at(lease)
            if turn % 3:
                await pause(turn * 0.0001)  # before, while or after the keeper renews
            await lease.release()
            assert not (await s.others.inspect("x")).held


async def test_the_deadline_is_counted_from_the_sending(url: str) -> None:
    async with scene(url) as s:
        s.line.delay = 0.2
        lease = await s.locks.lock("x", ttl=10.0, renew=False).acquire()
        assert lease.held
        assert lease.remaining() <= 9.8
        await lease.renew()
        assert lease.remaining() <= 9.8


async def test_an_answer_later_than_the_lease_grants_nothing(url: str) -> None:
    async with scene(url) as s:
        s.line.late = True
        assert await s.locks.lock("x", ttl=0.1).try_acquire() is None
        with pytest.raises(holdfast.BackendUnavailable, match="longer to answer"):
            await s.locks.lock("x", ttl=0.1).acquire()
        assert not (await s.others.inspect("x")).held


async def test_a_waiter_outlasts_a_store_that_is_gone_for_a_while(url: str) -> None:
    async with scene(url, heartbeat=0.05) as s:
        lease = await s.others.lock("x").acquire()
        waiter = Job(s.locks.lock("x").acquire)
        await s.waiters(1)
        s.line.cut = True
        if not url.startswith("zookeeper"):  # where a place lives as long as its session
            await s.waiters(0)  # five heartbeats missed: it has lost its place
        s.line.cut = False
        await s.waiters(1)  # and has enrolled again, as somebody new
        await lease.release()
        assert (await waiter.result()).token > lease.token


async def test_a_waiter_that_times_out_while_the_store_is_gone_times_out(url: str) -> None:
    async with scene(url) as s:
        await s.others.lock("x").acquire()
        s.line.refuse = {"renew", "release"}  # all that comes after it has joined the queue
        assert await s.locks.lock("x").try_acquire(timeout=0.2) is None
        s.line.refuse = set()
        await s.waiters(0)


async def test_a_waiter_whose_store_stays_silent_is_told_that_and_not_that_others_were_first(
    url: str,
) -> None:
    async with scene(url, heartbeat=0.05) as s:
        await s.others.lock("x").acquire()
        s.line.refuse = {"renew", "release"}
        with pytest.raises(holdfast.BackendUnavailable, match="has not answered any more"):
            await s.locks.lock("x").acquire(timeout=2.0)
        s.line.refuse = set()
        await s.waiters(0)


async def test_wake_ups_are_hints_and_heartbeats_carry_it(url: str) -> None:
    async with scene(url, heartbeat=0.1) as s:
        lease = await s.others.lock("x").acquire()
        waiter = Job(s.locks.lock("x").acquire)
        await s.waiters(1)
        s.line.deaf = True
        await lease.release()
        granted = await waiter.result()
        assert granted.held
        assert granted.remaining() > 25.0


async def test_a_hand_over_of_which_little_is_left_is_confirmed_first(fair_url: str) -> None:
    async with scene(fair_url) as s:
        lease = await s.others.lock("x").acquire()
        session = await s.locks._session()
        lasts, _ = session.claim
        session.claim = lasts, inf  # whatever is left is too little
        waiter = Job(s.locks.lock("x").acquire)
        await s.waiters(1)
        await lease.release()
        granted = await waiter.result()
        assert granted.remaining() > 25.0  # the full TTL already: it asked before it believed


async def test_a_hand_over_that_was_never_confirmed_ends_with_the_claim(fair_url: str) -> None:
    # Of the window a part may be over when the wake-up comes, beside other work.
    async with scene(fair_url, claim_window=4.0) as s:

        async def handed_over(cut: bool) -> holdfast.Lease:
            lease = await s.others.lock("x").acquire()
            waiter = Job(s.locks.lock("x", ttl=180.0).acquire)
            await s.waiters(1)
            s.line.cut = cut
            await lease.release()
            return await waiter.result()

        first = await handed_over(cut=False)  # from then on, what brings the wake-ups is open
        await first.release()
        granted = await handed_over(cut=True)
        assert granted.remaining() <= 4.0
        assert await granted.wait_lost(timeout=30.0) is True
        assert (await s.others.lock("x").acquire(timeout=30.0)).token > granted.token
