"""The words after `holdfast`: options in any place, help, and mistakes that say what to do."""

from __future__ import annotations

import os
import sys

import pytest

import holdfast
from cli.stage import HOLDFAST, Stage

COMMAND = ["--", "touch", "ran"]


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help_names_the_commands(stage: Stage, words: list[str]) -> None:
    ended = stage.run(*words)
    assert ended.status == 0
    assert ended.out.startswith("Usage: holdfast COMMAND")
    assert "  run " in ended.out
    assert ended.err == ""


def test_help_of_run_names_its_options_and_statuses(stage: Stage) -> None:
    ended = stage.run("run", "--help")
    assert ended.status == 0
    words = "--ttl --wait --no-wait --busy-ok --grace --label --url --namespace --status-fd"
    for word in f"{words} 75 76 69 126 127".split():
        assert word in ended.out


def test_help_after_the_dashes_is_the_commands_own(stage: Stage) -> None:
    ended = stage.run("run", "x", "--", "echo", "--help", "--", "--url")
    assert (ended.status, ended.out) == (0, "--help -- --url\n")


def test_version(stage: Stage) -> None:
    ended = stage.run("--version")
    assert (ended.status, ended.out) == (0, f"holdfast {holdfast.__version__}\n")


def test_the_console_script_is_the_same(stage: Stage) -> None:
    script = os.path.join(os.path.dirname(sys.executable), "holdfast")
    ended = stage.run("run", "x", "--", "sh", "-c", "exit 9", program=[script])
    assert (ended.status, ended.err) == (9, "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["frob"], "there is no command 'frob'; choose from run"),
        (["rum"], "did you mean run?"),
        (["--url"], "--url needs a value"),
        (["--url", "sqlite:///x"], "name a command"),
        (["--frob", "run", "x", *COMMAND], "there is no option --frob"),
        (["--", "run"], "there is no option --"),
        (["once", "x", "--every", "3s", "--at-least", "1m", *COMMAND], "--at-least is longer than"),
        (["run"], "which lock?"),
        (["run", *COMMAND], "which lock?"),
        (["run", "x"], "put -- between"),
        (["run", "x", "touch", "ran"], "put -- between"),
        (["run", "x", "--"], "no command to run"),
        (["lead", "x", "y", *COMMAND], "not also 'y'"),
        (["run", "x", "--tll", "5s", *COMMAND], "did you mean --ttl?"),
        (["run", "-x", *COMMAND], "there is no option -x"),
        (["run", "x", "--ttl", *COMMAND], "--ttl needs a value: --ttl 30s"),
        (["run", "x", "--ttl", "soon", *COMMAND], "--ttl 'soon' is not a length of time"),
        (["run", "x", "--ttl", "0", *COMMAND], "ttl must be more than 0"),
        (["run", "x", "--ttl", "400d", *COMMAND], "at most 366d"),
        (["run", "x", "--wait=", *COMMAND], "--wait '' is not a length of time"),
        (["run", "x", "--wait", "-1s", *COMMAND], "--wait '-1s' is not a length of time"),
        (["run", "x", "--wait", "1s", "--no-wait", *COMMAND], "exclude each other"),
        (["run", "x", "--no-wait=1", *COMMAND], "--no-wait takes no value"),
        (["run", "x", "--grace", "1y", *COMMAND], "--grace '1y' is not a length of time"),
        (["run", "", *COMMAND], "the lock's name is empty"),
        (["run", "a\nb", *COMMAND], "control character"),
        (["run", "n" * 1025, *COMMAND], "at most 1024"),
        (["run", "x", "--label", "a\nb", *COMMAND], "the label has a control character"),
        (["run", "x", "--namespace", "", *COMMAND], "the namespace is empty"),
        (["run", "x", "--url", "locks.db", *COMMAND], "not a store's URL"),
        (["run", "x", "--url", "frob://x", *COMMAND], "unknown kind of store"),
        (["run", "x", "--url=", *COMMAND], "not a store's URL"),
        (["run", "x", "--url", "sqlite:///", *COMMAND], "no path"),
        (["run", "x", "--url", "sqlite:///etc/passwd/locks.db", *COMMAND], "not a folder"),
        (["run", "x", "--status-fd", "one", *COMMAND], "the number of a descriptor"),
        (["run", "x", "--status-fd", "99", *COMMAND], "--status-fd 99 is not open"),
    ],
)
def test_mistakes_are_2_and_say_what_to_do(stage: Stage, words: list[str], said: str) -> None:
    ended = stage.run(*words)
    assert ended.status == 2, ended
    assert said in ended.err
    assert ended.err.startswith("holdfast: ")
    assert "See: holdfast" in ended.err
    assert "Traceback" not in ended.err
    assert ended.out == ""
    assert not (stage.folder / "ran").exists()


