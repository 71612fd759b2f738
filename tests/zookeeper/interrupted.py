"""`python -m zookeeper.interrupted URL`: takes a lock while a signal handler raises again and again."""

from __future__ import annotations

import gc
import random
import signal
import sys
import time
from typing import Any

import holdfast
from holdfast.chaos.servers.zookeeper import TICK
from worlds.threads import eventually

NUMBER = 400
LONGEST = 0.01
"""Seconds after which the handler raises, at the latest: about as long as a lock is taken."""


class Interrupted(Exception):
    """Raised by the handler, as a soft time limit is."""


def interrupt(*_: object) -> None:
    raise Interrupted


def main(url: str) -> None:
    signal.signal(signal.SIGALRM, interrupt)
    draw = random.Random(1).random
    with holdfast.connect(url, tick=TICK) as locks, holdfast.connect(url, tick=TICK) as others:
        locks.lock("x").acquire().release()
        for _ in range(NUMBER):
            began = time.monotonic()
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 1e-5 + draw() * LONGEST)
                    with locks.lock("x", ttl=60.0, timeout=20.0):
                        pass
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0.0)
            except Interrupted:
                pass
            assert time.monotonic() - began < 10.0, "it was held up"
        gc.collect()
        with others.lock("x", timeout=20.0):  # nothing is held for nobody
            pass
        live: Any = locks._live
        eventually(lambda: not live.backend._attempts._attempts)


if __name__ == "__main__":
    main(sys.argv[1])
