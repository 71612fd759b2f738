"""The unit and the crontab of the docs: what they start does what the page says."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from cli.stage import HOLDFAST, Stage, ended, eventually

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.S)
    assert found is not None
    return found[1]


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd on this machine")
    unit = tmp_path / "scheduler.service"
    # Its programs are not installed here.
    unit.write_text(re.sub(r"(?m)^ExecStart=.*", "ExecStart=/bin/true", block("ini")))
    done = subprocess.run(
        [analyze, "verify", unit], capture_output=True, text=True, timeout=60, check=False
    )
    complaints = [line for line in done.stderr.splitlines() if "scheduler.service" in line]
    assert complaints == []


def test_what_the_unit_starts_leads_and_resigns_when_it_is_stopped(stage: Stage) -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(block("ini"))
    words = shlex.split(unit["Service"]["ExecStart"])
    assert words[0].endswith("/holdfast")
    (stage.folder / "scheduler").write_text("#!/bin/sh\necho $$ > child.pid\nexec sleep 60\n")
    (stage.folder / "scheduler").chmod(0o755)
    command = ["./scheduler" if word.endswith("/scheduler") else word for word in words[1:]]
    process = stage.start(*command, program=HOLDFAST)
    stage.pid()
    assert stage.locks.election("scheduler").leader() is not None
    process.send_signal(signal.SIGTERM)  # as KillMode=mixed does: to holdfast alone
    assert ended(process).status == 128 + signal.SIGTERM
    assert stage.locks.election("scheduler").leader() is None


def test_the_line_of_the_crontab_runs_once(stage: Stage) -> None:
    (line,) = [line for line in block("crontab").splitlines() if not line.startswith("#")]
    command = line.split(None, 5)[5]
    program = shlex.join(HOLDFAST)
    command = command.replace("redis://redis.example:6379/0", stage.url)
    command = command.replace(" holdfast ", f" {program} ").replace(
        "/usr/local/bin/report", "./report"
    )
    (stage.folder / "report").write_text("#!/bin/sh\necho ran >> runs\n")
    (stage.folder / "report").chmod(0o755)
    for _ in range(3):
        assert stage.run("-c", command, program=["sh"]).status == 0
    eventually(lambda: (stage.folder / "runs").read_text() == "ran\n")
