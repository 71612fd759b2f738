"""Observers of elections on both databases: what they leave, and how many there may be."""

from __future__ import annotations

from typing import Any

from _async.conformance.test_contract import bench
from _async.conformance.test_verbs import alike, candidate, observer
from _async.sql_scenes import each_database, rows_of
from holdfast.model import Granted
from worlds.aio import Job, eventually

pytestmark = each_database

DAY = 86_400_000_000


async def test_the_last_changes_are_kept(url: str) -> None:
    async with bench(url) as store:
        leader = candidate("0")
        first = await store.grant(leader)
        for number in range(1, 50):
            await store.backend.amend("x", leader.owner, store.deadline(), text=str(number))
        seen = await store.backend.observe(observer(), first.token - 1, store.deadline())
        numbers = [change.number for change in seen.changes]
        assert numbers == sorted(set(numbers))
        assert [change.label.text for change in seen.changes] == list(map(str, range(18, 50)))
        seen = await store.backend.observe(observer(), numbers[-3], store.deadline())
        assert [change.number for change in seen.changes] == numbers[-2:]


async def test_what_observing_leaves_is_cleaned_away(url: str) -> None:
    async with bench(url) as store:
        backend: Any = store.backend
        leader = candidate("one")
        await store.grant(leader)
        await store.release(leader)
        watching, leaving = observer(), observer("never")
        seen = await backend.observe(watching, 0, store.deadline())
        await backend.observe(leaving, 0, store.deadline())
        await backend.unobserve(leaving, store.deadline())

        def left() -> list[int]:
            tables = ("holdfast_change", "holdfast_observer", "holdfast_lock")
            return [rows_of(url, f"SELECT count(*) FROM {table}")[0][0] for table in tables]

        def clean() -> None:
            for _ in range(2):
                backend._store.call("clean", [1000, 200, DAY], store.deadline())

        clean()
        assert left() == [2, 1, 2]
        rows_of(url, "UPDATE holdfast_observer SET expires = expires - 120000000")
        clean()
        assert left() == [2, 0, 2]
        rows_of(url, f"UPDATE holdfast_lock SET touched = touched - {2 * DAY}")
        clean()
        assert left() == [0, 0, 0]
        later = await store.grant(candidate("two"))
        assert later.token > seen.changes[-1].number


async def test_a_leader_whose_entry_was_cleaned_away_is_seen_to_be_gone(url: str) -> None:
    async with bench(url) as store:
        backend: Any = store.backend
        leader = candidate("one", ttl=0.05)
        grant = await store.grant(leader)

        async def removed() -> bool:
            backend._store.call("clean", [1000, 200, DAY], store.deadline())
            return not rows_of(url, "SELECT owner FROM holdfast_entry")

        await eventually(removed)
        seen = await backend.observe(observer(), grant.token, store.deadline())
        assert [(change.owner, change.token) for change in seen.changes] == [("", grant.token)]


async def test_a_forced_release_and_an_adoption_are_changes(url: str) -> None:
    async with bench(url) as store:
        leader, follower = candidate("one"), candidate("two")
        first = await store.grant(leader)
        heir = alike(leader)
        adopted = await store.backend.adopt(heir, leader.owner, store.deadline())
        assert isinstance(adopted, Granted)
        await store.ask(follower)
        assert await store.backend.force_release("x", "test", store.deadline()) is True
        assert await store.backend.force_release("x", "test", store.deadline()) is True
        assert await store.backend.force_release("x", "test", store.deadline()) is False
        seen = await store.backend.observe(observer(), first.token, store.deadline())
        assert [change.owner for change in seen.changes] == [heir.owner, follower.owner, ""]
        assert seen.changes[0].token == adopted.token
        assert seen.changes[1].token == seen.changes[2].token > adopted.token
        assert seen.remaining == 0.0


async def test_other_kinds_of_locks_note_nothing(url: str) -> None:
    async with bench(url) as store:
        first, second = store.ticket(), store.ticket()
        await store.grant(first)
        await store.ask(second)
        await store.backend.amend("x", first.owner, store.deadline(), text="other")
        heir = alike(first)
        await store.backend.adopt(heir, first.owner, store.deadline())
        await store.release(heir)
        await store.backend.force_release("x", "test", store.deadline())
        assert rows_of(url, "SELECT number FROM holdfast_change") == []


async def test_a_thousand_elections_are_observed_by_one_connection(url: str) -> None:
    async with bench(url) as store, bench(url) as other:
        watching = [observer(f"e{number:03}") for number in range(1000)]
        for ticket in watching:
            await store.backend.observe(ticket, 0, store.deadline())
        leaders = [candidate("one", name=ticket.name) for ticket in watching]

        async def lead() -> None:
            for leader in leaders:
                await other.grant(leader)

        leading = Job(lead)
        for ticket, leader in zip(watching, leaders, strict=True):
            seen = await store.backend.observe(ticket, 0, store.deadline())
            while not seen.changes:
                await store.backend.wait(ticket, store.deadline())
                seen = await store.backend.observe(ticket, 0, store.deadline())
            assert [change.owner for change in seen.changes] == [leader.owner]
        await leading.result()
        if url.startswith("postgresql"):
            sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        else:
            sessions = "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE()"
        ((count,),) = rows_of(url, sessions)
        assert count <= 2 * (4 + 2) + 1
