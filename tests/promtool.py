"""Prometheus' own checker, where it is to be had: `tools/promtool` gets it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = shutil.which("promtool") or shutil.which(ROOT / ".venv" / "promtool" / "promtool")

needed = pytest.mark.skipif(PROGRAM is None, reason="no promtool here: see tools/promtool")


def run(*args: str, given: str = "") -> str:
    """Returns what promtool says; fails if it finds a fault."""
    assert PROGRAM is not None
    done = subprocess.run(
        [PROGRAM, *args], input=given, capture_output=True, text=True, timeout=120, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


def check_metrics(text: str) -> None:
    """Fails if promtool would say anything at all about these metrics."""
    assert run("check", "metrics", given=text).strip() == ""
