"""Files that are forgotten: more than may be open at a time, and one that is damaged among them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from fences.scenes import StoreLease
from holdfast.fences import FileFence, file_pruning
from holdfast.fences.file_memory import FLOORS

MANY = """
import resource, sys
from holdfast.fences import FileFence
resource.setrlimit(resource.RLIMIT_NOFILE, (90, 90))
print(FileFence().prune(sys.argv[1], 1e-9))
"""


def test_more_files_than_may_be_open_at_a_time(tmp_path: Path) -> None:
    fence = FileFence()
    for number in range(200):
        fence.guard(tmp_path / f"file{number}", 1000 + number)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", MANY, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "200\n", done.stderr
    assert os.listdir(tmp_path) == [FLOORS]
    with pytest.raises(holdfast.StaleToken, match="1199"):
        fence.write(tmp_path / "new", "late", 1198)
    fence.write(tmp_path / "new", "a", 1199)


def test_a_holder_keeps_its_floor_through_all_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock has a mark that is young, and a token that is lower than those that are forgotten."""
    monkeypatch.setattr(file_pruning, "BATCH", 2)
    fence = FileFence()
    holder = StoreLease("redis", 500)
    holder.lock_id = "redis:holdfast/holder"
    for number in range(7):
        fence.guard(tmp_path / f"file{number}", StoreLease("redis", 400 + number * 100))
        os.utime(tmp_path / f".file{number}.fence", (1, 1))
    fence.guard(tmp_path / "held", holder)
    assert fence.prune(tmp_path, 60) == 7
    fence.guard(tmp_path / "new", holder)
    with pytest.raises(holdfast.StaleToken, match="1000"):
        fence.guard(tmp_path / "other", StoreLease("redis", 999))


def test_a_damaged_memory_keeps_no_other_from_being_forgotten(tmp_path: Path) -> None:
    fence = FileFence()
    for name in ("a", "damaged", "z"):
        fence.write(tmp_path / name, "a", 34)
        memory = tmp_path / f".{name}.fence"
        if name == "damaged":
            memory.write_text("{")
        os.utime(memory, (1, 1))
    assert fence.prune(tmp_path, 60) == 2
    with pytest.raises(holdfast.GuaranteeError, match="damaged"):
        fence.write(tmp_path / "damaged", "b", 35)
    fence.reset(tmp_path / "damaged", by="a test", to=34)
    fence.write(tmp_path / "damaged", "b", 35)
