"""The short way of a grant and of a release does nothing that the long one would not do."""

from __future__ import annotations

from typing import Any

import pytest

from _async.conformance.test_contract import Bench, bench
from _async.conformance.test_verbs import candidate, observer, permit, reader, writer
from _async.sql_scenes import each_database, rows_of
from holdfast import aio as holdfast
from holdfast.model import Granted, Queued
from holdfast.stores._async.contract import Ticket
from worlds.aio import eventually

pytestmark = each_database


def used(url: str, name: str = "x") -> int:
    """Returns the weight that the holders of a lock have together, as its row says."""
    for full, weight in rows_of(url, "SELECT name, used FROM holdfast_lock"):
        text = full.decode() if isinstance(full, bytes) else full
        if text.endswith(f"\x1f{name}"):
            return int(weight)
    raise AssertionError(f"there is no row of {name}")


async def holders(store: Bench, name: str = "x") -> list[str]:
    state = await store.backend.inspect(name, store.deadline())
    return [holder.owner for holder in state.holders]


async def test_a_request_that_was_given_up_leaves_a_free_lock_free(url: str) -> None:
    async with bench(url) as store:
        first, late, other = store.ticket(), store.ticket(), store.ticket()
        await store.grant(first)
        await store.release(first)
        backend: Any = store.backend
        backend.doubt(late.owner)
        assert await store.release(late) is False
        with pytest.raises(holdfast.BackendUnavailable, match="given up"):
            await store.ask(late)
        assert used(url) == 0
        assert await holders(store) == []
        grant = await store.grant(other)
        assert await holders(store) == [other.owner]
        assert await store.release(other) is True
        assert (await store.grant(store.ticket())).token > grant.token


async def test_an_owner_who_holds_another_lock_leaves_a_free_one_free(url: str) -> None:
    async with bench(url) as store:
        holder, first = store.ticket("y"), store.ticket()
        await store.grant(first)
        await store.release(first)
        await store.grant(holder)
        stray = Ticket(first.terms, holder.owner)
        with pytest.raises(holdfast.ConfigError, match="already used"):
            await store.ask(stray)
        assert used(url) == 0
        assert await store.release(stray) is False
        assert await holders(store, "y") == [holder.owner]
        assert used(url, "y") == 1


async def test_a_release_counts_the_other_holders(url: str) -> None:
    async with bench(url, heartbeat=10.0, claim_window=20.0) as store:
        readers = [reader(), reader(), reader()]
        for ticket in readers:
            await store.grant(ticket)
        waiting = writer()
        assert await store.release(readers[0]) is True
        assert used(url) == 2
        assert isinstance(await store.ask(waiting), Queued)
        assert await store.release(readers[1]) is True
        assert await holders(store) == [readers[2].owner]
        assert await store.release(readers[2]) is True
        assert await store.told(waiting) > 0
        assert await holders(store) == [waiting.owner]
        assert used(url) == waiting.weight
        assert await store.release(waiting) is True
        assert used(url) == 0


async def test_a_release_hands_the_lock_to_who_waits(url: str) -> None:
    async with bench(url, heartbeat=10.0, claim_window=20.0) as store:
        holder, waiting = store.ticket(), store.ticket()
        await store.grant(holder)
        assert isinstance(await store.ask(waiting), Queued)
        assert await store.release(holder) is True
        assert used(url) == 1  # at once, and not with the waiter's next heartbeat
        assert await holders(store) == [waiting.owner]


async def test_who_leaves_the_queue_frees_nothing(url: str) -> None:
    async with bench(url, heartbeat=10.0, claim_window=20.0) as store:
        holder, waiting = store.ticket(), store.ticket()
        await store.grant(holder)
        assert isinstance(await store.ask(waiting), Queued)
        assert await store.release(waiting) is False
        assert used(url) == 1
        assert await holders(store) == [holder.owner]
        assert isinstance(await store.ask(store.ticket()), Queued)


async def test_a_newcomer_does_not_overtake_who_may_come_for_a_free_lock(url: str) -> None:
    async with bench(url, heartbeat=10.0, claim_window=20.0) as store:
        holder, first = store.ticket(), store.ticket(barge=True)
        await store.grant(holder)
        assert isinstance(await store.ask(first), Queued)
        assert await store.release(holder) is True
        assert used(url) == 0
        assert isinstance(await store.ask(store.ticket()), Queued)
        await store.renew(first)
        assert await holders(store) == [first.owner]


async def test_a_lease_that_has_ended_was_not_freed(url: str) -> None:
    async with bench(url) as store:
        ticket, other = store.ticket(ttl=0.2), store.ticket()
        await store.grant(ticket)

        async def ended() -> bool:
            return await holders(store) == []

        await eventually(ended)
        assert await store.release(ticket) is False
        assert used(url) == 0
        assert isinstance(await store.ask(other), Granted)


async def test_the_slot_that_was_freed_last_is_kept_in_mind(url: str) -> None:
    async with bench(url) as store:
        ticket = permit(100)
        slot = (await store.grant(ticket)).token % 100
        assert await store.release(ticket) is True
        assert rows_of(url, "SELECT freed FROM holdfast_lock")[0][0] == slot


async def test_an_election_notes_that_its_only_leader_is_gone(url: str) -> None:
    async with bench(url) as store:
        leader = candidate("one")
        first = await store.grant(leader)
        assert await store.release(leader) is True
        seen = await store.backend.observe(observer(), first.token - 1, store.deadline())
        assert [change.owner for change in seen.changes] == [leader.owner, ""]
