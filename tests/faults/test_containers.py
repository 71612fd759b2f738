"""Case 11: containers. They share a kernel and a disk, and yet see another boot, or only the file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from faults.actors import Stage, environment

PRIVATE = ("unshare", "-m") if os.getuid() == 0 else ("unshare", "-Urm")
ASK = "import holdfast, sys; print(holdfast.connect(sys.argv[1]).lock('x').try_acquire())"


def mounted(*pairs: tuple[object, object]) -> tuple[str, ...]:
    """Returns a command that runs what follows where the first of each pair stands for the second."""
    mounts = " && ".join(f"mount --bind {source} {target}" for source, target in pairs)
    return (*PRIVATE, "sh", "-c", f'{mounts} && exec "$@"', "sh")


def ask(folder: Path, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Tries to acquire the lock "x" of the store in `folder`, in a process of its own."""
    return subprocess.run(
        [*before, sys.executable, "-c", ASK, f"sqlite://{folder}/locks.db"],
        check=False,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60.0,
    )


def elsewhere(folder: Path) -> Path:
    """Returns a folder in which the parts of a store may be mounted."""
    (folder / "locks.db-live").mkdir(parents=True)
    (folder / "locks.db").touch()
    return folder


@pytest.mark.parametrize("part", ["locks.db", "locks.db-live"])
def test_a_part_that_is_mounted_by_itself_is_refused(
    stage: Stage, tmp_path: Path, part: str
) -> None:
    stage.actor().acquire("x")
    other = elsewhere(tmp_path / "other")
    refused = ask(other, mounted((tmp_path / part, other / part)))
    assert "ConfigError" in refused.stderr, refused.stdout
    assert f"{str(other / part)!r} is mounted by itself" in refused.stderr
    assert f"Mount the folder {str(other)!r}" in refused.stderr


def test_the_folder_may_be_mounted(stage: Stage, tmp_path: Path) -> None:
    stage.actor().acquire("x")
    other = tmp_path / "other"
    other.mkdir()
    assert ask(other, mounted((tmp_path, other))).stdout == "None\n"


def test_a_second_name_of_the_file_is_refused(stage: Stage, tmp_path: Path) -> None:
    holder = stage.actor()
    holder.acquire("x")
    other = tmp_path / "other"
    other.mkdir()
    os.link(tmp_path / "locks.db", other / "locks.db")
    for folder in (other, tmp_path):
        refused = ask(folder)
        assert "ConfigError" in refused.stderr, refused.stdout
        assert "hard link" in refused.stderr
    (other / "locks.db").unlink()
    # What a maker that was killed has left is no second name.
    os.link(tmp_path / "locks.db", tmp_path / "locks.db-0123456789abcdef.new")
    assert ask(tmp_path).stdout == "None\n"
    assert not (tmp_path / "locks.db-0123456789abcdef.new").exists()
    assert holder.held("x")
