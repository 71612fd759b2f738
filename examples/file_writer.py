"""One writer to a file: read it, work on it, write it back, and nobody's change is lost.

Start it several times, also at once: the number in counter.txt counts them.
"""

import argparse
import os
from pathlib import Path

import holdfast
from holdfast.fences import FileFence

PATH = Path("counter.txt")


def compute(text: str) -> str:
    """The work, which takes a while. Put yours here."""
    return f"{int(text or 0) + 1}\n"


def change(locks: holdfast.Locks, ttl: float) -> str:
    """Changes the file, and returns what it says now; raises `StaleToken` if we came too late."""
    with locks.lock("counter.txt", ttl=ttl, purpose="correctness", protects=FileFence()) as lease:
        old = PATH.read_text() if PATH.exists() else ""
        new = compute(old)
        lease.guard.write(PATH, new)  # the whole file or nothing, and only if nobody newer wrote
    return new


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ttl", type=float, default=30.0, help="the lease's TTL in seconds (30)")
    options = parser.parse_args()
    url = os.environ.get("HOLDFAST_URL") or f"sqlite://{os.getcwd()}/locks.db"
    with holdfast.connect(url) as locks:
        try:
            print("wrote", change(locks, options.ttl).strip())
        except holdfast.StaleToken as stale:
            raise SystemExit(f"nothing written, begin anew: {stale}") from None


if __name__ == "__main__":
    main()
