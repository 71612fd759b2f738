"""Workers of the tests: real processes that reach the store as those of a run do."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from holdfast.chaos.labs import Chance, Lab
from holdfast.chaos.servers.processes import end_group, start

LIMIT = 60.0
TTL = 3.0
PROBE = Path(__file__).with_name("probe.py")


class ProbeWorker:
    """A process that takes the lock when it is told to."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.name = name
        self.process = start(
            [
                *lab.inside(name),
                sys.executable,
                str(PROBE),
                lab.url_for(name),
                json.dumps(lab.options),
            ],
            environment=lab.environment_for(name),
            stdin=subprocess.PIPE,
            output=subprocess.PIPE,
            errors=None,
        )
        self._said: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def _read(self) -> None:
        assert self.process.stdout is not None
        with suppress(ValueError):  # it was closed while this thread was reading
            for line in self.process.stdout:
                self._said.put(json.loads(line))

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word.encode() + b"\n")
        self.process.stdin.flush()

    def hear(self, limit: float = LIMIT) -> Any:
        return self._said.get(timeout=limit)

    @property
    def silent(self) -> bool:
        return self._said.empty()

    def ask(self, word: str) -> Any:
        self.tell(word)
        return self.hear()

    def turn(self) -> int:
        """Takes the lock and gives it back, as soon as that is possible; returns the token."""
        limit = time.monotonic() + LIMIT
        while not isinstance(token := self.ask("take"), int):
            assert time.monotonic() < limit, token
        self.ask("give")
        return token

    def end(self) -> None:
        end_group(self.process)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # what it was told last, and did not read
                pipe.close()


def until(condition: Callable[[], object], what: str, limit: float = LIMIT) -> None:
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen within {limit:g} s"
        time.sleep(0.005)


def chance(*workers: ProbeWorker, seed: int = 0) -> Chance:
    return Chance(Random(seed), TTL, workers, workers[0] if workers else None)
