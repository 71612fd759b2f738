"""Forks of a process that holds a lock, on every store that is a server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stores import STORES

TESTS = Path(__file__).parent.parent
SERVERS = sorted(set(STORES) - {"memory", "sqlite"})


@pytest.mark.parametrize("how", ["blocking", "aio", "untold"])
@pytest.mark.parametrize("store", SERVERS)
def test_a_child_holds_nothing_and_has_a_connection_of_its_own(
    store: str, how: str, tmp_path: Path
) -> None:
    with STORES[store](tmp_path) as url:
        command = [sys.executable, "-m", "faults.forked_client", how, url]
        done = subprocess.run(
            command, cwd=TESTS, capture_output=True, text=True, timeout=100.0, check=False
        )
    assert done.returncode == 0, done.stderr
