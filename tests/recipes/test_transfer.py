"""Two accounts, two locks: no deadlock, no money lost, whoever is killed or stands still."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from recipes.players import TTL, Cast, cast


@pytest.fixture
def clerks(tmp_path: Path) -> Iterator[Cast]:
    with cast(tmp_path, "transfer") as made:
        yield made


def balances(clerks: Cast) -> list[int]:
    with closing(sqlite3.connect(clerks.folder / "bank.db", timeout=60)) as bank:
        return [cents for (cents,) in bank.execute("SELECT cents FROM accounts ORDER BY id")]


def test_both_directions_at_once_and_one_that_is_killed(clerks: Cast) -> None:
    doomed = clerks.player("--cents", "7", stop_at="approve")
    doomed.stopped()
    there = clerks.player("--times", "10", "--cents", "30")
    back = clerks.player("--times", "10", "--cents", "10", "--from", "2", "--to", "1")
    doomed.kill()
    there.succeeded()
    back.succeeded()
    assert balances(clerks) == [10000 - 300 + 100, 10000 + 300 - 100]


def test_one_that_was_paused_moves_nothing(clerks: Cast) -> None:
    first = clerks.player("--ttl", str(TTL), stop_at="approve")
    first.stopped()
    first.freeze()
    clerks.player("--cents", "50", "--from", "2", "--to", "1").succeeded()
    first.thaw()
    first.go()
    status, _ = first.ended()
    assert status == 1
    assert "nothing moved" in first.complaints()
    assert balances(clerks) == [10050, 9950]


def test_an_account_that_is_not_there_costs_nothing(clerks: Cast) -> None:
    clerk = clerks.player("--from", "1", "--to", "3")
    status, _ = clerk.ended()
    assert status == 1
    assert "nothing moved: there is no account 3" in clerk.complaints()
    assert balances(clerks) == [10000, 10000]
