"""Programs of the tests, in processes of their own: what they say, and how they end."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from holdfast.chaos.servers.processes import end_group, start

TESTS = Path(__file__).resolve().parent.parent
LIMIT = 120.0
"""Seconds for anything that is waited for: a few, and many times that beside other work."""


class Program:
    """A Python program, whose lines on standard output are read as they come."""

    def __init__(self, *words: str, folder: Path | None = None, **environment: str) -> None:
        path = os.pathsep.join([str(TESTS), str(folder or TESTS)])
        self.process = start(
            [sys.executable, *words],
            environment={"PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **environment},
            output=subprocess.PIPE,
            errors=subprocess.STDOUT,
            folder=folder,
        )
        self.seen: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.seen.append(line.decode().rstrip())
            self._lines.put(self.seen[-1])
        self._lines.put("(the end)")

    def says(self, words: str) -> str:
        """Waits for a line that has these words in it, and returns it."""
        until = monotonic() + LIMIT
        while (left := until - monotonic()) > 0:
            try:
                line = self._lines.get(timeout=left)
            except queue.Empty:
                break
            if words in line:
                return line
            if line == "(the end)":
                break
        raise AssertionError(f"{words!r} was not said:\n" + "\n".join(self.seen))

    def kill(self) -> None:
        """Kills the program with its whole group."""
        end_group(self.process)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def program(*words: str, folder: Path | None = None, **environment: str) -> Iterator[Program]:
    """Yields a program, which is killed at the end."""
    running = Program(*words, folder=folder, **environment)
    try:
        yield running
    finally:
        running.kill()


def until(condition: Callable[[], object]) -> None:
    """Waits until the condition holds."""
    limit = monotonic() + LIMIT
    while not condition():
        assert monotonic() < limit, "it has not come to that"
        sleep(0.02)


def said_without(package: str, module: str) -> str:
    """Returns what is said where `module` is imported and `package` is not installed."""
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        f"try: import {module}\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout
