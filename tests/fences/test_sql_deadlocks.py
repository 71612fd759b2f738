"""Pruning beside writers on a database that locks gaps: neither may be the victim of a deadlock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from fences.sql_sites import MariaSite
from holdfast.fences import SqlFence, sql_guard
from stores import mariadb_server

WRITERS = 8
PURGED = 0.5
"""Seconds after which a deleted row has left its page, and those who look for it lock a gap."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[MariaSite]:
    made = MariaSite(tmp_path)
    yield made
    made.close()


def test_writers_who_come_back_after_a_pruning(
    site: MariaSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fence has known their resources, whose rows are gone."""
    monkeypatch.setattr(sql_guard, "RECENT", 0.0)
    start = threading.Barrier(WRITERS)
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for token in range(1, 7):
                site.write(f"r{number}", "a", token)
                if start.wait(60) == 0:
                    _prune(site)
                start.wait(60)
        except BaseException as error:
            errors.append(error)
            start.abort()

    _together(write)
    assert not errors, errors
    assert [site.highest(f"r{number}") for number in range(WRITERS)] == [0] * WRITERS


def test_writers_of_one_resource_that_was_pruned(
    site: MariaSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some are refused and roll back, while others wait for the row that those would have made."""
    monkeypatch.setattr(sql_guard, "RECENT", 0.0)
    start = threading.Barrier(WRITERS)
    passed: list[int] = []
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for first in range(0, 48, 8):
                token = first + 1 + number // 2
                try:
                    site.write("x", "a", token)
                    passed.append(token)
                except holdfast.StaleToken:
                    pass
                if start.wait(60) == 0:
                    _prune(site)
                start.wait(60)
                if number % 2:  # those who come late
                    with pytest.raises(holdfast.StaleToken):
                        site.write("x", "late", 1 + first // 2)
        except BaseException as error:
            errors.append(error)
            start.abort()

    site.write("x", "a", 1)
    _together(write)
    assert not errors, errors
    assert passed


def test_a_pruner_locks_no_row_that_it_leaves(site: MariaSite) -> None:
    """A writer may hold such a row and ask for the floors, which the pruner has."""
    for _ in range(2):  # so that the fence knows of the row, and that it was committed
        site.write("x", "a", 1)
    pruner, writer = site.connect(), site.connect()
    writer.cursor().execute("SET SESSION innodb_lock_wait_timeout = 2")
    assert site.fence.prune(pruner, 3600.0) == 0
    site.fence.guard(writer, "x", 2)
    writer.commit()
    pruner.commit()
    assert site.highest("x") == 2
    pruner.close()
    writer.close()


@pytest.mark.parametrize("habit", ["once", "twice", "found-rows"])
def test_writers_who_come_back_after_a_rollback(site: MariaSite, habit: str) -> None:
    """Each has passed once, and made the row, which its rollback has taken away."""
    import pymysql

    flags = pymysql.constants.CLIENT.FOUND_ROWS if habit == "found-rows" else 0
    start = threading.Barrier(WRITERS)
    one_by_one = threading.Lock()
    errors: list[BaseException] = []

    def write(number: int) -> None:
        connection = mariadb_server().connect(client_flag=flags)
        fence = SqlFence(connection, table=site.fences)
        try:
            for name in range(4):
                with one_by_one:
                    for _ in range(2 if habit == "twice" else 1):
                        fence.guard(connection, f"r{name}", 34)
                    connection.rollback()
                start.wait(60)
                fence.guard(connection, f"r{name}", 34)
                connection.commit()
                start.wait(60)
                assert not_first(fence, connection, f"r{name}")
        except BaseException as error:
            errors.append(error)
            start.abort()
        finally:
            connection.close()

    _together(write)
    assert not errors, errors


@pytest.mark.parametrize("flags", [0, 2])
def test_a_row_that_was_committed_is_known_from_then_on(site: MariaSite, flags: int) -> None:
    """So the next guards are one statement each."""
    connection = mariadb_server().connect(client_flag=flags)  # 2: FOUND_ROWS, as under SQLAlchemy
    fence = SqlFence(connection, table=site.fences)
    fence.guard(connection, "x", 34)
    connection.commit()
    fence.guard(connection, "x", 34)
    connection.commit()
    assert not_first(fence, connection, "x")
    connection.close()


def not_first(fence: SqlFence, connection: Any, resource: str) -> bool:
    """Returns True if the fence knows of a row for this resource, as soon as it has met it."""
    fence.guard(connection, resource, 34)
    connection.commit()
    return (resource, False) in fence._guard._known


def _prune(site: MariaSite) -> None:
    site.prune()
    time.sleep(PURGED)


def _together(write: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
