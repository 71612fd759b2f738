"""The hand-over in one statement does what the ledger does, in whatever state the lock is; and how a
release is announced."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast.clock import BootClock
from holdfast.entries import Ask
from holdfast.model import Label
from holdfast.stores.sqlite.store import Store
from worlds.descriptors import readable

CASES = 400
CLAIM, LONG = 6.0, 20.0
COLUMNS = 21
INF = float("inf")
_clock = BootClock()


class Row(NamedTuple):
    owner: str
    waiting: int
    seq: int
    token: int
    expires: float
    process: str
    barge: int


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[list[Store]]:
    """One that hands over in one statement where it can, one that tries to when it has been idle, and
    one that never does."""
    made = [Store(str(tmp_path / name)) for name in ("quick.db", "idle.db", "slow.db")]
    for store in made:
        store.open(_clock.now() + 5.0)
    yield made
    for store in made:
        store.close()


def a_state(dice: random.Random, capacity: int) -> list[Row]:
    now = _clock.now()

    def row(owner: str, waiting: int, seq: int, token: int) -> Row:
        process = dice.choice(["ours", "ours", "none", "dead"])
        expires = now + dice.choice([-5.0, LONG, LONG])
        return Row(owner, waiting, seq, token, expires, process, int(dice.random() < 0.2))

    rows = []
    for number in range(dice.randint(0, capacity)):
        token = 1000 + number
        alone = capacity == 1 or (number == 0 and dice.random() < 0.5)
        rows.append(row(f"h{number}", 0, 0 if alone else token, token))
    return rows + [row(f"w{number}", 1, 2 * number + 1, 0) for number in range(dice.randint(0, 4))]


def put(store: Store, rows: list[Row], capacity: int) -> None:
    connection: Any = store._connection
    connection.execute("DELETE FROM entry")
    kind = "lock" if capacity == 1 else "semaphore"
    for row in rows:
        process = {"ours": store.process, "none": "", "dead": "0123456789abcdef"}[row.process]
        values = (
            *(
                "x",
                row.waiting,
                row.seq,
                row.owner,
                row.token,
                row.expires,
                30.0,
                1,
                capacity,
                kind,
            ),
            *(row.barge, int(not row.waiting), CLAIM, 5.0, 0.0, process, f"{process}-1.sock", ""),
            *("host", 1, ""),
        )
        connection.execute(f"INSERT INTO entry VALUES ({', '.join('?' * COLUMNS)})", values)


def test_all_ways_agree(stores: list[Store]) -> None:
    dice = random.Random(2)
    for _ in range(CASES):
        capacity = dice.choice([1, 1, 1, 3])
        rows = a_state(dice, capacity)
        owner = dice.choice([row.owner for row in rows] + ["h0", "h0", "nobody"])
        seen = []
        for store, crowded, active in zip(stores, (INF, 0.0, 0.0), (INF, 0.0, INF), strict=True):
            put(store, rows, capacity)
            store._crowded["x"] = crowded
            store.active = active
            released = store.release("x", owner, _clock.now() + 5.0)
            state = store.inspect("x", _clock.now() + 5.0)
            for holder in state.holders:
                assert holder.owner.startswith("h") or holder.token > 1000 + capacity
            holders = [(holder.owner, holder.remaining > CLAIM) for holder in state.holders]
            seen.append((released, holders, [waiter.owner for waiter in state.waiters]))
        assert seen[0] == seen[1] == seen[2], (owner, rows)


class Watched(Store):
    """A store whose process's pipe we watch, as another process would."""

    pipe: int


def announced(store: Watched) -> bool:
    """Whether those who watch us were told since the last look, as they see it."""
    return readable(store.pipe, 0) and bool(os.read(store.pipe, 64))


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    store = Watched(str(tmp_path / "locks.db"))
    store.open(_clock.now() + 5.0)
    store.pipe = os.open(f"{store.live}/{store.process}.pipe", os.O_RDONLY | os.O_NONBLOCK)
    yield store
    os.close(store.pipe)
    store.close()


def an_ask(owner: str) -> Ask:
    return Ask("x", owner, 30.0, 1, 1, "lock", True, False, 2.0, 5.0, Label("host", 1, ""))


def test_a_release_is_announced_after_a_pause_only(watched: Watched) -> None:
    deadline = _clock.now() + 30.0
    watched.acquire(an_ask("first"), deadline)
    watched.active = INF  # just now, however long this machine has stalled since
    assert watched.release("x", "first", deadline)
    assert not announced(watched)
    watched.acquire(an_ask("second"), deadline)
    watched.active = 0.0
    assert watched.release("x", "second", deadline)
    assert announced(watched)
    watched.active = 0.0
    watched.acquire(an_ask("third"), deadline)  # only releases are
    assert not announced(watched)


def test_a_release_that_was_not_ours_harms_nobody_after_a_pause(watched: Watched) -> None:
    deadline = _clock.now() + 30.0
    watched.acquire(an_ask("holder"), deadline)
    watched.acquire(an_ask("waiter"), deadline)
    watched.active = 0.0
    assert not watched.release("x", "somebody", deadline)
    state = watched.inspect("x", deadline)
    assert [one.owner for one in state.holders] == ["holder"]
    assert [one.owner for one in state.waiters] == ["waiter"]
