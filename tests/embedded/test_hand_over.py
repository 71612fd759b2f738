"""The hand-over in one statement does what the ledger does, in whatever state the lock is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast.clock import BootClock
from holdfast.embedded.store import Store

CASES = 400
CLAIM, LONG = 6.0, 20.0
COLUMNS = 21
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
def stores(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    """One that hands over in one statement where it can, and one that never does."""
    quick, slow = Store(str(tmp_path / "quick.db")), Store(str(tmp_path / "slow.db"))
    for store in (quick, slow):
        store.open(_clock.now() + 5.0)
    yield quick, slow
    for store in (quick, slow):
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


def test_both_ways_agree(stores: tuple[Store, Store]) -> None:
    dice = random.Random(2)
    for _ in range(CASES):
        capacity = dice.choice([1, 1, 1, 3])
        rows = a_state(dice, capacity)
        owner = dice.choice([row.owner for row in rows] + ["h0", "h0", "nobody"])
        seen = []
        for store, crowded in zip(stores, (float("inf"), 0.0), strict=True):
            put(store, rows, capacity)
            store._crowded["x"] = crowded
            released = store.release("x", owner, _clock.now() + 5.0)
            state = store.inspect("x", _clock.now() + 5.0)
            for holder in state.holders:
                assert holder.owner.startswith("h") or holder.token > 1000 + capacity
            holders = [(holder.owner, holder.remaining > CLAIM) for holder in state.holders]
            seen.append((released, holders, [waiter.owner for waiter in state.waiters]))
        assert seen[0] == seen[1], (owner, rows)
