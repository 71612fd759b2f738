"""Compare-and-set in a SQL table that is cancelled or interrupted: no transaction is left open."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pytest

from holdfast.versioned import SqlVersioned
from stores import postgres_server
from worlds.aio import eventually


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Returns the path of a database with a table and one row."""
    made = tmp_path / "app.db"
    with closing(sqlite3.connect(made, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, value TEXT, version BIGINT)")
        connection.execute("INSERT INTO rows VALUES (1, 'a', 1)")
    return made


@pytest.fixture
def other(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, timeout=0.1, isolation_level=None)) as connection:
        yield connection


def is_free(path: Path) -> bool:
    """Tells whether somebody else could write at once."""
    with closing(sqlite3.connect(path, timeout=0.0, isolation_level=None)) as third:
        try:
            third.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        return True


@pytest.mark.parametrize("times", [1, 2])
async def test_a_put_that_is_cancelled_while_it_waits(
    path: Path, other: sqlite3.Connection, times: int
) -> None:
    import aiosqlite

    async with aiosqlite.connect(path, timeout=60.0) as connection:
        rows = SqlVersioned(connection, "rows", key="id")
        other.execute("BEGIN IMMEDIATE")
        task = asyncio.create_task(rows.put(1, "b", 1))
        await eventually(lambda: connection.in_transaction)  # its thread waits for the other
        for _ in range(times):
            task.cancel()
            for _ in range(3):
                await asyncio.sleep(0)
        other.execute("ROLLBACK")
        with pytest.raises(asyncio.CancelledError):
            await task
        await eventually(lambda: is_free(path))
        assert await rows.get(1) == ("a", 1)
        assert await rows.put(1, "c", 1) == 2


async def test_a_put_that_is_cancelled_while_it_waits_for_a_row_of_postgresql() -> None:
    import psycopg

    with (
        closing(postgres_server().connect()) as stranger,
        closing(postgres_server().connect(autocommit=True)) as looker,
    ):
        looker.execute("DROP TABLE IF EXISTS cancelled")
        looker.execute(
            "CREATE TABLE cancelled (id INTEGER PRIMARY KEY, value TEXT, version BIGINT)"
        )
        looker.execute("INSERT INTO cancelled VALUES (1, 'a', 1)")
        stranger.execute("SELECT FROM cancelled FOR UPDATE")
        async with await psycopg.AsyncConnection.connect(postgres_server().url) as connection:
            rows = SqlVersioned(connection, "cancelled", key="id")
            task = asyncio.create_task(rows.put(1, "b", 1))
            waits = "SELECT FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
            number = [connection.info.backend_pid]
            await eventually(lambda: looker.execute(waits, number).fetchall())
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
            stranger.rollback()
            assert await rows.get(1) == ("a", 1)
            assert await rows.put(1, "c", 1) == 2
        looker.execute("DROP TABLE cancelled")


class Interrupted(sqlite3.Connection):
    """A connection that a signal interrupts at one of its calls, after that has done its work."""

    at = ""
    rollback_fails = False
    rollbacks = 0

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(InterruptedCursor)

    def commit(self) -> None:
        if self.at == "commit":
            raise KeyboardInterrupt
        super().commit()

    def rollback(self) -> None:
        self.rollbacks += 1
        super().rollback()
        if self.rollback_fails:
            raise sqlite3.OperationalError("the disk fails")


class InterruptedCursor(sqlite3.Cursor):
    def execute(self, *arguments: Any) -> Any:
        done = super().execute(*arguments)
        if getattr(self.connection, "at", "") == "execute":
            raise KeyboardInterrupt
        return done


@pytest.fixture
def interrupted(path: Path) -> Iterator[Interrupted]:
    with closing(sqlite3.connect(path, factory=Interrupted)) as connection:
        yield connection


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("at", ["execute", "commit"])
@pytest.mark.parametrize("verb", ["put", "update"])
def test_an_interrupt(
    path: Path, interrupted: Interrupted, at: str, fails: bool, verb: str
) -> None:
    rows = SqlVersioned(interrupted, "rows", key="id")

    def change(value: str) -> str:
        interrupted.at, interrupted.rollback_fails = at, fails
        return "b"

    def act() -> None:
        if verb == "update":
            rows.update(1, change)
        else:
            change("")
            rows.put(1, "b", 1)

    with pytest.raises(KeyboardInterrupt):
        act()
    assert interrupted.rollbacks == 1
    assert is_free(path)
    interrupted.at = ""
    assert rows.get(1) == ("a", 1)


def test_an_interrupt_between_two_requests(path: Path, interrupted: Interrupted) -> None:
    """The steps are given up then, wherever they are."""
    rows = SqlVersioned(interrupted, "rows", key="id")
    rows._run(rows._check_version(first=True))  # which is done once, before the first write
    steps = rows._put(1, "b", 1)
    request: Any = next(steps)
    request()
    assert not is_free(path)
    steps.close()
    assert interrupted.rollbacks == 1
    assert is_free(path)


async def test_a_task_that_is_given_up_asks_for_nothing_more(path: Path) -> None:
    """As when its loop has ended: nothing can be awaited there."""
    import aiosqlite

    async with aiosqlite.connect(path) as connection:
        never = asyncio.get_running_loop().create_future()

        async def stands_still(*arguments: Any) -> NoReturn:
            await never
            raise AssertionError

        connection.execute = stands_still  # type: ignore[method-assign, assignment]
        connection.cursor = stands_still  # type: ignore[method-assign, assignment]
        coroutine = SqlVersioned(connection, "rows", key="id").put(1, "b", 1)
        coroutine.send(None)
        coroutine.close()
