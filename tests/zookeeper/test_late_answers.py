"""How long a session waits for a node's answer to a write."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from holdfast.stores.zookeeper import session as link
from holdfast.stores.zookeeper.session import Link


class Scene:
    """A session's link, of which only the waiting is there."""

    def __init__(self) -> None:
        self.now = 100.0
        self.rings: list[float] = []
        self.dropped = 0
        made: Any = object.__new__(Link)
        self.link = made
        self.link._store = SimpleNamespace(
            mutex=nullcontext(), clock=SimpleNamespace(now=lambda: self.now), ring_at=self.ring_at
        )
        self.link.client = SimpleNamespace(drop=self.drop)
        self.link._closed = False
        self.link._unproved = self.link._looked = self.link._look_again = 0.0
        self.link._patience = link.PATIENCE

    def ring_at(self, due: float, ring: Callable[[], None]) -> None:
        assert ring == self.link._late
        self.rings.append(due)

    def drop(self) -> None:
        self.dropped += 1

    def ring(self) -> None:
        self.now = max(self.now, self.rings.pop())
        self.link._late()


def test_who_stood_still_itself_reads_first_what_has_come() -> None:
    """As after the process was stopped for a while: the answer is here, but not read yet."""
    scene = Scene()
    scene.link._expect_answer(scene.now)
    scene.now += 60.0
    scene.ring()
    assert scene.rings == [scene.now + link.SECOND_LOOK]
    scene.link._answered(None)
    scene.ring()
    assert scene.dropped == 0
    assert scene.rings == []


def test_a_node_that_does_not_answer_is_left_after_a_second_look() -> None:
    scene = Scene()
    scene.link._expect_answer(scene.now)
    scene.ring()
    assert scene.dropped == 0
    scene.ring()
    assert scene.dropped == 1
    assert scene.rings == []
    assert scene.now == 100.0 + link.PATIENCE + link.SECOND_LOOK
    assert scene.link._patience == 2 * link.PATIENCE
