"""A terminal for the tests: a program on a pseudo-terminal that is its controlling one."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
import time
from contextlib import suppress

from cli.stage import LIMIT, Stage
from worlds.descriptors import readable

_TAKE = (
    "import fcntl, os, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


class Screen:
    """The screen of a program, and the keys to press."""

    def __init__(
        self, stage: Stage, *command: str, size: tuple[int, int] = (80, 24), **env: str
    ) -> None:
        self._master, slave = pty.openpty()
        self.resize(*size)
        self.process = stage.start(
            *command,
            program=[sys.executable, "-c", _TAKE],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=stage.environment(**{"TERM": "dumb", "PS1": "$ ", "HISTFILE": "", **env}),
        )
        os.close(slave)
        self.text = ""
        self._seen = 0

    def resize(self, columns: int, lines: int) -> None:
        termios.tcsetwinsize(self._master, (lines, columns))

    def modes(self) -> list[object]:
        """Returns how the terminal is set: whether it echoes, …"""
        return termios.tcgetattr(self._master)

    def hang_up(self) -> None:
        """Takes the terminal away from the program."""
        os.close(self._master)
        self._master = os.open(os.devnull, os.O_RDWR)

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def line(self, text: str) -> None:
        self.type(text + "\n")

    def expect(self, text: str) -> None:
        """Wait until that is shown, below what was expected before."""
        give_up = time.monotonic() + LIMIT
        while (found := self.text.find(text, self._seen)) < 0:
            assert time.monotonic() < give_up, f"{text!r} did not appear in:\n{self.text}"
            self._read(0.1)
        self._seen = found + len(text)

    def ended(self) -> int:
        """Wait for the program's end; answers its status."""
        give_up = time.monotonic() + LIMIT
        while self.process.poll() is None:
            assert time.monotonic() < give_up, f"it has not ended:\n{self.text}"
            self._read(0.05)
        self._read(0.0)
        return self.process.returncode

    def close(self) -> None:
        os.close(self._master)
        self.process.kill()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(LIMIT)

    def _read(self, seconds: float) -> None:
        if readable(self._master, seconds):
            with suppress(OSError):  # the last one has closed it
                self.text += os.read(self._master, 65536).decode(errors="replace")
