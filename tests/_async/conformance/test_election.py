"""Elections: one leader at a time, who is known by its value."""

from __future__ import annotations

from contextlib import aclosing, suppress

import pytest

from holdfast import aio as holdfast
from worlds.aio import Job, eventually, pause
from worlds.signals import signals


async def test_one_leads_and_the_next_follows(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as elsewhere:
        first, second = locks.election("chief", "a:1"), elsewhere.election("chief", "b:2")
        assert await first.leader() is None
        term = await first.campaign()
        state = await second.leader()
        assert state is not None
        assert (state.holders[0].label.text, state.token) == ("a:1", term.token)
        campaign = Job(second.campaign)

        async def there() -> bool:
            # Where a store keeps no queue, nobody can see who waits.
            return not locks.guarantees.fair or len((await locks.inspect("chief")).waiters) == 1

        await eventually(there)
        assert await term.resign() is True
        assert await term.resign() is False
        following = await campaign.result()
        assert following.token > term.token
        state = await first.leader()
        assert state is not None
        assert state.holders[0].label.text == "b:2"


async def test_a_term_is_a_lease(url: str) -> None:
    async with holdfast.connect(url) as locks:
        async with await locks.election("chief").campaign(timeout=20.0) as term:
            assert term.held
            assert term.token > 0
            with pytest.raises(holdfast.LockTimeout):
                await locks.election("chief").campaign(timeout=0.0)
        assert await locks.election("chief").leader() is None


async def test_a_loss_ends_the_term(url: str) -> None:
    async with holdfast.connect(url) as locks:
        term = await locks.election("chief").campaign()

        async def lead() -> None:
            async with term:
                await locks.force_release("chief")
                await term.renew()

        with pytest.raises(holdfast.LeaseLost):
            await lead()
        assert not term.held


async def test_every_change_is_observed_once_and_in_order(url: str) -> None:
    async with (
        holdfast.connect(url) as locks,
        holdfast.connect(url) as elsewhere,
        aclosing(elsewhere.election("chief").observe()) as changes,
    ):
        assert await anext(changes) is None
        if not locks.guarantees.every_change:
            term = await locks.election("chief", "a").campaign()
            state = await anext(changes)
            assert state is not None
            assert state.token == term.token
            await term.resign()
            assert await anext(changes) is None
            return
        tokens = []
        for number in range(10):
            term = await locks.election("chief", f"leader {number}").campaign()
            tokens.append(term.token)
            await term.set_value(f"changed {number}")
            assert term.value == f"changed {number}"
            assert await term.resign() is True
        for number, token in enumerate(tokens):
            for value in (f"leader {number}", f"changed {number}"):
                state = await anext(changes)
                assert state is not None
                assert (state.holders[0].label.text, state.token) == (value, token)
            assert await anext(changes) is None


async def test_a_value_that_is_set_again_is_no_change(url: str) -> None:
    async with (
        holdfast.connect(url) as locks,
        aclosing(locks.election("chief").observe()) as changes,
    ):
        assert await anext(changes) is None
        term = await locks.election("chief", "same").campaign()
        seen = await anext(changes)
        following = Job(lambda: anext(changes))
        for _ in range(2):
            await term.set_value("same")
            if not locks.guarantees.every_change:
                await pause(1.2)  # longer than from one look to the next
        await term.set_value("another")
        state = await following.result()
        assert seen is not None
        assert state is not None
        assert [one.holders[0].label.text for one in (seen, state)] == ["same", "another"]


async def test_every_change_is_observed_whatever_signals_do(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as elsewhere:

        async def terms() -> list[str]:
            values = [f"leader {number}" for number in range(4)]
            for value in values:
                term = await locks.election("chief", value).campaign()
                await seen(value)
                await term.resign()
            return values

        found: list[str | None] = []

        async def seen(value: str) -> None:
            await eventually(lambda: value in found)

        with signals():
            leading = Job(terms)
            async with aclosing(elsewhere.election("chief").observe()) as changes:
                while "leader 3" not in found or found[-1] is not None:
                    state = await anext(changes)
                    found.append(None if state is None else state.holders[0].label.text)
        values = await leading.result()
        assert [value for value in found if value is not None] == values
        if locks.guarantees.every_change:
            assert found.count(None) in (4, 5)  # the first may come before there is a leader


async def test_whoever_comes_later_sees_how_things_stand(url: str) -> None:
    async with holdfast.connect(url) as locks:
        await (await locks.election("chief", "first").campaign()).resign()
        term = await locks.election("chief", "second").campaign()
        async with aclosing(locks.election("chief").observe()) as changes:
            state = await anext(changes)
            assert state is not None
            assert (state.holders[0].label.text, state.token) == ("second", term.token)
            assert state.holders[0].remaining > 0


async def test_a_leader_that_died_is_seen_to_be_gone(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as elsewhere:
        await (await locks.election("chief", ttl=3.0).campaign()).export()  # nobody renews it
        async with aclosing(elsewhere.election("chief").observe()) as changes:
            assert await anext(changes) is not None
            assert await anext(changes) is None


async def test_an_observer_ends_with_its_manager(url: str) -> None:
    locks = holdfast.connect(url)
    # Not of the other tests: a service may still be at work on what they left.
    changes = locks.election("nobody leads").observe()
    assert await anext(changes) is None
    following = Job(lambda: anext(changes))
    await locks.close()
    with pytest.raises(holdfast.LockError):
        await following.result()


async def test_the_value_of_a_term_that_ended_is_not_changed(url: str) -> None:
    async with holdfast.connect(url) as locks:
        term = await locks.election("chief", "a").campaign()
        for bad in ("\n", "x" * 10_000, 7):
            with pytest.raises(holdfast.ConfigError):
                await term.set_value(bad)  # type: ignore[arg-type]
        await locks.force_release("chief")
        with pytest.raises(holdfast.LeaseLost):
            await term.set_value("b")
        assert await locks.election("chief").leader() is None


async def test_a_leader_that_resigns_waits_for_its_work(url: str) -> None:
    async with holdfast.connect(url) as locks, holdfast.connect(url) as elsewhere:
        term = await locks.election("chief").campaign()
        begun: list[bool] = []
        led: list[bool] = []

        async def work() -> None:
            async with term:
                begun.append(True)
                with suppress(BaseException):  # in asyncio it is cancelled, here or in the pause
                    await eventually(lambda: not term.held)
                with suppress(BaseException):
                    await pause(0.2)
                # Nobody else leads while the work winds up.
                led.append(await elsewhere.election("chief").leader() is not None)

        working = Job(work)
        await eventually(lambda: begun)
        assert await term.resign() is True
        assert led == [True]  # it has been waited for
        with pytest.raises(holdfast.LeaseLost, match="resigned"):
            await working.result()
        assert await locks.election("chief").leader() is None
        assert await term.resign() is False


async def test_an_election_is_no_lock(url: str) -> None:
    async with holdfast.connect(url) as locks:
        term = await locks.election("chief").campaign()
        assert term.kind == "election"
        with pytest.raises(holdfast.ConfigError, match="an election"):
            await locks.lock("chief").try_acquire()
        await term.resign()


async def test_values_that_cannot_be_shown_are_refused() -> None:
    locks = holdfast.connect("memory://")
    for value in ("\n", "x" * 10_000, 7):
        with pytest.raises(holdfast.ConfigError):
            locks.election("chief", value)  # type: ignore[arg-type]
    with pytest.raises(holdfast.ConfigError):
        locks.election("")
