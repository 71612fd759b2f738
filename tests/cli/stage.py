"""The real `holdfast` in processes of its own, on a store of its own, for the tests."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import holdfast

HOLDFAST = [sys.executable, "-m", "holdfast"]
LIMIT = 28.0
"""Seconds after which something that should happen counts as not happening."""

Process = subprocess.Popen[str]


def eventually(happened: Callable[[], Any], what: str = "", limit: float = LIMIT) -> Any:
    """Wait for a true answer, and give it."""
    give_up = time.monotonic() + limit
    while not (answer := happened()):
        assert time.monotonic() < give_up, f"not within {limit} s: {what or happened}"
        time.sleep(0.01)
    return answer


def lives(pid: int) -> bool:
    """Returns True if that process runs; one that only waits to be reaped does not."""
    try:
        return _status(pid)[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def is_stopped(pid: int) -> bool:
    return _status(pid)[0] == "T"


def parent(pid: int) -> int:
    return int(_status(pid)[1])


def foreground(pid: int) -> int:
    """The process group that has the terminal of that process."""
    return int(_status(pid)[5])


def _status(pid: int) -> list[str]:
    """State, parent, group, session, terminal, foreground group, …"""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()


class Stage:
    """A folder with a store in it. Commands run there, so that they may name files simply."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "store" / "locks.db"
        self.url = f"sqlite://{self.path}"
        self.locks = holdfast.connect(self.url)
        self._started: list[Process] = []

    def environment(self, **more: str) -> dict[str, str]:
        """As the tests have it, with this store and without the user's own."""
        kept = {name: value for name, value in os.environ.items() if "HOLDFAST" not in name}
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "HOME": str(self.folder),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "HOLDFAST_URL": self.url,
            **more,
        }

    def start(
        self,
        *words: str,
        program: Sequence[str] = HOLDFAST,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Process:
        """Start `holdfast` with these words."""
        process = subprocess.Popen(
            [*program, *words],
            cwd=self.folder,
            env=self.environment() if env is None else env,
            text=True,
            **{
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                **options,
            },
        )
        self._started.append(process)
        return process

    def run(self, *words: str, **options: Any) -> Ended:
        """Start it, and wait for its end."""
        return ended(self.start(*words, **options))

    def wrote(self, name: str) -> str:
        """The text of a file that a command makes, once it is there in whole."""

        def text() -> str | None:
            with suppress(FileNotFoundError):
                content = (self.folder / name).read_text()
                return content if content.endswith("\n") else None
            return None

        answer: str = eventually(text, f"the file {name}")
        return answer

    def pid(self, name: str = "child") -> int:
        """The process whose shell wrote its number by `echo $$ > NAME.pid`."""
        return int(self.wrote(f"{name}.pid"))

    def turnstile(self) -> str:
        """A shell command that blocks until `turn` is called, without starting any process.

        (A shell that Ctrl-Z hits while it starts one may hang, its vfork stopped half-way.)
        """
        os.mkfifo(self.folder / "turnstile")
        return "echo $$ > child.pid; read turn < turnstile"

    def turn(self) -> None:
        with open(self.folder / "turnstile", "w") as file:
            file.write("\n")

    def free(self, name: str = "x") -> bool:
        return not self.locks.inspect(name).held

    @contextmanager
    def frozen_store(self) -> Iterator[float]:
        """Every step on the store hangs, as if a process had been frozen inside one. Since when?"""
        fd = os.open(f"{self.path}-live/gate", os.O_RDONLY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield time.time()
        finally:
            os.close(fd)

    def close(self) -> None:
        """Whatever happened, leave no process behind."""
        for process in self._started:
            process.kill()
        for file in self.folder.glob("*.pid"):
            # The group of that process, or the one that it led when it was alive.
            with suppress(OSError, ValueError):
                pid = int(file.read_text())
                group = os.getpgid(pid) if lives(pid) else pid
                if group != os.getpgrp():
                    os.killpg(group, signal.SIGKILL)
        for process in self._started:
            process.communicate(timeout=LIMIT)
        self.locks.close()


class Ended:
    """The remains of a process."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status = status
        self.out = out
        self.err = err

    def __repr__(self) -> str:
        return f"<status {self.status}>\n{self.out}\n{self.err}"


def ended(process: Process, limit: float = LIMIT) -> Ended:
    out, err = process.communicate(timeout=limit)
    return Ended(process.returncode, out or "", err or "")
