"""`holdfast watch`: the locks of a store as they change, full screen or a line per change."""

from __future__ import annotations

import sys

from .. import checks
from .arguments import STORE_OPTIONS, UsageError, read
from .background import BackgroundCall
from .drawing import Pen
from .durations import seconds
from .store import open_store
from .wakeups import Wakeups

OPTIONS = {**STORE_OPTIONS, "--every": "1s", "--json": ""}
_LEAST_EVERY = 0.1
_LEAVING = 2.0
"""Seconds in which to let go of the store."""


def main(words: list[str]) -> int:
    """Watches until it is ended, and returns the exit status."""
    given = read(words, OPTIONS, "[PREFIX]")
    prefix = checks.prefix(given.operands[0] if given.operands else "")
    every = seconds("--every", given.options.get("--every", "1s"))
    if every < _LEAST_EVERY:
        raise UsageError(f"--every {given.options['--every']} is too often; at least 100ms")
    pen = Pen(sys.stdout)
    locks = open_store(given.options)
    wakeups = Wakeups()
    try:
        if pen.full_screen and "--json" not in given.options:
            from .watch_screen import WatchScreen

            return WatchScreen(pen, wakeups, locks, prefix, every).run()
        from .watch_lines import ChangeLines

        return ChangeLines(wakeups, locks, prefix, every).run()
    finally:
        leaving = BackgroundCall(locks.close, wakeups.nudge)
        wakeups.wait_for(leaving.ended, _LEAVING)
