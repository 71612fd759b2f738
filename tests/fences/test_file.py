"""Files: killed at every call, links, permissions, and the writers of two worlds in turns."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import holdfast
from holdfast.fences import FileFence
from system_calls import call_set

CALLS = ("flock", "fsync", "rename", "write")
WRITE = """
import os, sys
from holdfast.fences import FileFence
fence = FileFence()
os.write(1, b"ready")
fence.write(sys.argv[1], "new", 34)
os.write(1, b"done")
"""


@pytest.mark.parametrize("call", CALLS)
def test_killed_at_each_call_leaves_neither_or_both(call: str, tmp_path: Path) -> None:
    deaths = 0
    for number in range(1, 20):
        path = tmp_path / str(number)
        FileFence().write(path, "old", 33)
        calls = call_set(call)
        command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}"]
        command += ["-e", f"inject={calls}:signal=SIGKILL:when={number}"]
        command += [sys.executable, "-c", WRITE, str(path)]
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)
        highest = FileFence().highest(path)  # whoever comes next finishes what was committed
        assert (path.read_text(), highest) in {("old", 33), ("new", 34)}
        FileFence().write(path, "next", 35)
        assert path.read_text() == "next"
        if done.returncode == 0:
            assert done.stdout.endswith(b"done")
            break
        deaths += 1
    else:
        raise AssertionError("it was still killed at the last call")
    assert deaths >= 2


def test_what_killed_writers_leave_does_not_pile_up(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for token in range(1, 7):
        FileFence().write(path, "old", token)
        with FileFence()._inside(path) as memory:
            memory.stage(b"never committed")
    assert len(os.listdir(tmp_path)) <= 5
    assert FileFence().highest(path) == 6
    assert path.read_text() == "old"


def test_a_link_is_the_file_it_leads_to(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    link.symlink_to(path)
    FileFence().write(link, "a", 5)
    with pytest.raises(holdfast.StaleToken):
        FileFence().write(path, "b", 4)
    assert link.is_symlink()
    assert path.read_text() == "a"


@pytest.mark.parametrize("mode", [0o640, 0o666])
def test_a_file_keeps_its_mode(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("was here before")
    path.chmod(mode)
    before = os.umask(0o022)
    try:
        FileFence().write(path, b"a", 5)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == mode
    assert path.read_bytes() == b"a"


def test_a_damaged_memory_lets_nobody_pass(tmp_path: Path) -> None:
    path = tmp_path / "file"
    FileFence().write(path, "a", 5)
    (tmp_path / ".file.fence").write_text("{")
    with pytest.raises(holdfast.GuaranteeError, match="damaged"):
        FileFence().write(path, "b", 6)
    assert path.read_text() == "a"


def test_a_reset_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    FileFence().write(path, "a", 5)
    FileFence().reset(path, by="ada")
    FileFence().write(path, "b", 4)
    assert '"by": "ada", "token": 5' in (tmp_path / ".file.fence").read_text()


async def test_those_who_append_take_turns_in_both_worlds(tmp_path: Path) -> None:
    path = tmp_path / "file"
    inside = 0
    most = 0

    def enter() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)

    def leave(token: int) -> None:
        nonlocal inside
        with path.open("a") as file:
            file.write(f"{token}\n")
        inside -= 1

    def blocking(token: int) -> None:
        try:
            with FileFence().hold(path, token):
                enter()
                leave(token)
        except holdfast.StaleToken:
            pass

    async def aio(token: int) -> None:
        try:
            async with FileFence().hold(path, token):
                enter()
                await asyncio.sleep(0)
                leave(token)
        except holdfast.StaleToken:
            pass

    threads = [threading.Thread(target=blocking, args=(token,)) for token in range(1, 21, 2)]
    for thread in threads:
        thread.start()
    await asyncio.gather(*(aio(token) for token in range(2, 21, 2)))
    for thread in threads:
        await asyncio.to_thread(thread.join, 20)
    written = [int(line) for line in path.read_text().split()]
    assert written == sorted(written)
    assert written[-1] == 20
    assert most == 1
