"""strace, attached to processes that run: system calls that are slow, fail, or are the last."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from .errors import ServerError
from .processes import end_group, forget, make_folder, remove_folder, start

LIMIT = 10.0
CALL = re.compile(r"^(?:\d+ +)?\w+\(", re.MULTILINE)
"""The beginning of a call in what strace writes, not its end where that stands apart."""
KILLED = "+++ killed by SIGKILL"


class Trace:
    """A fault in the system calls of some processes, and of those that they start, until `stop`.

    `injection` is in strace's words, without `inject=`: `fsync,fdatasync:error=EIO`. With a `path`,
    only calls to that file are hit.
    """

    def __init__(self, pids: Sequence[int], injection: str, path: str = "") -> None:
        program = shutil.which("strace")
        if program is None:
            raise ServerError("strace is not installed: apt-get install strace")
        self._folder = make_folder("strace")
        self._kills = ":signal=SIGKILL" in injection
        self._count = 0
        calls = injection.partition(":")[0]
        command = [program, "-f", "-qq", "-o", str(self._folder / "calls")]
        command += ["-e", f"trace={calls}", "-e", f"inject={injection}"]
        command += ["-P", path] if path else []
        for pid in pids:
            command += ["-p", str(pid)]
        with (self._folder / "log").open("wb") as log:
            self._process = start(command, output=log)
        limit = time.monotonic() + LIMIT
        while not all(map(_is_traced, pids)):
            if self._process.poll() is not None or time.monotonic() > limit:
                said = (self._folder / "log").read_text(errors="replace").strip()
                self.stop()
                raise ServerError(f"strace cannot attach: {said or 'it did not in time'}")
            time.sleep(0.002)

    def count(self) -> int:
        """Returns how many calls something was done to so far, or until `stop`.

        A call that is slow or fails counts from its beginning; one that kills, when it has killed.
        """
        with suppress(FileNotFoundError):
            text = (self._folder / "calls").read_text(errors="replace")
            self._count = text.count(KILLED) if self._kills else len(CALL.findall(text))
        return self._count

    def stop(self) -> None:
        """Lets go of the processes, which go on."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(2.0)
            except Exception:
                end_group(self._process)
        forget(self._process)
        self.count()  # while there is something to be read
        remove_folder(self._folder)


def _is_traced(pid: int) -> bool:
    """Tells whether every thread of the process is traced; also true of one that has ended."""
    try:
        tasks = [
            Path(f"/proc/{pid}/task/{task}/status") for task in os.listdir(f"/proc/{pid}/task")
        ]
    except FileNotFoundError:
        return True
    for task in tasks:
        with suppress(OSError):
            text = task.read_text()
            if "TracerPid:\t0\n" in text and "State:\tZ" not in text and "State:\tX" not in text:
                return False
    return True
