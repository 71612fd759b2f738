"""The patience of a session with a server that does not answer its writes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.stores.zookeeper.reply_timer import PATIENCE, SECOND_CHECK, ReplyTimer
from holdfast.stores.zookeeper.session import AT_WORK, ClientSession


class Scene:
    """A reply timer whose clock and alarm are in our hands."""

    def __init__(self) -> None:
        self.now = 100.0
        self.due: list[float] = []
        self.dropped = 0
        self.replied_at = 0.0
        timers: Any = SimpleNamespace(
            mutex=nullcontext(), clock=SimpleNamespace(now=lambda: self.now), call_at=self.call_at
        )
        self.timer = ReplyTimer(timers, self.drop_connection, lambda: self.replied_at)

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


def test_a_server_that_answers_what_was_sent_before_is_not_left() -> None:
    """Stands for a crowd of reads, to which the replies come first."""
    scene = Scene()
    scene.timer.expect_reply(scene.now)
    for _ in range(3):
        scene.replied_at = scene.now + PATIENCE / 2
        scene.ring()  # when it would be late, had there been no reply
        assert scene.due == [scene.replied_at + PATIENCE]
        scene.timer.expect_another(scene.now, 600.0)
        assert scene.dropped == 0
    scene.ring()
    scene.replied_at = scene.now  # before the second check
    scene.ring()
    assert scene.dropped == 0
    scene.ring()
    scene.ring()
    assert scene.dropped == 1


def test_a_write_that_is_sent_behind_a_late_one_leaves_a_server_that_answers_nothing() -> None:
    scene = Scene()
    scene.timer.expect_reply(scene.now)
    scene.now += 0.5
    scene.replied_at = scene.now - 0.1
    scene.timer.expect_another(scene.now, 2.0)
    assert scene.dropped == 0
    scene.now += 0.5
    scene.timer.expect_another(scene.now, 2.0)
    assert scene.dropped == 1


@pytest.mark.parametrize("silent_for", [0.0, 2 * AT_WORK])
def test_a_caller_that_has_no_time_left_leaves_a_server_that_answers_nothing(
    silent_for: float,
) -> None:
    dropped: list[bool] = []
    client = SimpleNamespace(
        awaits_reply=True, replied_at=100.0, drop_connection=lambda: dropped.append(True)
    )
    clock = SimpleNamespace(now=lambda: 100.0 + silent_for)
    session: Any = SimpleNamespace(client=client, _table=SimpleNamespace(clock=clock))
    ClientSession.try_other_server(session)
    assert bool(dropped) is (silent_for > 0.0)
