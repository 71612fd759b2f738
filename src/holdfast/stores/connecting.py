"""Connecting by a library of C code, and the end of the process, which waits a moment for that.

Threads in the background run on while a process ends. As its very last step OpenSSL takes its tables
down, and a thread that is inside of it by then crashes the process: whatever it has done, its exit
status is that of a segmentation fault.
"""

from __future__ import annotations

import atexit
import os
import time
from threading import current_thread, main_thread

from ..errors import BackendUnavailable

MOMENT = 1.0
"""Seconds that the end of the process waits for threads that connect, at most."""
LOOK_AGAIN = 0.002

_under_way: set[connecting] = set()
_ends = False


class connecting:
    """The time for which a thread connects: `with connecting():`. None begins in the background when
    the process ends."""

    def __enter__(self) -> None:
        if _ends and current_thread() is not main_thread():
            raise BackendUnavailable("this process is ending")
        _under_way.add(self)

    def __exit__(self, *details: object) -> None:
        _under_way.discard(self)


def _await_others() -> None:
    """Waits for the threads that connect. Exit handlers run in the main thread, which does not."""
    global _ends
    _ends = True
    until = time.monotonic() + MOMENT
    while _under_way and time.monotonic() < until:
        time.sleep(LOOK_AGAIN)


def _forget() -> None:
    """Forgets the threads of the parent, in a forked child."""
    global _ends
    _ends = False
    _under_way.clear()


atexit.register(_await_others)
os.register_at_fork(after_in_child=_forget)
