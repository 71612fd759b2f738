"""A leader that runs the scheduler: start it on each machine, and one of them runs the jobs.

Start it in two terminals, and end the first one in any way you like: the second takes over.
"""

import argparse
import os
import signal
import socket
import sqlite3
import sys
import time
from contextlib import closing

import holdfast
from holdfast.fences import SqlFence


def run_due_jobs(database: sqlite3.Connection, term: holdfast.Term) -> None:
    """The jobs that are due, in a transaction that only the leader can commit. Put yours here."""
    with database:
        term.guard(database, "scheduler")  # raises StaleToken if a newer leader has been here
        database.execute("INSERT INTO runs VALUES (?, ?)", [os.getpid(), term.token])


def lead(election: holdfast.Election, database: sqlite3.Connection, end: float) -> None:
    """Waits until we lead, then runs jobs until the term or the time is over."""
    with election.campaign(timeout=max(0.0, end - time.monotonic())) as term:
        print("leading, with token", term.token, flush=True)
        while time.monotonic() < end:
            term.ensure()  # before each round: a leader that was cut off stops in time
            run_due_jobs(database, term)
            term.wait_lost(timeout=0.2)  # a sleep that ends early if the term does


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to go on (3)")
    parser.add_argument("--ttl", type=float, default=30.0, help="the lease's TTL in seconds (30)")
    parser.add_argument("--database", default="jobs.db")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # resigns, so that nobody has to wait
    url = os.environ.get("HOLDFAST_URL") or f"sqlite://{os.getcwd()}/locks.db"
    end = time.monotonic() + options.seconds
    with (
        closing(sqlite3.connect(options.database, timeout=60)) as database,
        closing(holdfast.connect(url)) as locks,  # not opened yet: the store may be down
    ):
        database.execute("CREATE TABLE IF NOT EXISTS runs (pid INTEGER, token INTEGER)")
        election = locks.election(
            "scheduler",
            value=f"{socket.gethostname()}:{os.getpid()}",  # where others find the leader
            ttl=options.ttl,
            purpose="correctness",
            protects=SqlFence(database),
        )
        while time.monotonic() < end:
            try:
                lead(election, database, end)
            except holdfast.LockTimeout:
                print("another one leads", flush=True)
            except (holdfast.LeaseLost, holdfast.StaleToken, holdfast.BackendUnavailable) as error:
                print("not leading:", error, flush=True)
                time.sleep(1.0)  # then stand again


if __name__ == "__main__":
    main()
