"""Two accounts, two locks: both or none, whatever the order, and no deadlock.

Start it in two terminals, one with --from 2 --to 1: they pass each other.
"""

import argparse
import os
import sqlite3
from contextlib import closing

import holdfast
from holdfast.fences import SqlFence


def approve(source: int, target: int, cents: int) -> None:
    """What takes longer than a transaction may: a check elsewhere, a person. Put yours here."""


def transfer(
    locks: holdfast.Locks,
    database: sqlite3.Connection,
    source: int,
    target: int,
    cents: int,
    ttl: float,
) -> None:
    """Moves money; raises `StaleToken`, and moves none, if we came too late."""
    names = [f"account:{source}", f"account:{target}"]
    fence = SqlFence(database)
    accounts = locks.multi(names, ttl=ttl, timeout=60.0, purpose="correctness", protects=fence)
    with accounts as lease:
        approve(source, target, cents)
        with database:  # one transaction
            for name in sorted(names):
                fence.guard(database, name, lease.leases[name])  # each by its own lock
            move = "UPDATE accounts SET cents = cents + ? WHERE id = ?"
            for account, change in ((source, -cents), (target, cents)):
                if database.execute(move, [change, account]).rowcount != 1:
                    raise LookupError(f"there is no account {account}")  # nothing is written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", type=int, default=1, dest="source")
    parser.add_argument("--to", type=int, default=2, dest="target")
    parser.add_argument("--cents", type=int, default=100)
    parser.add_argument("--times", type=int, default=1, help="how many such transfers to make")
    parser.add_argument("--ttl", type=float, default=30.0, help="the lease's TTL in seconds (30)")
    options = parser.parse_args()
    url = os.environ.get("HOLDFAST_URL") or f"sqlite://{os.getcwd()}/locks.db"
    with (
        closing(sqlite3.connect("bank.db", timeout=60)) as database,
        holdfast.connect(url) as locks,
    ):
        with database:
            database.execute(
                "CREATE TABLE IF NOT EXISTS accounts (id INTEGER PRIMARY KEY, cents INTEGER)"
            )
            database.execute("INSERT OR IGNORE INTO accounts VALUES (1, 10000), (2, 10000)")
        try:
            for _ in range(options.times):
                transfer(
                    locks, database, options.source, options.target, options.cents, options.ttl
                )
        except holdfast.StaleToken as stale:
            raise SystemExit(f"nothing moved, begin anew: {stale}") from None
        except LookupError as missing:
            raise SystemExit(f"nothing moved: {missing}") from None
        print(dict(database.execute("SELECT id, cents FROM accounts").fetchall()))


if __name__ == "__main__":
    main()
