"""A janitor: a small process that outlives this one, and then ends and removes what it left.

It hears of everything that is started and made, over a pipe. When this process ends, however it ends,
the pipe is closed, and the janitor does the rest.
"""

from __future__ import annotations

import os
import secrets
import sys
import threading
from pathlib import Path

from .processes import began_at

PROGRAM = Path(__file__).with_name("janitor_process.py")
MARK = "HOLDFAST_CHAOS_RUN"
"""The variable by which processes are found that ended up outside of everything that was told."""


class Janitor:
    """The janitor of one process, started when there is first something to look after."""

    def __init__(self) -> None:
        self.mark = f"{os.getpid()}-{secrets.token_hex(8)}"
        self._pipe = -1
        self._told: dict[str, None] = {}
        """The things that it knows of, so that another one can be told."""
        self._mutex = threading.Lock()

    def watch_process(self, pid: int) -> None:
        """Has the process, its group, and all that they start be killed when this one ends."""
        self._add(f"process {pid} {began_at(pid)}")

    def forget_process(self, pid: int) -> None:
        with self._mutex:
            for line in [line for line in self._told if line.startswith(f"process {pid} ")]:
                self._remove(line)

    def watch_folder(self, folder: Path) -> None:
        """Has the folder be removed when this process ends."""
        self._add(f"folder {folder}")

    def forget_folder(self, folder: Path) -> None:
        with self._mutex:
            self._remove(f"folder {folder}")

    def told(self) -> list[str]:
        """Returns all that it looks after now."""
        with self._mutex:
            return list(self._told)

    def forget_pipe(self) -> None:
        """For a forked child: as long as it had the pipe open, the parent would not seem to end."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1

    def _add(self, line: str) -> None:
        with self._mutex:
            self._told[line] = None
            self._tell(f"+{line}")

    def _remove(self, line: str) -> None:
        if line in self._told:
            del self._told[line]
            self._tell(f"-{line}")

    def _tell(self, line: str) -> None:
        if self._pipe >= 0:
            try:
                os.write(self._pipe, line.encode() + b"\n")
                return
            except BrokenPipeError:  # somebody has ended it
                os.close(self._pipe)
        self._pipe = self._spawn()
        os.write(self._pipe, b"".join(b"+%b\n" % told.encode() for told in self._told))

    def _spawn(self) -> int:
        """Starts the janitor's process, and returns the pipe to it."""
        reading, writing = os.pipe()
        nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
        try:
            os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", str(PROGRAM), f"{MARK}={self.mark}"],
                {**os.environ, MARK: ""},
                file_actions=[(os.POSIX_SPAWN_DUP2, reading, 0), *nowhere],
                setsid=True,
            )
        except BaseException:
            os.close(writing)
            raise
        finally:
            os.close(reading)
        return writing


_janitor: Janitor | None = None
_mutex = threading.Lock()


def janitor() -> Janitor:
    """Returns the janitor of this process."""
    global _janitor
    with _mutex:
        if _janitor is None:
            _janitor = Janitor()
        return _janitor


def _forget() -> None:
    global _janitor, _mutex
    _mutex = threading.Lock()
    if _janitor is not None:
        _janitor.forget_pipe()
        _janitor = None


os.register_at_fork(after_in_child=_forget)
