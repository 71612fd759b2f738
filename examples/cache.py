"""A cache without a stampede: when a value is too old, one process computes it, not all of them.

Start it several times at once: one of them computes. Meanwhile the others take the old value; if
there is none, they wait for the new one.
"""

import argparse
import os
import time
from contextlib import closing, suppress
from pathlib import Path

import holdfast

PATH = Path("front-page.html")


def compute() -> str:
    """The expensive thing. Put yours here."""
    return f"<p>made by process {os.getpid()}</p>\n"


def cached(most: float) -> str | None:
    """Returns what is in the cache, unless it is older than `most` seconds."""
    try:
        return PATH.read_text() if time.time() - PATH.stat().st_mtime <= most else None
    except FileNotFoundError:
        return None


def get(locks: holdfast.Locks, fresh: float, ttl: float) -> str:
    """Returns the value: a fresh one, or an old one while somebody else computes it."""
    value = cached(fresh)
    if value is not None:
        return value
    old = cached(float("inf"))
    try:
        wait = 60.0 if old is None else 0.0
        lease = locks.lock("front-page", ttl=ttl).try_acquire(timeout=wait)
    except holdfast.BackendUnavailable:
        lease = None  # without a lock store it is slow, not broken
    if lease is None:
        return store(compute()) if old is None else old
    with suppress(holdfast.LeaseLost), lease:  # lost: somebody else computes it, too; no harm
        value = cached(fresh)  # somebody may have been quicker
        if value is None:
            value = store(compute())
    return store(compute()) if value is None else value


def store(value: str) -> str:
    """Puts a value into the cache, whole or not at all, and returns it."""
    new = PATH.with_suffix(f".{os.getpid()}")
    new.write_text(value)
    new.rename(PATH)
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fresh", type=float, default=60.0, help="seconds for which it is fresh")
    parser.add_argument("--ttl", type=float, default=30.0, help="the lease's TTL in seconds (30)")
    options = parser.parse_args()
    url = os.environ.get("HOLDFAST_URL") or f"sqlite://{os.getcwd()}/locks.db"
    with closing(holdfast.connect(url)) as locks:  # not opened yet: the store may be down
        print(get(locks, options.fresh, options.ttl), end="")


if __name__ == "__main__":
    main()
