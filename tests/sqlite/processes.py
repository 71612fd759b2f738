"""Other processes for the tests of the embedded store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Process = subprocess.Popen[str]
Start = Callable[..., Process]


@contextmanager
def starter(folder: str) -> Iterator[Start]:
    """Starts Python code with `folder` and more as its arguments; all are killed at the end."""
    started: list[Process] = []

    def start(code: str, *arguments: str) -> Process:
        process = subprocess.Popen(
            [sys.executable, "-c", code, folder, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with whatever it has started itself
            process.communicate()


def line(process: Process) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: Process, text: str = "go") -> None:
    assert process.stdin is not None
    process.stdin.write(text + "\n")
    process.stdin.flush()
