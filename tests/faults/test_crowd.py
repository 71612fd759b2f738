"""Case 3: two hundred processes want one lock, and some of them are killed."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

from faults import checker
from faults.actors import Stage, run

PROCESSES, TURNS, KILLS = 200, 6, 10
SEED = int(os.environ.get("HOLDFAST_SEED", "20"))


def test_two_hundred_processes_want_one_lock(stage: Stage) -> None:
    path = f"{stage.folder}/log"
    open(path, "x").close()
    run("crowd", stage.url, path, str(PROCESSES), str(TURNS), str(KILLS), str(SEED), limit=300.0)
    events = checker.read(path)
    assert checker.check(events) == []
    killed = {event.who for event in events if event.kind == "kill"}
    assert len(killed) == KILLS
    turns = checker.turns(events)
    for number in range(PROCESSES):
        if str(number) not in killed:
            assert turns[str(number)] == TURNS
    shares = checker.shares_when_first_is_done(events)
    del shares["first"]  # who only held the door until all were there
    assert checker.jain(shares.values()) > 0.95
    assert checker.most_overtaken(events) <= 3
    with closing(sqlite3.connect(stage.path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        # Nobody is left in it but those who were killed and not yet met again.
        (left,) = connection.execute("SELECT count(*) FROM entry WHERE waiting = 0").fetchone()
        assert left <= 1
