"""`holdfast completion` in real shells, and the manual page in a real man."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.screen import Screen
from cli.stage import Stage
from holdfast.cli import COMMANDS

PAGE = Path(__file__).parents[2] / "docs" / "holdfast.1"


def script(stage: Stage, shell: str) -> Path:
    ended = stage.run("completion", shell)
    assert (ended.status, ended.err) == (0, "")
    path = stage.folder / f"completion.{shell}"
    path.write_text(ended.out)
    return path


def completed(stage: Stage, *words: str) -> list[str]:
    """Returns what bash would offer for the last of the words."""
    code = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _holdfast; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    arguments = ["bash", "-uc", code, "bash", str(stage.folder / "completion.bash"), *words]
    done = subprocess.run(
        arguments, capture_output=True, text=True, check=True, cwd=stage.folder, timeout=60
    )
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


def test_bash(stage: Stage) -> None:
    script(stage, "bash")
    assert completed(stage, "holdfast", "") == list(COMMANDS)
    assert completed(stage, "holdfast", "s") == ["show", "stores", "serve", "schema"]
    assert completed(stage, "holdfast", "--url", "redis://run", "sh") == ["show"]
    assert completed(stage, "holdfast", "--u") == ["--url"]
    assert completed(stage, "holdfast", "run", "x", "--le") == ["--leftovers"]
    assert completed(stage, "holdfast", "run", "x", "--leftovers", "e") == ["end"]
    assert completed(stage, "holdfast", "run", "x", "--ttl", "") == [""]
    assert completed(stage, "holdfast", "show", "--j") == ["--json"]
    assert completed(stage, "holdfast", "fence", "") == ["check"]
    assert completed(stage, "holdfast", "completion", "z") == ["zsh"]
    assert "redis+cluster" in completed(stage, "holdfast", "stores", "redis")
    assert "printf" in completed(stage, "holdfast", "run", "x", "--", "print")
    (stage.folder / "two words").touch()
    assert completed(stage, "holdfast", "run", "x", "--", "cat", "two") == ["two words"]


def test_a_person_presses_tab(stage: Stage) -> None:
    path = script(stage, "bash")
    folder = os.path.dirname(sys.executable)
    shown = Screen(stage, "bash", "--norc", "--noprofile", "-i", PATH=f"{folder}:{os.defpath}")
    try:
        shown.expect("$ ")
        shown.line(f"source {path}; echo so''urced")
        shown.expect("sourced")
        shown.type("holdfast sto\t")
        shown.expect("holdfast stores ")
        shown.type("sql\t")
        shown.expect("sqlite ")
        shown.type("--jso\t")
        shown.expect("--json ")
        shown.line("| tr -d '[{' | cut -c1-8")
        shown.expect('"store":')
    finally:
        shown.close()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_can_be_read_by_its_shell(stage: Stage, shell: str) -> None:
    path = script(stage, shell)
    for command in COMMANDS:
        assert command in path.read_text()
    done = subprocess.run([shell, "-n", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_fish_completes_the_command_after_the_dashes(stage: Stage) -> None:
    path = script(stage, "fish")
    (stage.folder / "a-file").touch()

    def offered(line: str) -> list[str]:
        done = subprocess.run(
            ["fish", "-c", 'source "$argv[1]"; complete -C "$argv[2]"', str(path), line],
            capture_output=True,
            text=True,
            check=True,
            cwd=stage.folder,
            env=stage.environment(),
            timeout=60,
        )
        assert done.stderr == ""
        return [word.partition("\t")[0] for word in done.stdout.splitlines()]

    assert offered("holdfast sto") == ["stores"]
    assert offered("holdfast run x --le") == ["--leftovers"]
    assert "printf" in offered("holdfast run x -- prin")
    assert offered("holdfast run x -- cat a-f") == ["a-file"]
    assert offered("holdfast run x -- grep --inv") == ["--invert-match"]
    assert offered("holdfast run x -- string joi") == ["join", "join0"]
    assert offered("holdfast run x -- holdfast sto") == ["stores"]
    assert offered("holdfast run 'x y' -- holdfast run 'a b' -- cat a-f") == ["a-file"]


def test_mistakes(stage: Stage) -> None:
    for words, said in (([], "SHELL is missing"), (["zhs"], "did you mean zsh?")):
        ended = stage.run("completion", *words)
        assert (ended.status, ended.out) == (2, "")
        assert said in ended.err


def test_the_manual_page_is_as_the_command_writes_it(stage: Stage) -> None:
    """If not: holdfast man > docs/holdfast.1"""
    ended = stage.run("man")
    assert (ended.status, ended.err) == (0, "")
    assert PAGE.read_text() == ended.out
    for command in COMMANDS:
        assert f".SH HOLDFAST {command.upper()}\n" in ended.out


def test_man_has_nothing_to_say_against_it() -> None:
    done = subprocess.run(
        ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(PAGE)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80"},
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    shown = subprocess.run(
        ["man", "-l", str(PAGE)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80", "MAN_KEEP_FORMATTING": ""},
        timeout=60,
    )
    assert "holdfast fence check RESOURCE TOKEN" in shown.stdout
    assert "'.[] | select(.fair) | .store'" in shown.stdout
