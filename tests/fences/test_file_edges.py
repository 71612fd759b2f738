"""Files: names of every kind, pruning, forks, and what interrupts a write half-way."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast
from fences.sites import die
from holdfast.fences import FileFence, file_memory, record
from system_calls import call_pattern, call_set

FORKS = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
"""The child does next to nothing before it exits."""


def age(*paths: Path) -> None:
    for path in paths:
        os.utime(path, (1, 1))


def test_pruning_leaves_other_peoples_files_alone(tmp_path: Path) -> None:
    theirs = [tmp_path / "garden.fence", tmp_path / "config.fence", tmp_path / "notes.fence"]
    for path, text in zip(theirs, ("", '{"token": 7}', "wood, wire"), strict=True):
        path.write_text(text)
    FileFence().write(tmp_path / "file", "a", 34)
    age(*theirs, tmp_path / ".file.fence")
    assert FileFence().prune(tmp_path, 60) == 1
    assert all(path.exists() for path in theirs)


def test_pruning_finishes_what_a_killed_writer_committed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    FileFence().write(path, "old", 33)
    die(
        "import os, signal\n"
        "from holdfast.fences import FileFence, file\n"
        "rename = os.rename\n"
        "def die_at_the_last(source, target):\n"
        f"    if target == {str(path)!r} and os.path.exists(source):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    rename(source, target)\n"
        "file.os.rename = die_at_the_last\n"
        f"FileFence().write({str(path)!r}, 'new', 34)\n"
    )
    assert path.read_text() == "old"
    age(tmp_path / ".file.fence")
    assert FileFence().prune(tmp_path, 60) == 1
    assert path.read_text() == "new"
    with pytest.raises(holdfast.StaleToken):
        FileFence().write(path, "late", 33)
    assert sorted(os.listdir(tmp_path)) == [".holdfast-floors.fence", "file"]


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """Found out before anything is remembered, not by a rename that can never be finished."""
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "folder", tmp_path, "/"):
        with pytest.raises(holdfast.ConfigError, match="a folder"):
            FileFence().write(path, "a", 34)
    assert os.listdir(tmp_path) == ["folder"]


@pytest.mark.parametrize(
    "name", ["holdfast-floors", ".file.fence", ".file.fence-a", ".x.fence.new"]
)
def test_the_fences_own_files_are_nobodys_resource(name: str, tmp_path: Path) -> None:
    FileFence().write(tmp_path / "file", "a", 34)
    with pytest.raises(holdfast.ConfigError, match="the fence's own"):
        FileFence().write(tmp_path / name, "{}", 35)
    with pytest.raises(holdfast.StaleToken):
        FileFence().write(tmp_path / "file", "late", 33)


@FORKS
def test_a_child_forked_meanwhile_does_not_keep_the_turn(tmp_path: Path) -> None:
    """The child inherits the open file, and with it the lock, for as long as it lives."""
    path = tmp_path / "file"
    with FileFence().hold(path, 33):
        pid = os.fork()
        if pid == 0:
            time.sleep(60)
            os._exit(0)
    try:
        writer = threading.Thread(target=FileFence().write, args=(path, "next", 34), daemon=True)
        writer.start()
        writer.join(20)
        assert not writer.is_alive()
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    assert path.read_text() == "next"


@FORKS
def test_a_child_that_leaves_the_body_does_not_end_its_parents_turn(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with FileFence().hold(path, 33):
        pid = os.fork()
        if pid == 0:
            os.closerange(3, 200)  # all that it has is gone, as when it leaves the `with`
            os._exit(0)
        os.waitpid(pid, 0)
        writer = threading.Thread(target=FileFence().write, args=(path, "next", 34), daemon=True)
        writer.start()
        writer.join(0.2)
        assert writer.is_alive()
    writer.join(20)
    assert path.read_text() == "next"


@FORKS
def test_a_child_that_leaves_the_with_does_not_end_its_parents_turn(tmp_path: Path) -> None:
    path = tmp_path / "file"
    turn = FileFence().hold(path, 33)
    with turn:
        pid = os.fork()
        if pid == 0:
            turn.__exit__(None, None, None)
            os._exit(0)
        os.waitpid(pid, 0)
        writer = threading.Thread(target=FileFence().write, args=(path, "next", 34), daemon=True)
        writer.start()
        writer.join(0.2)
        assert writer.is_alive()
    writer.join(20)
    assert path.read_text() == "next"


def test_an_error_behind_the_commit_leaves_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C, or a disk that fails, at the worst moment: the memory names the new data already."""
    path = tmp_path / "file"
    FileFence().write(path, "old", 33)
    commit = file_memory.FileMemory.commit

    def interrupted(self: Any, *args: Any) -> None:
        commit(self, *args)
        raise KeyboardInterrupt

    monkeypatch.setattr(file_memory.FileMemory, "commit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        FileFence().write(path, "new", 34)
    monkeypatch.undo()
    assert (FileFence().highest(path), path.read_text()) == (34, "new")


def test_pruning_while_refused_writers_come_and_go(tmp_path: Path) -> None:
    fence = FileFence()
    fence.write(tmp_path / "file", "a", 34)
    age(tmp_path / ".file.fence")
    fence.prune(tmp_path, 60)
    stop = threading.Event()
    errors: list[BaseException] = []

    def refused(number: int) -> None:
        try:
            while not stop.is_set():
                with pytest.raises(holdfast.StaleToken):
                    fence.write(tmp_path / f"new{number}", "late", 33)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=refused, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(40):
            fence.prune(tmp_path, 1e-9)
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
    assert errors == []


def test_everything_is_on_the_disk_before_it_counts(tmp_path: Path) -> None:
    """A power cut cannot be had here; the order of the calls that it would find can."""
    path, log = tmp_path / "file", tmp_path / "log"
    FileFence().write(path, "old", 33)
    code = f"from holdfast.fences import FileFence; FileFence().write({str(path)!r}, 'new', 34)"
    command = ["strace", "-f", "-qq", "-y", "-o", str(log), "-e"]
    command.append("trace=" + call_set("fsync", "rename"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([*command, sys.executable, "-c", code], env=environment, timeout=60, check=True)
    staged, memory = ".file.fence-b", ".file.fence"
    steps = []
    for line in log.read_text().splitlines():
        synced = re.search(r"fsync\(\d+<(.*)>\) += 0", line)
        # A twin says of each name to which folder it is relative.
        renamed = re.search(call_pattern("rename") + r'\(.*?"(.*?)".*?"(.*?)".*\) += 0', line)
        for call, found in (("fsync", synced), ("rename", renamed)):
            if found is not None:
                names = [os.path.relpath(name, tmp_path) for name in found.groups()]
                steps.append((call, *names))
    assert steps == [
        ("fsync", staged),
        ("fsync", f"{memory}.new"),
        ("rename", f"{memory}.new", memory),
        ("fsync", "."),
        ("rename", staged, "file"),
        ("fsync", "."),
    ]


def test_what_is_forgotten_is_in_the_floors_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    FileFence().write(path, "a", 34)
    age(tmp_path / ".file.fence")

    def fail(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(record.Record, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        FileFence().prune(tmp_path, 60)
    monkeypatch.undo()
    with pytest.raises(holdfast.StaleToken):
        FileFence().write(path, "late", 33)
