"""An API that allows three calls at a time, from all processes and machines together.

Start it several times at once: never more than three of them are inside.
"""

import argparse
import os
import time

import holdfast


def call_api(number: int) -> None:
    """The call, which takes a while. Put yours here."""
    time.sleep(0.1)


def call(locks: holdfast.Locks, number: int, permits: int, ttl: float) -> None:
    """Calls the API when there is room; raises `LockTimeout` if there is none for a minute."""
    with locks.semaphore("partner-api", permits=permits, ttl=ttl, timeout=60.0) as lease:
        print(f"call {number}, one of {permits} at a time: number {lease.slot}", flush=True)
        lease.ensure()  # it may have taken us long to get here
        call_api(number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=3, help="how many calls to make")
    parser.add_argument("--permits", type=int, default=3, help="how many at a time, everywhere")
    parser.add_argument("--ttl", type=float, default=30.0, help="the lease's TTL in seconds (30)")
    options = parser.parse_args()
    url = os.environ.get("HOLDFAST_URL") or f"sqlite://{os.getcwd()}/locks.db"
    with holdfast.connect(url) as locks:
        for number in range(1, options.calls + 1):
            call(locks, number, options.permits, options.ttl)


if __name__ == "__main__":
    main()
