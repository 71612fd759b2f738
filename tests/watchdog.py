"""The end of a test that hangs: its name, every thread's stack, and nothing left behind.

A process of the tests that is stuck cannot be trusted to end itself, and what it has forked keeps its
pipes open. So whoever started the processes watches: it hears of each test that begins and ends.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

LIMIT = 600.0
"""Seconds one test may take: enough for the slowest beside a load of 16 on two processors."""
LOOK = 5.0
"""Seconds between two looks at the tests that run."""
DUMPING = 5.0
"""Seconds in which a process writes down the stacks of its threads."""


class Watchdog:
    """The watch over the tests that run; it is a plugin of the process that people started."""

    def __init__(self, config: pytest.Config, limit: float = LIMIT) -> None:
        self._config = config
        self._limit = limit
        self._began: dict[str, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def pytest_sessionstart(self) -> None:
        self._thread.start()

    def pytest_sessionfinish(self) -> None:
        self._over.set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._began[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._began.pop(nodeid, None)

    def _watch(self) -> None:
        while not self._over.wait(min(LOOK, self._limit)):
            now = time.monotonic()
            running = {name: now - began for name, began in list(self._began.items())}
            if any(seconds > self._limit for seconds in running.values()):
                self._end(running)

    def _end(self, running: dict[str, float]) -> None:
        """Ends this process and all below it, with the stacks of the tests and then their names."""
        capture = self._config.pluginmanager.getplugin("capturemanager")
        if capture is not None:
            capture.suspend_global_capture()
        below = descendants(os.getpid())
        if self._config.getoption("numprocesses", None):
            for number in descendants(os.getpid(), deep=False):
                send(number, signal.SIGABRT)  # pytest lets it write the stacks of all threads
            time.sleep(DUMPING)
        else:
            faulthandler.dump_traceback()
        for number in {*below, *descendants(os.getpid())}:
            send(number, signal.SIGKILL)
        print(file=sys.stderr)
        for name, seconds in sorted(running.items(), key=lambda item: item[1]):
            word = "HANGS" if seconds > self._limit else "was running"
            print(f"{word}: {name}, for {seconds:.0f} s", file=sys.stderr, flush=True)
        os._exit(1)


def descendants(number: int, *, deep: bool = True) -> list[int]:
    """Returns the processes that `number` started and, if `deep`, those that they started."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # The name of a program, in parentheses, may have spaces and parentheses of its own.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    todo = [number]
    while todo:
        children = parents.get(todo.pop(), [])
        found += children
        todo += children if deep else []
    return found


def send(number: int, what: signal.Signals) -> None:
    """Sends a signal to a process, if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(number, what)
