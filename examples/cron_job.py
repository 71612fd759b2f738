"""One cron job of many machines: cron starts this on each of them, and one does the work.

Start it twice: the second one finds that the work is done. Delete locks.db to begin anew.
"""

import argparse
import os
import socket
from datetime import date

import holdfast
from holdfast.fences import FileFence


def make_report() -> str:
    """The work, which takes a while. Put yours here."""
    return f"report of {date.today()}, by {socket.gethostname()}, process {os.getpid()}\n"


def run(locks: holdfast.Locks, period: float, ttl: float) -> bool:
    """Returns whether it was our turn, and the report was made."""
    lease = locks.once(
        "nightly-report", period, ttl=ttl, purpose="correctness", protects=FileFence()
    )
    if lease is None:
        return False  # another machine has made it, or is at it
    with lease:  # if this raises, the turn is given back, and the next machine tries
        text = make_report()
        lease.guard.write("report.txt", text)  # refused if somebody made up for us meanwhile
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--period", type=float, default=20 * 3600.0, help="seconds (20 hours)")
    parser.add_argument("--ttl", type=float, default=30.0, help="the lease's TTL in seconds (30)")
    options = parser.parse_args()
    url = os.environ.get("HOLDFAST_URL") or f"sqlite://{os.getcwd()}/locks.db"
    with holdfast.connect(url) as locks:
        try:
            done = run(locks, options.period, options.ttl)
        except holdfast.StaleToken as stale:
            raise SystemExit(f"another machine made up for us: {stale}") from None
    print("made the report" if done else "nothing to do")


if __name__ == "__main__":
    main()
