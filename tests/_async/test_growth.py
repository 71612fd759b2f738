"""What comes and goes leaves nothing: neither on the store, nor in the manager."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import aio as holdfast
from stores import STORES, redis_server

FEW, MANY = 10, 120
Place = tuple[str, Callable[[], int]]


@pytest.fixture(params=["redis", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Yields the URL of an empty store, and a function that counts what is there."""
    with STORES[request.param](tmp_path) as url:

        def count() -> int:
            if request.param == "redis":
                return lasting_keys()
            with closing(sqlite3.connect(tmp_path / "locks.db")) as connection:
                found: int = connection.execute("SELECT count(*) FROM entry").fetchone()[0]
                return found

        yield url, count


def lasting_keys() -> int:
    """Counts the keys but for the marks of owners whose lease was adopted, each gone in a minute."""
    server = redis_server()
    marks = [key for key in server("KEYS", "*:q:*") if server("GET", key) == b"x"]
    gone = -2  # meanwhile
    assert all(
        left == gone or 0 < left <= 60_000 for left in [server("PTTL", key) for key in marks]
    )
    return int(server("DBSIZE")) - len(marks)


def kept(session: Any) -> list[int]:
    """Returns how much of its leases and attempts a session has."""
    return [len(session.leases), len(session.tickets), len(session.waiters), len(session.reentrant)]


async def test_leases_that_are_handed_over_leave_nothing(place: Place) -> None:
    url, count = place
    async with holdfast.connect(url) as locks, holdfast.connect(url) as elsewhere:
        counts = []
        for number in range(MANY):
            lease = await locks.lock(f"x{number % FEW}").acquire()
            await (await elsewhere.adopt(await lease.export())).release()
            counts.append(count())
        assert max(counts[FEW:]) <= max(counts[:FEW])
        assert kept(await locks._session()) == kept(await elsewhere._session()) == [0, 0, 0, 0]


async def test_slots_of_a_period_leave_nothing_but_themselves(place: Place) -> None:
    url, count = place
    async with holdfast.connect(url) as locks:
        for number in range(FEW):
            lease = await locks.once(f"job{number}", 600.0)
            assert lease is not None
            async with lease:
                pass
        done = count()
        for number in range(MANY):
            assert await locks.once(f"job{number % FEW}", 600.0) is None
            failed = await locks.once("failing", 600.0)
            assert failed is not None
            assert await failed.give_back() is True
        assert count() <= done + 1
        assert kept(await locks._session()) == [0, 0, 0, 0]
