"""`python -m faults.squall SECONDS`: a signal's handler raises at random moments, all over the engine.

As `storm`, which is about the store. Prints what is wrong then: what else came out, or was left behind.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter

import holdfast

SHORTEST, LONGEST = 1e-6, 6e-4
"""Seconds from the beginning of a turn to the signal."""
PATIENCE = 25.0


class TimeIsUpError(Exception):
    """The user's own exception."""


class Squall:
    """The signals: at most one exception in each turn."""

    def __init__(self) -> None:
        self.armed = False
        signal.signal(signal.SIGALRM, self._strike)

    def begin(self, after: float) -> None:
        self.armed = True
        signal.setitimer(signal.ITIMER_REAL, after)

    def _strike(self, *_: object) -> None:
        if self.armed:
            self.armed = False
            raise TimeIsUpError


def main() -> None:
    # An exception that comes inside `Thread.start` or a finalizer is told there: not our subject.
    sys.unraisablehook = lambda unraisable: None
    locks = holdfast.connect("memory://")
    kept = locks.lock("kept", ttl=3.0).acquire()
    again, permits, both = (
        locks.rlock("again", ttl=3.0),
        locks.semaphore("permits", permits=2, ttl=3.0),
        locks.rwlock("both", ttl=3.0),
    )

    def nested() -> None:
        with again, again, again:
            pass

    def renewed() -> None:
        with permits as lease:
            lease.renew()
            with lease:
                lease.ensure()

    def read_and_written() -> None:
        with both.read():
            pass
        with both.write():
            pass

    several, with_kept = locks.multi(["c", "a", "b"], ttl=3.0), locks.multi(["a", "kept"], ttl=3.0)

    def taken_together() -> None:
        with several as lease:
            lease.ensure()
        assert with_kept.try_acquire() is None
        with several:
            pass

    squall = Squall()
    chances = random.Random(os.urandom(8))
    came_out = 0
    wrong: Counter[str] = Counter()
    end = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < end:
        turn = chances.choice((nested, renewed, read_and_written, taken_together))
        try:
            squall.begin(chances.uniform(SHORTEST, LONGEST))
            turn()
            squall.armed = False
        except TimeIsUpError:
            came_out += 1
        except BaseException as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            wrong[f"{error!r} in {frame.name}, {os.path.basename(frame.filename)}"] += 1
        squall.armed = False
    said = [f"{times} times {what}" for what, times in wrong.items()]
    if not came_out:
        said.append("no exception came out")
    if not kept.held:
        said.append(f"lost: {kept}")
    kept.release()
    gc.collect()
    end = time.monotonic() + PATIENCE
    while (left := locks.list()) and time.monotonic() < end:
        time.sleep(0.01)  # until the keeper has freed what was dropped
    said.extend(f"a ghost: {state}" for state in left)
    session = locks._live
    assert session is not None
    if any((session.leases, session.tickets, session.waiters, session.reentrant)):
        said.append(f"in the session: {session.leases} {session.tickets} {session.reentrant}")
    locks.close()
    print("\n".join(said), end="")


if __name__ == "__main__":
    main()
