"""Players: processes that run an example, and that a test kills, freezes, and lets go on."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import holdfast
from faults import actors
from faults.actors import environment, now
from holdfast.chaos.servers.processes import freeze, thaw
from holdfast.stores.sqlite.gate import Gate
from recipes.program import CALL

TTL = 3.0
"""Seconds after which a holder that stands still has lost its lease."""
LIMIT = 150.0
"""Seconds that anything here may take at the most, on however busy a machine."""


def until(condition: Callable[[], object], what: str) -> None:
    """Waits for a condition."""
    actors.until(condition, what, LIMIT)


class Player:
    """A process that runs an example in a folder, on the store of a URL."""

    def __init__(self, folder: Path, url: str, example: str, function: str, words: tuple[str, ...]):
        self._url = url
        self._folder = folder
        self.lines: list[str] = []
        """What it has printed so far, but for its stops."""
        self.stops = 0
        """How often it has stood still before its function, or stands so."""
        self._errors = open(folder / f"errors-{now()}", "w+", encoding="utf-8")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "recipes.program", example, function, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment() | {"HOLDFAST_URL": url},
            cwd=folder,
            text=True,
        )
        self.pid = self.process.pid
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def stopped(self, times: int = 1) -> None:
        """Waits until it stands still before its function, for the nth time."""

        def there() -> bool:
            assert self.process.poll() is None or self.stops >= times, (
                f"it ended before: {self.complaints()}"
            )
            return self.stops >= times

        until(there, "the call of the function")

    def go(self) -> None:
        """Lets it go on from where it stands still."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def go_through(self) -> None:
        """Lets it go on, and not stand still again."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def says(self, what: str) -> None:
        """Waits until a line that it printed contains `what`."""

        def said() -> bool:
            found = any(what in line for line in self.lines)
            assert found or self.process.poll() is None or self._reader.is_alive(), self.lines
            return found

        until(said, f"{what!r} of {self.lines}")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(LIMIT)

    def freeze(self) -> None:
        """Pauses it, but not inside the gate of the embedded store, where all would wait for it."""
        with outside_the_gate(self._url):
            freeze(self.pid)

    def thaw(self) -> None:
        thaw(self.pid)

    def ended(self) -> tuple[int, list[str]]:
        """Waits for its end, and returns its exit status and what it printed."""
        status = self.process.wait(LIMIT)
        self._reader.join(LIMIT)
        return status, self.lines

    def succeeded(self) -> list[str]:
        """Waits for its end, which must be a good one, and returns what it printed."""
        status, lines = self.ended()
        complaints = self.complaints()
        assert (status, complaints) == (0, ""), f"exit status {status}: {complaints}"
        return lines

    def complaints(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    def clear(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LIMIT)
        self._reader.join(LIMIT)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        self._errors.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            text, call, _ = line.strip().partition(CALL)  # it may have begun a line before
            if text:
                self.lines.append(text)
            if call:
                self.stops += 1


@contextmanager
def outside_the_gate(url: str) -> Iterator[None]:
    """Has nobody inside the gate of the embedded store meanwhile; other stores have none."""
    if not url.startswith("sqlite:"):
        yield
        return
    gate = Gate(url.removeprefix("sqlite://"))
    try:
        gate.enter(now() + LIMIT)
        yield
    finally:
        gate.leave()
        gate.close()


class Cast:
    """Starts players of one example in one folder, and sees to it that none outlives the test."""

    def __init__(self, folder: Path, example: str) -> None:
        self.folder = folder
        self.url = f"sqlite://{folder}/locks.db"
        self._example = example
        self._players: list[Player] = []

    def player(self, *words: str, stop_at: str = "-", url: str = "") -> Player:
        """Starts a player that stands still before each call of the function `stop_at`."""
        player = Player(self.folder, url or self.url, self._example, stop_at, words)
        self._players.append(player)
        return player

    def clear(self) -> None:
        for player in self._players:
            player.clear()


@contextmanager
def cast(folder: Path, example: str) -> Iterator[Cast]:
    made = Cast(folder, example)
    try:
        yield made
    finally:
        made.clear()


def waited_for(url: str, name: str, count: int) -> None:
    """Waits until so many wait for the lock."""
    with holdfast.connect(url) as locks:
        until(lambda: len(locks.inspect(name).waiters) == count, f"{count} waiters for {name}")


def free(url: str, name: str) -> None:
    """Waits until nobody holds the lock."""
    with holdfast.connect(url) as locks:
        until(lambda: not locks.inspect(name).holders, f"the end of {name}")
