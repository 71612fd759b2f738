"""The line that tells a person what `run` waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cli.neighbour import rude_client
from cli.screen import Screen
from cli.stage import HOLDFAST, Stage, eventually
from holdfast.cli.drawing import width
from holdfast.cli.progress import fitted
from holdfast.model import Label, LockState, Participant

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


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_it_fits_a_narrow_terminal_and_goes_on_ctrl_c(
    stage: Stage, screen: Callable[..., Screen], columns: int
) -> None:
    with stage.locks.lock("x" * 100):
        shown = screen("x" * 100, "--", "true", size=(columns, 24))
        shown.expect("held by ")
        shown.expect("s\033[K")
        shown.type(CTRL_C)
        shown.expect(CLEARED)
        assert shown.ended() == 130
        assert shown.text.endswith(CLEARED)
        lines = shown.text.replace("\033[K", "").split("\r")
        assert any("^C" in line for line in lines)
        # With the echo in it, and a column for the cursor: a line break could not be taken away.
        assert max(map(len, lines)) < columns


HOLDERS = [Participant("o", Label("db-3", 3502, "nightly by cron"), 7, 0.0, 30.0)]
WAITERS = tuple(Participant(f"w{number}", Label("db", 1), 0, 0.0, 30.0) for number in range(3))


@pytest.mark.parametrize(
    ("room", "said"),
    [
        (82, "holdfast: waiting for 'invoice:42', held by nightly by cron (db-3:3502), 3 waiting"),
        (71, "holdfast: waiting for 'invoice:42', held by nightly by cron (db-3:3502)"),
        (61, "waiting for 'invoice:42', held by nightly by cron (db-3:3502)"),
        (51, "'invoice:42' is held by nightly by cron (db-3:3502)"),
        (48, "'invoice:42' is held by nightly by c…(db-3:3502)"),
        (32, "held by nightly by c…(db-3:3502)"),
        (12, "held by ni…)"),
    ],
)
def test_what_is_left_out_first(room: int, said: str) -> None:
    state = LockState("invoice:42", tuple(HOLDERS), WAITERS, 7)
    assert fitted("invoice:42", state, room) == said


def test_every_line_fits() -> None:
    for name in ("x", "a/long/name/" * 9, "名前" * 20):
        for holders in (0, 1, 3):
            state = LockState(name, tuple(HOLDERS * holders), WAITERS, 7)
            for room in range(8, 200):
                text = fitted(name, state, room)
                assert width(text) <= room
            assert ("and 2 others" in fitted(name, state, 110)) == (holders == 3)
    assert fitted("x" * 99, None, 30) == "waiting for 'xxxxxxxx…xxxxxxx'"


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
