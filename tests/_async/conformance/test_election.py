"""Elections: one leader at a time, who is known by its value."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from holdfast import aio as holdfast
from worlds.aio import Job, eventually


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


async def test_changes_are_observed(url: str) -> None:
    async with holdfast.connect(url, heartbeat=0.1) as locks:
        election = locks.election("chief", "a:1")
        async with aclosing(election.observe()) as changes:
            assert await anext(changes) is None
            term = await election.campaign()
            state = await anext(changes)
            assert state is not None
            assert state.token == term.token
            await term.resign()
            following = await election.campaign()
            seen = await anext(changes)
            while seen is None:  # it was seen between the two
                seen = await anext(changes)
            assert seen.token == following.token


async def test_values_that_cannot_be_shown_are_refused() -> None:
    locks = holdfast.connect("memory://")
    for value in ("\n", "x" * 10_000, 7):
        with pytest.raises(holdfast.ConfigError):
            locks.election("chief", value)  # type: ignore[arg-type]
    with pytest.raises(holdfast.ConfigError):
        locks.election("")
