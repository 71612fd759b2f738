"""gevent: one greenlet that waits for its turn does not stop the one that has it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "greenlets.py"


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_greenlets_take_turns(kind: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAM), kind, str(tmp_path / "x")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "34 in, 34 out, 35 in, 35 out\n", done.stderr
