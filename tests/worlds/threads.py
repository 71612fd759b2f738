"""Tests in blocking code. Its twin is `aio`: the same names, the same meanings."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")

PATIENCE = 25.0
"""How long a condition may take to come true; never how long it normally takes. Less than the TTL that
leases have by themselves: what a test waits for must not come true by that."""


class Job(Generic[Result]):
    """Something under way beside the test."""

    def __init__(self, work: Callable[..., Result], *args: object) -> None:
        self._results: list[Result] = []
        self._error: BaseException | None = None

        def run() -> None:
            try:
                self._results.append(work(*args))
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def done(self) -> bool:
        return not self._thread.is_alive()

    def result(self, patience: float = PATIENCE) -> Result:
        error = self.error(patience)
        if error is not None:
            raise error
        return self._results[0]

    def error(self, patience: float = PATIENCE) -> BaseException | None:
        """What it raised, once it has ended."""
        self._thread.join(patience)
        assert not self._thread.is_alive(), "it did not end in time"
        return self._error


def eventually(condition: Callable[[], object]) -> None:
    """Wait until the condition answers something true."""
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < limit, "the condition did not come true in time"
        time.sleep(0.002)


def pause(seconds: float) -> None:
    """Let time pass that a test needs to pass, such as the rest of a short TTL."""
    time.sleep(seconds)


def run(work: Callable[..., None], *args: object) -> None:
    """From a program's first line."""
    work(*args)


def redis_client(port: int) -> Any:
    """A client of redis-py for this world."""
    import redis

    return redis.Redis(port=port)
