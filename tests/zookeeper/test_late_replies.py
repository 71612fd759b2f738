"""The patience of a session with a server that does not answer its writes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from holdfast.stores.zookeeper.reply_timer import PATIENCE, SECOND_CHECK, ReplyTimer


class Scene:
    """A reply timer whose clock and alarm are in our hands."""

    def __init__(self) -> None:
        self.now = 100.0
        self.due: list[float] = []
        self.dropped = 0
        timers: Any = SimpleNamespace(
            mutex=nullcontext(), clock=SimpleNamespace(now=lambda: self.now), call_at=self.call_at
        )
        self.timer = ReplyTimer(timers, self.drop_connection)

    def call_at(self, due: float, function: Callable[[], None]) -> None:
        assert function == self.timer._check
        self.due.append(due)

    def drop_connection(self) -> None:
        self.dropped += 1

    def ring(self) -> None:
        """Lets the time come that the timer waits for."""
        self.now = max(self.now, self.due.pop())
        self.timer._check()


def test_a_client_that_was_paused_reads_first_what_has_come() -> None:
    """Stands for a process that was stopped for a while: the reply is here, but not read yet."""
    scene = Scene()
    scene.timer.expect_reply(scene.now)
    scene.now += 60.0
    scene.ring()
    assert scene.due == [scene.now + SECOND_CHECK]
    scene.timer.note_reply(None)
    scene.ring()
    assert scene.dropped == 0
    assert scene.due == []


def test_a_server_that_does_not_answer_is_left_after_a_second_check() -> None:
    scene = Scene()
    scene.timer.expect_reply(scene.now)
    scene.ring()
    assert scene.dropped == 0
    scene.ring()
    assert scene.dropped == 1
    assert scene.due == []
    assert scene.now == 100.0 + PATIENCE + SECOND_CHECK
    assert scene.timer.patience == 2 * PATIENCE
