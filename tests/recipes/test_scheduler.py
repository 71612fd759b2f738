"""A leader that runs the scheduler: one at a time, also when it is killed or cut off from the store."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from pathlib import Path

from holdfast.chaos.servers.proxy import Proxy
from recipes.players import TTL, Cast, cast, until, waited_for
from stores import redis

LONG = ("--seconds", "600")


def history(machines: Cast) -> list[tuple[int, int]]:
    """Returns the token and the process of each run of the jobs, in order."""
    with closing(sqlite3.connect(machines.folder / "jobs.db", timeout=60)) as database:
        return database.execute("SELECT token, pid FROM runs ORDER BY rowid").fetchall()


def runs(machines: Cast) -> list[int]:
    """Returns the process of each run of the jobs, in order."""
    return [pid for _, pid in history(machines)]


def test_the_next_one_leads_when_the_leader_was_killed(tmp_path: Path) -> None:
    with cast(tmp_path, "scheduler") as machines:
        first = machines.player(*LONG)
        first.says("leading")
        until(lambda: first.pid in runs(machines), "a run")
        second = machines.player(*LONG)
        waited_for(machines.url, "scheduler", 1)
        first.kill()
        second.says("leading")
        until(lambda: second.pid in runs(machines), "a run of the second")
        second.process.send_signal(signal.SIGTERM)
        second.succeeded()


def test_one_that_is_cut_off_stops_and_stands_by(tmp_path: Path) -> None:
    with redis(tmp_path) as url, cast(tmp_path, "scheduler") as machines:
        proxy = Proxy(int(url.rpartition(":")[2].partition("/")[0]))
        try:
            first = machines.player(*LONG, "--ttl", str(TTL), url=proxy.url)
            first.says("leading")
            until(lambda: first.pid in runs(machines), "a run")
            second = machines.player(*LONG, "--ttl", str(TTL), url=url)
            waited_for(url, "scheduler", 1)
            proxy.stalled = True
            second.says("leading")
            first.says("not leading")
            until(lambda: second.pid in runs(machines), "a run of the second")
            proxy.stalled = False
            waited_for(url, "scheduler", 1)  # the first one stands by
            second.process.send_signal(signal.SIGTERM)
            second.succeeded()
            until(lambda: runs(machines)[-1] == first.pid, "a run of the first again")
        finally:
            proxy.close()
    seen = history(machines)
    tokens = [token for token, _ in seen]
    assert tokens == sorted(tokens)  # nobody ran jobs after a newer leader had
    assert len(set(seen)) == len(set(tokens))  # and each term is one leader's
