"""Tokens of a semaphore with very many holders, and of the locks beside it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.clock import BootClock
from holdfast.entries import AcquireRequest
from holdfast.model import Granted, Label
from holdfast.stores.sqlite import tokens
from holdfast.stores.sqlite.rows import COLUMNS
from holdfast.stores.sqlite.store import Store

PERMITS = 2_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    store = Store(str(path))
    yield store
    store.close()


def deadline() -> float:
    return BootClock().now() + 60.0


def grant(store: Store, name: str, owner: str, permits: int) -> int:
    kind = "lock" if permits == 1 else "semaphore"
    label = Label("h", 1)
    request = AcquireRequest(name, owner, 600.0, 1, permits, kind, False, False, 2.0, 5.0, label)
    answer, _ = store.acquire(request, deadline())
    assert isinstance(answer, Granted)
    return answer.token


def clock(path: Path) -> int:
    with closing(sqlite3.connect(path)) as opened:
        ((base,),) = opened.execute("SELECT base FROM store")
    assert isinstance(base, int)
    return base + tokens.boot_microseconds()


def fill(path: Path, holder: str, free: set[int]) -> None:
    """Copies the row of `holder` into all slots that are not `free`, as if each had a holder."""
    columns = COLUMNS.replace("owner", "? || owner", 1).replace("seq, token", "?, ?")
    sql = f"INSERT INTO entry ({COLUMNS}, waiting) SELECT {columns}, 0 FROM entry WHERE owner = ?"
    with closing(sqlite3.connect(path)) as opened, opened:
        for slot in set(range(PERMITS)) - free:
            opened.execute(sql, (str(slot), slot + PERMITS, slot + PERMITS, holder))


def test_a_full_semaphore_is_never_further_ahead_of_the_clock_than_one_step(
    store: Store, path: Path
) -> None:
    stays, goes = (grant(store, "pool", owner, PERMITS) for owner in ("stays", "goes"))
    fill(path, "stays", {stays % PERMITS, goes % PERMITS})
    assert store.release("pool", "goes", deadline())
    last = goes
    for turn in range(30):
        # A step reads the row of each holder, which takes longer than a µs: longer than the token
        # leaps to the free slot. So the leaps do not add up.
        token = grant(store, "pool", f"o{turn}", PERMITS)
        assert token % PERMITS == goes % PERMITS
        assert last < token <= clock(path) + PERMITS
        last = token
        assert store.release("pool", f"o{turn}", deadline())
    assert last < grant(store, "beside it", "p", 1) <= clock(path) + PERMITS