def test_a_status_descriptor_that_cannot_be_written_to(stage: Stage) -> None:
    with open(os.devnull) as file:
        ended = stage.run("run", "x", "--status-fd", "0", *COMMAND, stdin=file)
    assert ended.status == 2
    assert "--status-fd 0 is open for reading only" in ended.err
    assert not (stage.folder / "ran").exists()


def test_a_name_that_is_no_text_is_refused_in_words(stage: Stage) -> None:
    ended = stage.run("run", os.fsdecode(b"\xff"), *COMMAND)
    assert ended.status == 2
    assert "lone surrogate" in ended.err


@pytest.mark.parametrize("place", ["before", "after", "equals", "environment"])
def test_where_the_url_may_stand(stage: Stage, place: str) -> None:
    other = f"sqlite://{stage.folder}/other.db"
    words = {
        "before": ["--url", other, "run", "x"],
        "after": ["run", "x", "--url", other],
        "equals": [f"--url={other}", "run", "x"],
        "environment": ["run", "x"],
    }[place]
    url = other if place == "environment" else stage.url
    ended = stage.run(*words, *COMMAND, env=stage.environment(HOLDFAST_URL=url))
    assert (ended.status, ended.err) == (0, "")
    assert (stage.folder / "other.db").exists()
    assert not stage.path.exists()


@pytest.mark.parametrize("url", [None, ""])
def test_without_a_url_it_says_in_one_line_whom_the_store_serves(
    stage: Stage, url: str | None
) -> None:
    env = stage.environment(PYTHONWARNINGS="error")
    del env["HOLDFAST_URL"]
    if url is not None:
        env["HOLDFAST_URL"] = url
    ended = stage.run("run", "x", *COMMAND, env=env)
    assert ended.status == 0
    assert (stage.folder / "ran").exists()
    (line,) = ended.err.splitlines()
    assert line.startswith("holdfast: ")
    assert "this machine and user only" in line
    assert (stage.folder / "state" / "holdfast" / "locks.db").exists()


def test_a_namespace_keeps_apart(stage: Stage) -> None:
    with stage.locks.lock("x"):
        assert stage.run("run", "x", "--no-wait", *COMMAND).status == 75
        assert stage.run("run", "x", "--no-wait", "--namespace", "other", *COMMAND).status == 0
        assert stage.run("--namespace", "other", "run", "x", "--no-wait", *COMMAND).status == 0


def test_memory_is_said_to_exclude_nobody(stage: Stage) -> None:
    ended = stage.run("run", "x", "--url", "memory://", *COMMAND)
    assert ended.status == 0
    assert "exclude nobody" in ended.err


def test_locks_with_odd_names(stage: Stage) -> None:
    for name in ("a b", "é/ü", "a=b", "*", "'", "-"):
        ended = stage.run("run", name, "--", "sh", "-c", 'echo "$HOLDFAST_LOCK"')
        assert (ended.status, ended.out) == (0, name + "\n")


@pytest.mark.parametrize(
    "words", ["--help", "--version", "run --help", "stores", "ls --json", "man", "show x"]
)
def test_an_output_that_cannot_be_written_is_told_in_a_line(stage: Stage, words: str) -> None:
    for closing in (">&-", "<&- >&-"):
        closed = ["sh", "-c", f'"$@" {closing}', "sh", *HOLDFAST]
        answer = stage.run(*words.split(), program=closed)
        assert answer.status == 74
        assert answer.err == "holdfast: the output cannot be written: Bad file descriptor\n"
    with open("/dev/full", "w") as full:
        answer = stage.run(*words.split(), stdout=full)
    assert answer.status == 74
    assert answer.err == "holdfast: the output cannot be written: No space left on device\n"


def test_run_needs_no_output(stage: Stage) -> None:
    ended = stage.run(
        "run", "x", "--", "sh", "-c", "true", program=["sh", "-c", '"$@" >&-', "sh", *HOLDFAST]
    )
    assert (ended.status, ended.err) == (0, "")
    words = ["run", "x", "--", "sh", "-c", "echo something"]
    assert stage.run(*words, program=["sh", "-c", '"$@" >&-', "sh", *HOLDFAST]).status != 0
