"""Files that are forgotten: more than may be open at a time, and one that is damaged among them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from fences.scenes import StoreLease
from holdfast.fences import FileFence, file_pruning
from holdfast.fences.file_memory import FLOORS
from holdfast.fences.record import Record

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


@pytest.mark.parametrize("inside", [False, True])
def test_a_holder_keeps_its_floor(tmp_path: Path, inside: bool) -> None:
    """Its token is lower than those that are forgotten; its mark is young, or as old, and in use."""
    fence = FileFence()
    holder = StoreLease("redis", 500)
    holder.lock_id = "redis:holdfast/holder"
    for number in range(120):
        fence.guard(tmp_path / f"file{number}", StoreLease("redis", 400 + number * 100))
        os.utime(tmp_path / f".file{number}.fence", (1, 1))
    with fence.hold(tmp_path / "held", holder):
        if inside:
            os.utime(tmp_path / ".held.fence", (1, 1))
        assert fence.prune(tmp_path, 60) == 120
        fence.guard(tmp_path / "new", holder)
    with pytest.raises(holdfast.StaleToken, match="12300"):
        fence.guard(tmp_path / "other", StoreLease("redis", 12299))


def test_a_file_that_is_written_to_while_others_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The floors have risen by its mark, and by higher ones; it stays, and so does its holder."""
    fence = FileFence()
    holder = StoreLease("redis", 500)
    holder.lock_id = "redis:holdfast/holder"
    fence.guard(tmp_path / "held", holder)
    for number in range(3):
        fence.guard(tmp_path / f"file{number}", StoreLease("redis", 1000))
    forget = file_pruning._forget

    def meanwhile(path: str, *rest: Any) -> bool:
        if path.endswith(".held.fence"):
            fence.write(tmp_path / "held", "a", holder)
        return forget(path, *rest)

    for name in os.listdir(tmp_path):
        os.utime(tmp_path / name, (1, 1))
    monkeypatch.setattr(file_pruning, "_forget", meanwhile)
    assert fence.prune(tmp_path, 60) == 3
    fence.guard(tmp_path / "new", holder)
    with pytest.raises(holdfast.StaleToken, match="1000"):
        fence.guard(tmp_path / "other", StoreLease("redis", 999))


async def test_a_task_that_begins_a_file_waits_for_the_floors_without_blocking(
    tmp_path: Path,
) -> None:
    """Somebody prunes the folder, and takes his time."""
    fence = FileFence()
    pruner = Record.locked(str(tmp_path / FLOORS))
    assert pruner is not None
    entered = False

    async def write() -> None:
        nonlocal entered
        async with fence.hold(tmp_path / "new", 34):
            entered = True

    with pruner:
        task = asyncio.create_task(write())
        for _ in range(20):
            await asyncio.sleep(0.002)
        assert not entered
    await asyncio.wait_for(task, 30)
    assert fence.highest(tmp_path / "new") == 34


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


@pytest.mark.parametrize(
    "contents",
    [
        '{"token": 34, "pending": 5}',
        '{"token": 34, "pending": "../other"}',
        '{"token": 34, "resets": {}}',
        '{"token": "34"}',
        "[]",
    ],
)
def test_a_memory_that_is_not_what_was_written(tmp_path: Path, contents: str) -> None:
    fence = FileFence()
    path = tmp_path / "file"
    (tmp_path / ".file.fence").write_text(contents)
    verbs: list[Callable[[], None]] = [
        lambda: fence.write(path, "b", 35),
        lambda: fence.guard(path, 35),
        lambda: fence.hold(path, 35).__enter__(),
    ]
    for verb in verbs:
        with pytest.raises(holdfast.GuaranteeError, match="is damaged"):
            verb()
    os.utime(tmp_path / ".file.fence", (1, 1))
    assert fence.prune(tmp_path, 60) == 0
    fence.reset(path, by="a test", to=34)
    fence.write(path, "b", 35)
