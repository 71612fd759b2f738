"""The tables have an end, also where no lease lives long enough to be renewed: on both databases."""

from __future__ import annotations

from typing import Any

from _async.sql_scenes import each_database, rows_of
from holdfast import aio as holdfast
from holdfast.stores.sql.store import CLEAN_AFTER, CLEANED

pytestmark = each_database

NAMES = 150
DAY = 86400 * 1_000_000


def count(url: str, what: str) -> int:
    return int(rows_of(url, f"SELECT count(*) FROM {what}")[0][0])


async def test_short_leases_clean_away_what_short_leases_left(url: str) -> None:
    async with holdfast.connect(url) as locks:
        for number in range(NAMES):
            await (await locks.lock(f"order:{number}").acquire()).release()
        assert count(url, "holdfast_lock") == NAMES
        rows_of(url, f"UPDATE holdfast_lock SET touched = touched - {2 * DAY}")
        for _ in range(3 * CLEAN_AFTER):  # the cleaner may have been at any name
            await (await locks.lock("x").acquire()).release()
        assert count(url, "holdfast_lock") == 1


async def test_a_release_is_not_paid_for_by_more_than_one_cleaning_in_many(url: str) -> None:
    async with holdfast.connect(url) as locks:
        await (await locks.lock("x").acquire()).release()
        backend: Any = (await locks._session()).backend
        connections = backend._store._steps
        asked: list[str] = []
        call = connections.call

        def noted(procedure: str, *arguments: Any) -> Any:
            asked.append(procedure)
            return call(procedure, *arguments)

        connections.call = noted
        backend._store._clean_at = backend.clock.now() + 1000.0
        for _ in range(2 * CLEAN_AFTER):
            await (await locks.lock("x").acquire()).release()
        assert asked.count("clean") == 2
        assert CLEANED >= 2 * CLEAN_AFTER


async def test_a_program_that_lives_for_one_release_cleans_when_it_is_time(url: str) -> None:
    async with holdfast.connect(url) as locks:
        await (await locks.lock("old").acquire()).release()
    rows_of(url, f"UPDATE holdfast_lock SET touched = touched - {2 * DAY}")
    async with holdfast.connect(url) as locks:
        lease = await locks.lock("x").acquire()
        backend: Any = (await locks._session()).backend
        backend._store._clean_at = 0.0
        await lease.release()
    assert count(url, "holdfast_lock") == 1


async def test_marks_of_adopted_leases_are_cleaned_away(url: str) -> None:
    async with holdfast.connect(url) as locks:
        for _ in range(5):
            lease = await locks.lock("x").acquire()
            heir = await locks.adopt(await lease.export())
            await heir.release()
        marks = "place < 0"
        assert count(url, f"holdfast_entry WHERE {marks}") == 5
        rows_of(
            url,
            "UPDATE holdfast_entry SET expires = 1, place = CASE WHEN place = -1 THEN -1 ELSE -2 END "
            f"WHERE {marks}",
        )
        for _ in range(CLEAN_AFTER):
            await (await locks.lock("x").acquire()).release()
        assert count(url, f"holdfast_entry WHERE {marks}") == 0
