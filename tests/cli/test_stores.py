"""`holdfast stores`: all stores, out of their own guarantees; and the docs have the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import holdfast
from cli.screen import Screen
from cli.stage import HOLDFAST, Stage
from holdfast.cli.stores import WORDS, facts, promises, texts
from holdfast.stores.urls import SCHEMES
from stores import STORES

PAGE = Path(__file__).parents[2] / "docs" / "stores.md"


def test_the_docs_have_what_the_command_writes(stage: Stage) -> None:
    """If not: holdfast stores --markdown, and put it below the introduction."""
    written = stage.run("stores", "--markdown")
    assert (written.status, written.err) == (0, "")
    assert PAGE.read_text().endswith(f"\n\n{written.out}")


def test_every_store_is_there(url: str) -> None:
    locks = holdfast.connect(url)  # before it is reached: a lock service then says more
    assert locks.guarantees in promises()
    locks.close()


def test_every_field_is_there(stage: Stage) -> None:
    assert sorted(facts() + texts()) == sorted(holdfast.Guarantees._fields[1:])
    assert set(facts()) == set(WORDS)
    assert {one.store for one in promises()} <= set(SCHEMES)
    found = json.loads(stage.run("stores", "--json").out)
    assert [one["store"] for one in found] == sorted(one.store for one in promises())
    assert len(found) == len(STORES)
    for one in found:
        assert list(one) == list(holdfast.Guarantees._fields)
    shown = stage.run("stores").out
    for promise in promises():
        for field in texts():
            assert f"{promise.store:<16}{getattr(promise, field)}\n" in shown


def test_some_of_them(stage: Stage) -> None:
    found = json.loads(stage.run("stores", "redis", "etcd", "--json").out)
    assert [one["store"] for one in found] == ["etcd", "redis"]


@pytest.mark.parametrize("columns", [80, 200])
def test_lines_fit_the_terminal(stage: Stage, columns: int) -> None:
    screen = Screen(stage, *HOLDFAST, "stores", size=(columns, 24))
    try:
        screen.expect("HOW WAITERS ARE WOKEN")
        assert screen.ended() == 0
        assert max(map(len, screen.text.split("\r\n"))) <= min(columns, 120)
    finally:
        screen.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["redsi"], "there is no store 'redsi'; did you mean redis?"),
        (["--json", "--markdown"], "exclude each other"),
    ],
)
def test_mistakes(stage: Stage, words: list[str], said: str) -> None:
    ended = stage.run("stores", *words)
    assert (ended.status, ended.out) == (2, "")
    assert said in ended.err
