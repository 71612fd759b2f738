"""`python -m faults.storm URL SECONDS`: a signal's handler raises at random moments, inside the store.

As a soft time limit does. Prints what is wrong then: whatever else came out, or was left behind.
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
from collections.abc import Callable
from typing import Any

import holdfast

SHORTEST, LONGEST = 1e-6, 8e-4
"""Seconds from the beginning of a turn to the signal."""
AGAIN = 3e-5
"""Seconds until the next signal, if the store was not at work when it came."""


class TimeIsUpError(TimeoutError):
    """The user's own exception, which is an `OSError`, as those of the store's files are."""


class Storm:
    """The signals: one exception for each `begin`, raised inside a call to the store."""

    def __init__(self, backend: Any) -> None:
        self.raised = 0
        self._armed = self._inside = False
        for name in ("acquire", "release", "renew", "wait", "inspect"):
            setattr(backend, name, self._watched(getattr(backend, name)))
        signal.signal(signal.SIGALRM, self._strike)

    def begin(self, after: float) -> None:
        self._armed = True
        signal.setitimer(signal.ITIMER_REAL, after)

    def end(self) -> None:
        self._armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _watched(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self._inside = True
            try:
                return real(*arguments)
            finally:
                self._inside = False

        return call

    def _strike(self, *_: object) -> None:
        if self._armed and self._inside:
            self._armed = False
            self.raised += 1
            raise TimeIsUpError
        if self._armed:
            signal.setitimer(signal.ITIMER_REAL, AGAIN)


def rival(url: str) -> int:
    """Returns the pid of a process that takes and frees the lock again and again."""
    pid = os.fork()
    if pid:
        return pid
    with holdfast.connect(url) as locks:
        while True:
            with locks.lock("x", timeout=60.0):
                time.sleep(0.0005)
            time.sleep(0.0005)


def descriptors() -> list[str]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            continue  # the one by which they are listed
    return found


def main() -> None:
    url, seconds = sys.argv[1], float(sys.argv[2])
    other = rival(url)
    locks = holdfast.connect(url)
    session: Any = locks._session()
    turns = 0
    # Whatever is opened once is open then: the mailbox, the pipe of those who wait.
    while turns < 50 or session.backend._poller._wake_read < 0:
        turns += 1
        with locks.lock("x", timeout=60.0):
            pass
    before = descriptors()
    storm = Storm(session.backend)
    chances = random.Random(os.urandom(8))
    came_out = 0
    wrong: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            storm.begin(chances.uniform(SHORTEST, LONGEST))
            with locks.lock("x" if chances.random() < 0.5 else "y", timeout=60.0):
                pass
            locks.inspect("x")
        except TimeIsUpError:
            came_out += 1
        except BaseException as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            wrong[f"{error!r} in {frame.name}, {os.path.basename(frame.filename)}"] += 1
        finally:
            storm.end()
    os.kill(other, signal.SIGKILL)
    os.waitpid(other, 0)
    said = [f"{times} times {what}" for what, times in wrong.items()]
    if not came_out or storm.raised != came_out:
        said.append(f"{storm.raised} exceptions were raised, {came_out} came out")
    for name in ("x", "y"):
        with locks.lock(name, timeout=20.0):
            pass
        state = locks.inspect(name)
        if state.holders or state.waiters:
            said.append(f"a ghost: {state}")
    gc.collect()
    left = Counter(descriptors()) - Counter(before)
    if left.total() > 4:  # sockets to send by, and such, may be others than before
        said.append(f"descriptors: {left}")
    if any((session.leases, session.tickets, session.waiters)):
        said.append(f"in the session: {session.leases} {session.tickets} {session.waiters}")
    locks.close()
    print("\n".join(said), end="")


if __name__ == "__main__":
    main()
