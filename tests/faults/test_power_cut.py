"""Case 10: after a power cut every token is above every one that was ever granted."""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from faults import actors
from faults.actors import Stage, now, run

# The machine has another boot id, its boot clock starts again, and its wall clock lost an hour.
AFTER_THE_CUT = """
import time
real, real_ns, boot, boot_ns = time.time, time.time_ns, time.clock_gettime, time.clock_gettime_ns
booted = BOOTED
time.time, time.time_ns = lambda: real() - 3600, lambda: real_ns() - 3600 * 10**9
time.clock_gettime = lambda clock: boot(clock) - booted
time.clock_gettime_ns = lambda clock: boot_ns(clock) - int(booted * 10**9)
from holdfast.stores.sqlite import location
timens = location.clock_identity()[1]
location.clock_identity = lambda: ("another boot", timens)
"""
GRANTS = """max(
    (lease.token, lease.release())[0]
    for _ in range(300) for lease in [me.locks.lock("x").acquire()]
)"""


def what_is_left(stage: Stage, tmp_path: Path) -> Path:
    """Returns a folder with what has reached the disk at the least, once a first grant was made.

    The log's index is never there after a cut, or is of no use.
    """
    left = tmp_path / "after"
    (left / "locks.db-live").mkdir(parents=True)
    for suffix in ("", "-wal", "-live/id"):
        shutil.copy(f"{stage.path}{suffix}", f"{left}/locks.db{suffix}")
    return left


def test_tokens_rise_across_a_power_cut(stage: Stage, tmp_path: Path) -> None:
    before = stage.actor()
    kept = before.acquire("kept", ttl=3000.0)
    on_the_disk = what_is_left(stage, tmp_path)
    highest = before.ask("run", code=GRANTS)
    held = before.acquire("held when it came")
    assert held["token"] > highest > kept["token"]
    before.kill()
    with actors.stage(str(on_the_disk)) as after:
        new_boot = AFTER_THE_CUT.replace("BOOTED", str(now() - 5))
        first = after.actor(prelude=new_boot)
        assert first.ask("list") == []  # nobody of before is alive
        with closing(sqlite3.connect(after.path)) as connection:
            assert connection.execute("SELECT count(*) FROM entry").fetchone() == (0,)
        tokens = [first.attempt(name)["token"] for name in ("kept", "x", "new")]
        second = after.actor(prelude=new_boot)
        tokens.append(second.attempt("y")["token"])
        assert min(tokens) > held["token"]
        assert tokens == sorted(set(tokens))
        assert second.attempt("kept") is None


def test_the_wall_clock_stands_still_across_the_cut(stage: Stage, tmp_path: Path) -> None:
    """Before it and after it the wall clock is of no help."""
    still = """
import time
time.time, time.time_ns = lambda: 17e8, lambda: 17 * 10**17
"""
    before = stage.actor(prelude=still)
    before.acquire("kept")
    on_the_disk = what_is_left(stage, tmp_path)
    highest = before.ask("run", code=GRANTS)
    before.kill()
    with actors.stage(str(on_the_disk)) as after:
        first = after.actor(prelude=AFTER_THE_CUT.replace("BOOTED", str(now() - 5)) + still)
        assert first.attempt("x")["token"] > highest


def test_only_the_grant_that_raises_the_ceiling_waits_for_the_disk(tmp_path: Path) -> None:
    calls, marks = str(tmp_path / "calls"), str(tmp_path / "marks")
    trace = ("strace", "-f", "-y", "-o", calls, "-e", "trace=fdatasync,fsync,write")
    run("syncs", f"sqlite://{tmp_path}/locks.db", marks, before=trace)
    synced: dict[str, int] = {}
    moment = ""
    for line in Path(calls).read_text().splitlines():
        mark = re.search(r'write\(\d+<[^>]*/marks>, "(.*?)\\n"', line)
        if mark:
            moment = mark[1]
            synced[moment] = 0
        elif re.search(r"(fdatasync|fsync)\(\d+<[^>]*-wal>\) += 0", line) and moment:
            synced[moment] += 1
        else:
            assert not (moment and "sync(" in line and "resumed" in line), line
    assert len(synced) == 25
    durable = {moment for moment, times in synced.items() if times and moment != "close"}
    # The first after opening, and the first that the clock put above the ceiling; before they
    # were told. The others do not wait, nor does any release.
    assert durable == {"begin 0", "begin 10"}
