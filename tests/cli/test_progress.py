"""The line that tells a person what `run` waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cli.neighbour import rude_client
from cli.screen import Screen
from cli.stage import HOLDFAST, Stage, eventually

CTRL_C = "\x03"
CLEARED = "\r\033[K"


@pytest.fixture
def screen(stage: Stage) -> Iterator[Callable[..., Screen]]:
    screens: list[Screen] = []

    def make(*words: str, **options: Any) -> Screen:
        screens.append(Screen(stage, *HOLDFAST, "run", *words, **{"TERM": "xterm", **options}))
        return screens[-1]

    try:
        yield make
    finally:
        for one in screens:
            one.close()


def test_it_ticks_and_goes(stage: Stage, screen: Callable[..., Screen]) -> None:
    with rude_client(stage.url) as client:
        lease = client.lock("x").acquire()
        shown = screen("x", "--", "echo", "at last", size=(200, 24))
        shown.expect("\rholdfast: waiting for 'x'")
        shown.expect(r", held by evil\u001b[31m")
        shown.expect(" since ")
        shown.expect(" · 3s")
        shown.expect(" · 4s")
        lease.release()
        shown.expect(CLEARED)
        shown.expect("at last")
        assert shown.ended() == 0
        assert "\x9b" not in shown.text
        assert shown.text.count("\n") == 1  # the command's own


def test_it_fits_a_narrow_terminal(stage: Stage, screen: Callable[..., Screen]) -> None:
    with stage.locks.lock("x" * 100):
        shown = screen("x" * 100, "--", "true", size=(40, 24))
        shown.expect("… · ")
        shown.type(CTRL_C)
        assert shown.ended() == 130
        assert CLEARED in shown.text
        lines = shown.text.replace("\033[K", "").replace("^C", "").split("\r")
        assert max(map(len, lines)) < 40


def test_in_the_end_it_is_busy(stage: Stage, screen: Callable[..., Screen]) -> None:
    with stage.locks.lock("x"):
        shown = screen("x", "--wait", "2s", "--", "true")
        shown.expect("waiting for 'x'")
        shown.expect(CLEARED)
        shown.expect("holdfast: 'x' is busy, held by")
        assert shown.ended() == 75


def test_none_in_a_pipe(stage: Stage) -> None:
    with stage.locks.lock("x"):
        ended = stage.run("run", "x", "--wait", "2500ms", "--", "true")
        assert ended.status == 75
        assert ended.err.startswith("holdfast: 'x' is busy, held by")
        assert len(ended.err.splitlines()) == 1


def test_once_in_the_background_of_a_terminal(stage: Stage) -> None:
    with stage.locks.lock("x"):
        shown = Screen(stage, "bash", "--norc", "-i", TERM="xterm")
        try:
            shown.expect("$ ")
            shown.line(f"{' '.join(HOLDFAST)} run x --wait 4s -- true & wait")
            shown.expect("holdfast: waiting for 'x', held by")
            shown.expect("holdfast: 'x' is busy")
            assert shown.text.count("waiting for 'x'") == 1
            assert CLEARED not in shown.text
        finally:
            shown.close()


def test_the_wait_goes_on_while_the_store_does_not_answer(
    stage: Stage, screen: Callable[..., Screen]
) -> None:
    lease = stage.locks.lock("x", ttl=60.0).acquire()
    shown = screen("x", "--", "echo", "at last")
    eventually(lambda: stage.locks.inspect("x").waiters, "a waiter")
    with stage.frozen_store():
        shown.expect("waiting for 'x'")
        shown.expect(" · 3s")
    lease.release()
    shown.expect("at last")
    assert shown.ended() == 0
