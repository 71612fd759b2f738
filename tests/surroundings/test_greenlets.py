"""gevent works if it has patched everything before the import; all else is refused with a word."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stores import STORES

PROGRAM = Path(__file__).parent / "greenlets.py"


def story(library: str, when: str, url: str) -> dict[str, Any]:
    words = [sys.executable, "-W", "ignore", str(PROGRAM), library, when, url]
    answer = subprocess.run(words, check=False, capture_output=True, text=True, timeout=110)
    assert answer.returncode == 0, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


@pytest.mark.parametrize("store", sorted(STORES))
def test_gevent_that_patched_before_the_import(store: str, tmp_path: Path) -> None:
    """The holder keeps its lease, waiters wait, and nobody else is stopped meanwhile."""
    with STORES[store](tmp_path) as url:
        found = story("gevent", "before", url)
    assert found["refused"] == ""
    assert found["held"]
    assert found["alone"]
    assert found["grants"] == 4
    assert found["pause"] < 5  # waiters wait for eight seconds


@pytest.mark.parametrize("when", ["after", "opened"])
@pytest.mark.parametrize("store", ["memory", "sqlite", "redis"])
def test_gevent_that_patched_after_the_import(store: str, when: str, tmp_path: Path) -> None:
    with STORES[store](tmp_path) as url:
        found = story("gevent", when, url)
    assert "gevent has patched this process after Holdfast was imported" in found["refused"]
    if when == "opened":
        assert found["held"]  # a thread renews, and only those who would wait are refused
    else:
        assert found["grants"] == 0


def test_gevent_that_patched_in_part(tmp_path: Path) -> None:
    with STORES["sqlite"](tmp_path) as url:
        found = story("gevent", "partly", url)
    assert "gevent has patched this process in part, without threading" in found["refused"]


@pytest.mark.parametrize("when", ["before", "after", "partly"])
def test_eventlet_is_refused(when: str, tmp_path: Path) -> None:
    with STORES["sqlite"](tmp_path) as url:
        found = story("eventlet", when, url)
    assert found["refused"].startswith("eventlet has patched this process, and Holdfast does not")
