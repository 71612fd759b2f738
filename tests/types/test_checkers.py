"""User-like programs, shown to two type checkers: what is right passes, each marked mistake is seen."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))
MARK = "# expect: error"

Mistakes = dict[Path, dict[int, str]]
"""By file and line: what a checker says."""


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=500,  # only so that it ends at all: beside other work it may take minutes
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def mypy(folder: Path) -> Mistakes:
    found: Mistakes = {}
    (folder / "mypy.ini").write_text("[mypy]\nstrict = True\nuntyped_calls_exclude = redis\n")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--output",
        "json",
        "--cache-dir",
        str(folder / "cache"),
    ]
    output = run(*command, "--config-file", folder / "mypy.ini", *PROGRAMS, cwd=folder)
    for line in output.splitlines():
        mistake = json.loads(line)
        if mistake["severity"] == "error":
            path = (folder / mistake["file"]).resolve()
            found.setdefault(path, {})[mistake["line"]] = mistake["message"]
    return found


def pyright(folder: Path) -> Mistakes:
    found: Mistakes = {}
    config = {"typeCheckingMode": "standard", "include": [str(path) for path in PROGRAMS]}
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    command = [str(Path(sys.executable).with_name("basedpyright")), "--outputjson"]
    output = run(*command, "--project", folder, "--pythonpath", sys.executable, cwd=folder)
    for mistake in json.loads(output)["generalDiagnostics"]:
        if mistake["severity"] == "error":
            line = mistake["range"]["start"]["line"] + 1
            found.setdefault(Path(mistake["file"]), {})[line] = mistake["message"]
    return found


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_a_checker_sees_the_mistakes_and_nothing_else(
    checker: Callable[[Path], Mistakes], tmp_path: Path
) -> None:
    found = checker(tmp_path)
    assert PROGRAMS
    for path in PROGRAMS:
        lines = path.read_text().splitlines()
        mistakes = found.pop(path, {})
        expected = {number for number, line in enumerate(lines, 1) if MARK in line}
        unseen = {number: lines[number - 1] for number in expected - mistakes.keys()}
        unexpected = {n: text for n, text in mistakes.items() if n not in expected}
        assert not unseen, f"{path.name}: the checker lets these pass"
        assert not unexpected, f"{path.name}: the checker refuses what is right"
    assert not found, "mistakes outside the programs"
