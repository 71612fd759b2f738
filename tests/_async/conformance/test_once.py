"""`once`: the job of many machines that is done once in each period."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import aio as holdfast
from worlds.aio import Job, eventually

LONG = 300.0


def period(locks: holdfast.Locks) -> float:
    return min(LONG, locks.guarantees.longest_detached)


async def test_the_slot_is_kept_when_the_work_is_done(url: str) -> None:
    async with holdfast.connect(url) as elsewhere:
        async with holdfast.connect(url) as locks:
            lease = await locks.once("report", period(locks))
            assert lease is not None
            assert lease.held
            assert await elsewhere.once("report", period(locks)) is None
            async with lease:
                assert lease.kind == "once"
            assert not lease.held
            assert await elsewhere.once("report", period(locks)) is None
        # Nor when the manager is gone, that did it.
        assert await elsewhere.once("report", period(elsewhere)) is None
        (holder,) = (await elsewhere.inspect("report")).holders
        assert holder.remaining > period(elsewhere) / 2
        assert await elsewhere.force_release("report") is True


async def test_the_slot_is_given_back_when_the_work_failed(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.once("report", period(locks))
        assert lease is not None
        with pytest.raises(ZeroDivisionError):
            async with lease:
                raise ZeroDivisionError
        again = await locks.once("report", period(locks))
        assert again is not None
        assert again.token > lease.token
        assert await again.give_back() is True
        third = await locks.once("report", period(locks))
        assert third is not None
        assert await third.release() is True  # done
        assert await third.release() is False
        assert await locks.once("report", period(locks)) is None


async def test_the_lease_of_a_period_is_not_given_away(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.once("report", period(locks))
        assert lease is not None
        with pytest.raises(holdfast.GuaranteeError, match="period"):
            await lease.export()
        assert lease.held
        await lease.give_back()


async def test_a_failure_may_keep_the_slot_for_a_while(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.once("report", period(locks), at_least=period(locks) - 1)
        assert lease is not None
        with pytest.raises(ZeroDivisionError):
            async with lease:
                raise ZeroDivisionError
        assert await locks.once("report", period(locks)) is None


async def test_the_next_period_comes(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.once("report", 2.0)
        assert lease is not None
        async with lease:
            pass
        following: list[holdfast.OnceLease] = []

        async def granted() -> bool:
            again = await locks.once("report", 2.0)
            following.extend([again] if again is not None else [])
            return bool(following)

        await eventually(granted)
        assert following[0].token > lease.token
        assert await following[0].give_back() is True


async def test_work_that_took_longer_than_the_period_keeps_nothing(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.once("report", 0.1)
        assert lease is not None

        async def over() -> bool:
            return locks._live is not None and (locks._live.now() > lease._hold._granted_at + 0.2)

        async with lease:
            await eventually(over)
        assert await locks.once("report", 0.1) is not None


async def test_a_manager_that_is_closed_gives_the_slot_back(url: str) -> None:
    async with holdfast.connect(url) as elsewhere:
        async with holdfast.connect(url) as locks:
            lease = await locks.once("report", period(locks))
            assert lease is not None
        assert not lease.held
        again = await elsewhere.once("report", period(elsewhere))
        assert again is not None
        assert await again.give_back() is True


async def test_the_work_may_last_so_long_and_no_longer(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.once("report", period(locks), at_most=0.3)
        assert lease is not None
        assert await lease.wait_lost(timeout=20.0) is True

        async def free() -> bool:
            return not (await locks.inspect("report")).held

        await eventually(free)  # given back: it was not done


async def test_what_took_too_long_keeps_others_out_for_a_while(url: str) -> None:
    async with holdfast.connect(url) as locks:
        long = period(locks)
        lease = await locks.once("report", long, at_most=0.3, at_least=long - 1)
        assert lease is not None
        assert await lease.wait_lost(timeout=20.0) is True

        async def kept() -> bool:
            state = await locks.inspect("report")
            return state.held and state.holders[0].remaining > long / 2

        await eventually(kept)
        assert await locks.once("report", long) is None


async def test_a_release_that_was_cancelled_or_failed_keeps_the_slot(url: str) -> None:
    async with holdfast.connect(url) as elsewhere:
        async with holdfast.connect(url) as locks:
            lease = await locks.once("report", period(locks))
            assert lease is not None
            backend = (await locks._session()).backend
            real, failures = backend.detach, [True]

            async def fail(name: str, owner: str, ttl: float, deadline: float) -> bool:
                done = await real(name, owner, ttl, deadline)
                if failures:
                    failures.pop()
                    raise holdfast.BackendUnavailable("the reply was lost")
                return done

            backend.detach = fail  # type: ignore[method-assign]
            async with lease:
                pass
        assert await elsewhere.once("report", period(elsewhere)) is None
        assert await elsewhere.force_release("report") is True


async def test_a_cron_expression_ends_the_period(url: str) -> None:
    async with holdfast.connect(url) as locks:
        lease = await locks.once("report", "* * * * *", timezone="Europe/Berlin")
        if locks.guarantees.longest_detached < 60.0:
            return
        assert lease is not None
        async with lease:
            pass
        (holder,) = (await locks.inspect("report")).holders or (None,)
        if holder is not None:  # not just at the full minute
            assert holder.remaining <= 61.0


async def test_what_makes_no_sense_is_refused() -> None:
    async with holdfast.connect("memory://") as locks:
        for bad in (0, -1, True, None, float("nan"), "every day", "", 10**10):
            with pytest.raises(holdfast.ConfigError):
                await locks.once("report", bad)  # type: ignore[arg-type]
        with pytest.raises(holdfast.ConfigError):
            await locks.once("report", 5.0, at_least=-1.0)
        with pytest.raises(holdfast.ConfigError, match="longer than the period"):
            await locks.once("report", 5.0, at_least=6.0)
        with pytest.raises(holdfast.ConfigError):
            await locks.once("", 5.0)
        with pytest.raises(holdfast.ConfigError):
            await locks.once("report", "@daily", timezone="nowhere")
        with pytest.raises(holdfast.GuaranteeError):
            await locks.once("report", 5.0, purpose="correctness")


@pytest.mark.parametrize("asked_by", ["keeper", "user"])
async def test_a_renewal_under_way_does_not_lengthen_the_slot(url: str, asked_by: str) -> None:
    async with holdfast.connect(url) as locks:
        whole = period(locks)
        lease = await locks.once("report", whole / 2, ttl=whole)
        assert lease is not None
        session = await locks._session()
        backend = session.backend
        renew, detach = backend.renew, backend.detach
        sent: list[str] = []

        async def slow(claims: Any, deadline: float) -> Any:
            sent.append("renewal")
            await eventually(lambda: "end" in sent or session.renewals.under_way[0].signals)
            return await renew(claims, deadline + LONG)

        async def noted(name: str, owner: str, ttl: float, deadline: float) -> bool:
            detached = await detach(name, owner, ttl, deadline)
            sent.append("end")
            return detached

        backend.renew, backend.detach = slow, noted  # type: ignore[method-assign]
        renewal = None
        if asked_by == "user":
            renewal = Job(lease.renew)
        else:
            session.look_at([lease.owner])
        await eventually(lambda: sent)
        assert await lease.release() is True
        if renewal is not None:
            await renewal.error()
        await eventually(lambda: not session.renewals.under_way)
        (holder,) = (await locks.inspect("report")).holders
        assert holder.remaining <= whole / 2 + 1.0
        assert await locks.force_release("report") is True
