"""Pruning beside writers on a database that locks gaps: neither may be the victim of a deadlock."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from fences.sql_sites import MariaSite
from holdfast.fences import sql
from holdfast.fences.sql_links import execute, link_to

WRITERS = 8


@pytest.fixture
def site(tmp_path: Path) -> Iterator[MariaSite]:
    made = MariaSite(tmp_path)
    yield made
    made.close()


def test_writers_who_come_back_after_a_pruning(
    site: MariaSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fence has known their resources, whose rows are gone."""
    monkeypatch.setattr(sql, "RECENT", 0.0, raising=False)
    start = threading.Barrier(WRITERS)
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for token in range(1, 11):
                site.write(f"r{number}", "a", token)
                if start.wait(60) == 0:
                    site.prune()
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
    monkeypatch.setattr(sql, "RECENT", 0.0, raising=False)
    start = threading.Barrier(WRITERS)
    passed: list[int] = []
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for first in range(0, 80, 8):
                token = first + 1 + number // 2
                try:
                    site.write("x", "a", token)
                    passed.append(token)
                except holdfast.StaleToken:
                    pass
                if start.wait(60) == 0:
                    site.prune()
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


def test_a_writer_who_waited_for_a_row_that_was_pruned(site: MariaSite) -> None:
    """It holds a lock where the row was and asks for the floors, which the next pruner has."""
    site.write("x", "a", 1)
    first, second = site.connect(), site.connect()
    link, fence = link_to(second), site.fence
    assert fence.prune(first, 1e-6) == 1
    written = _started(lambda: site.write("x", "b", 2))
    _until_waiting(site, "UPDATE")
    pruning = fence._prune(fence._of(link), 1e-6)
    step = next(pruning)
    answers: list[Any] = []
    pruned = _started(lambda: answers.append(execute(link, second, step)))
    _until_waiting(site, "UPDATE%resource = ''")
    first.commit()
    pruned.join(20)
    _until_waiting(site, "SELECT%SHARE MODE")
    with contextlib.suppress(StopIteration):
        while True:
            answers.append(execute(link, second, pruning.send(answers[-1])))
    second.commit()
    written.join(20)
    assert site.read("x") == "b"
    assert site.highest("x") == 2
    first.close()
    second.close()


def _together(write: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)


def _started(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def _until_waiting(site: MariaSite, statement: str) -> None:
    """Waits until such a statement on the fence's table waits for a lock."""
    waiting = (
        "SELECT trx_query FROM information_schema.innodb_trx "
        "WHERE trx_state = 'LOCK WAIT' AND trx_query LIKE %s AND trx_query LIKE %s"
    )
    limit = time.monotonic() + 20
    while not site.execute(site.connection(), waiting, (f"{statement}%", f"%{site.fences}%")):
        site.connection().rollback()
        assert time.monotonic() < limit, statement
        time.sleep(0.2)  # the table is a copy, kept as long as it is read each 0.1 s
