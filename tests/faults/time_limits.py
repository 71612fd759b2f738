"""`python -m faults.time_limits URL SECONDS`: a signal's handler raises TimeoutError at random moments.

As people do to limit the time of some code. It is an OSError, as those of sockets and files are. Prints
what is wrong then: whatever else came out, or did not; who holds beside another; what was left behind.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import holdfast

PATIENCE = 25.0


class Limit:
    """The signals: at most one error in each turn."""

    def __init__(self) -> None:
        self.error: TimeoutError | None = None
        """That of this turn."""
        self._armed = False
        signal.signal(signal.SIGALRM, self._strike)

    def begin(self, after: float) -> None:
        self.error = None
        self._armed = True
        signal.setitimer(signal.ITIMER_REAL, after)

    def end(self) -> None:
        self._armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def lost(self) -> str:
        """Returns where an error came that did not come out; nothing if it came in a finalizer.

        Python itself swallows those. One that our code has caught has passed through it.
        """
        stack = traceback.extract_tb(self.error.__traceback__ if self.error else None)
        return _shown(stack) if any("holdfast" in one.filename for one in stack) else ""

    def _strike(self, *_: object) -> None:
        if self._armed:
            self._armed = False
            self.error = TimeoutError("the time of this turn is over")
            raise self.error


def main() -> None:
    sys.unraisablehook = lambda unraisable: None  # one that came in a finalizer
    warnings.simplefilter("ignore", ResourceWarning)  # a socket that was being opened
    url, seconds = sys.argv[1], float(sys.argv[2])
    prefix = f"limits-{os.getpid()}-"
    others = holdfast.connect(url, label="others")
    locks = holdfast.connect(url, label="limited")
    others.lock(f"{prefix}busy").acquire()
    kept = locks.lock(f"{prefix}kept").acquire()
    numbers = iter(range(10**9))
    limit = Limit()

    def take() -> None:
        with locks.lock(f"{prefix}{next(numbers)}", timeout=20.0):
            pass

    def ask() -> None:
        assert locks.lock(f"{prefix}busy").try_acquire() is None, "two holders"

    verbs: tuple[Callable[[], Any], ...] = (
        take,
        take,
        ask,
        kept.renew,
        lambda: locks.inspect(f"{prefix}busy"),
    )
    longest = {verb: _typical(verb) * 1.3 for verb in verbs}
    chances = random.Random(os.urandom(8))
    came_out = 0
    wrong: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        verb = chances.choice(verbs)
        try:
            limit.begin(chances.uniform(1e-6, longest[verb]))
            verb()
            limit.end()
        except TimeoutError:
            came_out += 1
        except BaseException as error:
            wrong[f"{error!r} in {_shown(traceback.extract_tb(error.__traceback__))}"] += 1
        else:
            if place := limit.lost():
                wrong[f"an error did not come out of {place}"] += 1
        limit.end()
    said = [f"{times} times {what}" for what, times in wrong.items()]
    if not came_out:
        said.append("no error came out")
    if not kept.held:
        said.append(f"lost: {kept}")
    kept.release()
    end = time.monotonic() + PATIENCE
    while len(left := others.list(prefix)) > 1 and time.monotonic() < end:
        time.sleep(0.05)  # until what was interrupted is cleaned up behind
    said.extend(f"a ghost: {state}" for state in left[1:])
    locks.close()
    others.close()
    print("\n".join(said), end="")


def _shown(stack: traceback.StackSummary) -> str:
    return " < ".join(f"{os.path.basename(one.filename)}:{one.lineno}" for one in stack[:-6:-1])


def _typical(verb: Callable[[], Any]) -> float:
    times = []
    for _ in range(15):
        began = time.perf_counter()
        verb()
        times.append(time.perf_counter() - began)
    return sorted(times)[len(times) // 2]


if __name__ == "__main__":
    main()
