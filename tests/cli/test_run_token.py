"""`holdfast run`: its command shows a fence the token, and the lock that it is of."""

from __future__ import annotations

import sys
from urllib.parse import unquote

import pytest

import holdfast
from cli.stage import Stage
from holdfast.fences import FileFence, run_token

WRITE = (
    "from holdfast.fences import FileFence, run_token; FileFence().write('file', 'a', run_token())"
)


def test_a_command_shows_its_lock_to_a_fence(stage: Stage) -> None:
    name = "счёт, 42/%20#1"
    first = stage.run("run", name, "--", sys.executable, "-c", WRITE)
    assert (first.status, first.err) == (0, "")
    again = stage.run("run", name, "--", sys.executable, "-c", WRITE)
    assert (again.status, again.err) == (0, "")
    other = stage.run("run", "another lock", "--", sys.executable, "-c", WRITE)
    assert other.status == 1
    assert "tokens of two locks cannot be compared" in other.err
    told = stage.run("run", name, "--", "sh", "-c", "echo $HOLDFAST_LOCK_ID").out.strip()
    with stage.locks.lock(name) as lease:
        assert unquote(told) == lease.lock_id
        FileFence().write(stage.folder / "file", "b", lease)  # it is the same lock


def test_outside_of_run_there_is_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOLDFAST_TOKEN", "HOLDFAST_LOCK_ID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(holdfast.ConfigError, match="holdfast run"):
        run_token()
    monkeypatch.setenv("HOLDFAST_TOKEN", "no number")
    monkeypatch.setenv("HOLDFAST_LOCK_ID", "redis:a/b")
    with pytest.raises(holdfast.ConfigError, match="whole number"):
        run_token()
