"""A signal's handler that raises at any moment (a time limit, Ctrl-C) leaves no resource locked."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.fences import FileFence, MemoryFence

ROUNDS = 200

pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")


class Limit(BaseException):
    """The exception of the handler."""


class Interruptions:
    """Calls work, and has it interrupted at a moment that is drawn anew each time."""

    def __init__(self) -> None:
        self._armed = False
        self._span = 0.001
        self.number = 0
        self._before = signal.signal(signal.SIGALRM, self._interrupt)

    def _interrupt(self, *_: object) -> None:
        if self._armed:
            raise Limit

    def call(self, work: Callable[[], object]) -> None:
        began = time.perf_counter()
        try:
            self._armed = True
            signal.setitimer(signal.ITIMER_REAL, random.random() * self._span + 1e-6)
            work()
            self._armed = False
        except Limit:
            self.number += 1
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        took = min(time.perf_counter() - began, 0.01)
        self._span = 0.9 * self._span + 0.1 * max(took * 1.2, 1e-5)

    def end(self) -> None:
        signal.signal(signal.SIGALRM, self._before)


@pytest.fixture
def interruptions() -> Any:
    made = Interruptions()
    yield made
    made.end()


@pytest.mark.parametrize("verb", ["guard", "hold", "write"])
@pytest.mark.parametrize("kind", ["memory", "file"])
def test_no_resource_stays_locked(
    kind: str, verb: str, tmp_path: Path, interruptions: Interruptions
) -> None:
    fence: Any = MemoryFence() if kind == "memory" else FileFence()
    if not hasattr(fence, verb):
        return
    name = str(tmp_path / "x")
    for number in range(ROUNDS):
        token = 10 * number + 1

        def work(token: int = token) -> None:
            if verb == "hold":
                with fence.hold(name, token):
                    pass
            elif verb == "write":
                fence.write(name, "a", token)
            else:
                fence.guard(name, token)

        interruptions.call(work)
        fence.guard(name, token + 1)  # and is not told that it waits for itself
        passed = threading.Thread(target=fence.guard, args=(name, token + 2), daemon=True)
        passed.start()
        passed.join(60)
        assert not passed.is_alive()
        assert fence.highest(name) == token + 2
    assert interruptions.number > ROUNDS // 10
