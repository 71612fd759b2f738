"""Files whose place is not ours to give away: another's in a sticky folder, or a mount point."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import holdfast
from holdfast.fences import FileFence, file, file_memory


@pytest.fixture
def forbid(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Refuses, from then on, to put a new file in the place of this one, as the kernel does."""
    rename = os.rename

    def forbid(path: Path) -> None:
        def refuse(source: str, target: str) -> None:
            if target == str(path) and os.path.exists(source):
                raise PermissionError(1, "Operation not permitted", source)
            rename(source, target)

        monkeypatch.setattr(os, "rename", refuse)

    return forbid


@pytest.mark.parametrize("before", [33, 0])
def test_a_write_that_may_not_replace_its_file_changes_nothing(
    before: int, tmp_path: Path, forbid: Callable[[Path], None]
) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    if before:
        FileFence().write(path, "old", before)
    there = sorted(os.listdir(tmp_path))
    forbid(path)
    with pytest.raises(holdfast.ConfigError, match=r"Operation not permitted.*inside hold\(\)"):
        FileFence().write(path, "new", 34)
    assert (path.read_text(), FileFence().highest(path)) == ("old", before)
    assert set(os.listdir(tmp_path)) <= {*there, ".holdfast-floors.fence"}
    with FileFence().hold(path, 34):
        path.write_text("new")
    assert FileFence().highest(path) == 34


def test_what_a_killed_writer_committed_and_nobody_may_put_in_place(
    tmp_path: Path, forbid: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fence, path, other = FileFence(), tmp_path / "file", tmp_path / "other"
    fence.write(path, "old", 33)
    fence.write(other, "old", 33)

    def killed(_: file_memory.FileMemory) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(file_memory.FileMemory, "place", killed)
        with pytest.raises(KeyboardInterrupt):
            fence.write(path, "new", 34)
    forbid(path)
    for refused in (
        partial(fence.write, path, "newer", 35),
        partial(fence.guard, path, 35),
        fence.hold(path, 35).__enter__,
    ):
        with pytest.raises(holdfast.GuaranteeError, match=r"cannot be put.*reset\(\)"):
            refused()
    assert fence.highest(path) == 34
    for memory in (".file.fence", ".other.fence"):
        os.utime(tmp_path / memory, (1, 1))
    assert fence.prune(tmp_path, 60) == 1  # the other
    assert fence.reset(path, by="ada", to=34) == 34
    (entry,) = json.loads((tmp_path / ".file.fence").read_text())["resets"]
    assert (entry["by"], entry["dropped"]) == ("ada", True)
    assert sorted(os.listdir(tmp_path)) == [
        ".file.fence",
        ".holdfast-floors.fence",
        "file",
        "other",
    ]
    monkeypatch.undo()
    with fence.hold(path, 35):
        assert path.read_text() == "old"


async def test_a_file_that_is_mounted_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence, path, link = FileFence(), tmp_path / "file", tmp_path / "link"
    path.write_text("old")
    link.symlink_to(path)
    monkeypatch.setattr(file, "is_mount_point", lambda real: real == str(path))
    for name in (path, link):
        for refused in (
            partial(fence.write, name, "new", 34),
            partial(fence.guard, name, 34),
            fence.hold(name, 34).__enter__,
        ):
            with pytest.raises(holdfast.ConfigError, match="mounted by itself"):
                refused()
        with pytest.raises(holdfast.ConfigError, match="mounted by itself"):
            await fence.hold(name, 34).__aenter__()
    assert sorted(os.listdir(tmp_path)) == ["file", "link"]


PROGRAM = """
import sys
from holdfast import ConfigError
from holdfast.fences import FileFence

first, second = sys.argv[1:]
with FileFence().hold(first, 35):
    pass
for change in (FileFence().guard, lambda *given: FileFence().hold(*given).__enter__()):
    try:
        change(second, 34)
    except ConfigError as error:
        print(str(error).partition(" is ")[2].partition(",")[0])
"""


def test_a_file_that_is_really_mounted_by_itself(tmp_path: Path) -> None:
    paths = [tmp_path / "a" / "file", tmp_path / "b" / "file"]
    for path in paths:
        path.parent.mkdir()
        path.touch()
    names = [str(path) for path in paths]
    own = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]
    script = 'mount --bind "$1" "$2" && exec "$3" -c "$4" "$1" "$2"'
    command = [*own, "sh", "-c", script, "sh", *names, sys.executable, PROGRAM]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.stdout == "mounted by itself\n" * 2, done.stderr
