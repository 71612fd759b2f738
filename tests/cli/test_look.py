"""`ls`, `show` and `break` for people: on terminals, in pipes, with hostile labels, and mistakes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import holdfast
from cli.neighbour import HOSTILE, rude_client, waiter
from cli.screen import Screen
from cli.stage import HOLDFAST, Stage
from holdfast.cli.drawing import width
from stores import STORES

COLOURS = re.compile(r"\033\[[0-9;]*m")


@contextmanager
def screen(stage: Stage, *words: str, columns: int = 80, **env: str) -> Iterator[Screen]:
    shown = Screen(stage, *HOLDFAST, *words, size=(columns, 24), **{"TERM": "xterm", **env})
    try:
        yield shown
    finally:
        shown.close()


def controls(text: str) -> set[str]:
    """Returns the characters that could harm a terminal."""
    return {char for char in text if not char.isprintable()} - {"\n", "\r"}


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_lines_fit_the_terminal(stage: Stage, columns: int) -> None:
    name = "a/very/long/name/of/a/file/名前/日本語/" + "x" * 200
    with (
        rude_client(stage.url, "somebody " * 12) as client,
        client.lock(name),
        stage.locks.lock("short"),
        screen(stage, "ls", columns=columns) as shown,
    ):
        shown.expect("2 locks held, 0 waiting")
        assert shown.ended() == 0
        plain = COLOURS.sub("", shown.text)
        assert plain != shown.text  # there are colours
        assert not controls(plain)
        table = plain.split("\r\n\r\n")[0].split("\r\n")
        assert len(table) == 3
        assert "…" in table[1]
        assert max(map(width, table)) <= columns


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_a_long_name_leaves_the_holders_readable(stage: Stage, columns: int) -> None:
    """One long name may not cut the holders of all other locks."""
    with (
        holdfast.connect(stage.url, label="by hand") as client,
        client.lock("a/very/long/name/" + "x" * 200),
        client.lock("short"),
        client.semaphore("some", permits=2),
        screen(stage, "ls", columns=columns, NO_COLOR="1") as shown,
    ):
        shown.expect("3 locks held")
        assert shown.ended() == 0
        _, long, short, some, *_ = shown.text.split("\r\n")
        assert long.startswith("a/very/l")
        for line in (long, short, some):
            holder = line[line.index("by hand") :]
            assert holder.startswith("by hand (" if columns > 40 else "by hand")
            assert re.search(r":\d+\)$", holder), line
        assert max(map(width, shown.text.split("\r\n"))) <= columns


def test_no_colour_where_it_is_not_wanted(stage: Stage) -> None:
    with stage.locks.lock("x"):
        for term, no_color in (("xterm", "1"), ("dumb", "")):
            with screen(stage, "show", "x", TERM=term, NO_COLOR=no_color) as shown:
                shown.expect("REMAINS")
                assert shown.ended() == 0
                assert "━" in shown.text
                assert not controls(shown.text)


def test_no_control_character_of_a_label_comes_through(stage: Stage) -> None:
    with (
        rude_client(stage.url) as client,
        rude_client(stage.url) as other,
    ):
        lease = client.lock("x").acquire()
        _look_at_hostile_labels(stage, other)
        assert not lease.release()  # it was broken


def _look_at_hostile_labels(stage: Stage, other: holdfast.Locks) -> None:
    with waiter(other, "x"):
        assert stage.locks.inspect("x").holders[0].label.text == HOSTILE
        for words in (["ls"], ["show", "x"], ["ls", "--json"], ["show", "x", "--json"]):
            ended = stage.run(*words)
            assert ended.status == 0
            assert not controls(ended.out)
        (state,) = json.loads(stage.run("ls", "--json").out)
        assert state["holders"][0]["label"] == HOSTILE
        assert r"evil\u001b[31m\u009b2J\u0007\u007f\nnext \u202eover" in stage.run("ls").out
        ended = stage.run("run", "x", "--no-wait", "--", "true")
        assert ended.status == 75
        assert not controls(ended.err)
        assert len(ended.err.splitlines()) == 1
        ended = stage.run("break", "x", "--yes")
        assert ended.status == 0
        assert not controls(ended.err)
        assert len(ended.err.splitlines()) == 1


def test_an_output_that_knows_ascii_only(stage: Stage) -> None:
    with stage.locks.lock("größe"):
        env = stage.environment(PYTHONIOENCODING="ascii")
        ended = stage.run("ls", env=env)
        assert (ended.status, ended.err) == (0, "")
        assert r"gr\xf6\xdfe" in ended.out
        closed = ["sh", "-c", 'exec "$0" -m holdfast ls >&-', HOLDFAST[0]]
        ended = stage.run(program=closed)
        assert ended.status == 74
        assert ended.err == "holdfast: the output cannot be written: Bad file descriptor\n"


def test_a_reader_that_goes_away(stage: Stage) -> None:
    lease = stage.locks.lock("x").acquire()
    listing = stage.start("ls", stdout=subprocess.PIPE)
    assert listing.stdout is not None
    listing.stdout.close()
    listing.stdout = None
    _, err = listing.communicate(timeout=30)
    assert (listing.returncode, err) == (128 + signal.SIGPIPE, "")
    lease.release()


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        ("y\n", 0, "'x' was taken away from"),
        ("YES\n", 0, "'x' was taken away from"),
        ("n\n", 1, "'x' was left as it is"),
        ("\n", 1, "'x' was left as it is"),
        ("\x04", 1, "\r\nholdfast: 'x' was left as it is"),
    ],
)
def test_break_asks_first(stage: Stage, answer: str, status: int, said: str) -> None:
    with rude_client(stage.url) as client:
        lease = client.lock("x").acquire()
        _ask(stage, lease.token, answer, status, said)


def _ask(stage: Stage, token: int, answer: str, status: int, said: str) -> None:
    with screen(stage, "break", "x") as shown:
        shown.expect(r"evil\u001b[31m")
        shown.expect(str(token))
        shown.expect("Break it? [y/N]")
        shown.type(answer)
        shown.expect(said)
        assert shown.ended() == status
        assert stage.free() == (status == 0)


def test_break_asks_before_it_raises_the_tokens_of_a_free_lock(stage: Stage) -> None:
    above = (stage.locks.inspect("x").token // 10**6 + 3600) * 10**6
    for answer, status, said in (("n\n", 1, "left as it is"), ("y\n", 0, "'x' is not held; its")):
        with screen(stage, "break", "x", "--token-above", str(above)) as shown:
            shown.expect(f"Raise its tokens above {above}? [y/N]")
            shown.type(answer)
            shown.expect(said)
            assert shown.ended() == status
        assert (stage.locks.inspect("x").token > above) == (status == 0)


@pytest.mark.parametrize(
    ("store", "said"), [("sqlite", "is told at its next renewal"), ("redis", "is told at once")]
)
def test_break_says_when_the_holder_is_told(
    stage: Stage, tmp_path: Path, store: str, said: str
) -> None:
    with STORES[store](tmp_path) as url, holdfast.connect(url) as locks:
        lease = locks.lock("x").acquire()
        with screen(stage, "break", "x", "--url", url) as shown:
            shown.expect(f"The holder {said}")
            shown.type("n\n")
            assert shown.ended() == 1
        assert lease.release() is True


def test_break_spares_another_holder_than_the_one_it_showed(stage: Stage) -> None:
    first = stage.locks.lock("x").acquire()
    with screen(stage, "break", "x") as shown:
        shown.expect("Break it? [y/N]")
        first.release()
        with stage.locks.lock("x") as second:
            shown.type("y\n")
            shown.expect("changed hands")
            assert shown.ended() == 1
            second.ensure()
            assert not stage.free()


def test_ctrl_c_breaks_nothing(stage: Stage) -> None:
    with stage.locks.lock("x"), screen(stage, "break", "x") as shown:
        shown.expect("Break it? [y/N]")
        shown.type("\x03")
        shown.expect(" ^C\r\n")  # the shell's prompt begins a line
        assert shown.ended() == 130
        assert not stage.free()


def test_nothing_to_show(stage: Stage) -> None:
    assert stage.run("ls").out == ""
    assert json.loads(stage.run("ls", "--json").out) == []
    assert stage.run("show", "x").out.startswith("x  free\ntoken ")
    with screen(stage, "ls", "a:") as shown:
        shown.expect("no locks held or waited for whose names start with 'a:' on sqlite://")
        assert shown.ended() == 0


@pytest.mark.parametrize("command", ["ls", "show", "break"])
def test_a_store_that_is_not_there(stage: Stage, command: str) -> None:
    words = [command] if command == "ls" else [command, "x"]
    words += ["--yes"] if command == "break" else []
    env = stage.environment(HOLDFAST_URL="redis://ada:hunter2@127.0.0.1:1")
    ended = stage.run(*words, env=env)
    assert ended.status == 69, ended
    assert len(ended.err.splitlines()) == 1
    assert ended.err.startswith("holdfast: the store cannot be used: ")
    assert "hunter2" not in ended.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ls", "a", "b"], "one word too many: 'b'. See: holdfast ls --help"),
        (["ls", "a\x1bb"], "control character"),
        (["ls", "--jsno"], "did you mean --json? See: holdfast ls --help"),
        (["show"], "NAME is missing. See: holdfast show --help"),
        (["show", "a", "b"], "one word too many: 'b'"),
        (["show", ""], "the lock's name is empty"),
        (["show", "x" * 1025], "at most 1024"),
        (["break"], "NAME is missing"),
        (["break", "x"], "give --yes. See: holdfast break --help"),
        (["break", "x\n", "--yes"], "control character"),
        (["break", "x", "--yes=1"], "--yes takes no value"),
        (["break", "x", "--yes", "--token-above", "-1"], "--token-above takes a token, not '-1'"),
        (["break", "x", "--yes", "--token-above", "9" * 99], "no store hands out such a token"),
        (["break", "x", "--yes", "--token-above", "0" * 5000 + "9" * 99], "no store hands out"),
        (["show", "x", "--url", "nonsense://x"], "unknown kind of store"),
    ],
)
def test_mistakes_are_2_in_one_line(stage: Stage, words: list[str], said: str) -> None:
    ended = stage.run(*words)
    assert ended.status == 2, ended
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1
    assert ended.out == ""


def test_a_name_that_looks_like_an_option(stage: Stage) -> None:
    with stage.locks.lock("--yes"):
        assert stage.run("show", "--", "--yes").out.startswith("--yes  held\n")
