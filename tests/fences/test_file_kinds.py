"""Files: what is no plain file, or no path; files with two names; a memory that was damaged."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.fences import FileFence


def test_a_pipe_a_socket_or_a_device_is_not_replaced(tmp_path: Path) -> None:
    pipe, address, link = tmp_path / "pipe", tmp_path / "socket", tmp_path / "null"
    os.mkfifo(pipe)
    link.symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(address))
        for path in (pipe, address, link):
            with pytest.raises(holdfast.ConfigError, match="no plain file"):
                FileFence().write(path, "a", 34)
        assert pipe.is_fifo()
        assert address.is_socket()
        assert sorted(os.listdir(tmp_path)) == ["null", "pipe", "socket"]
        with FileFence().hold(pipe, 34):
            pass
        with pytest.raises(holdfast.StaleToken):
            FileFence().guard(pipe, 33)


async def test_a_file_with_two_names_is_not_held_by_one_of_them(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_text("old")
    other.hardlink_to(path)
    for name in (path, other):
        with pytest.raises(holdfast.ConfigError, match="2 names"):
            FileFence().hold(name, 34).__enter__()
        with pytest.raises(holdfast.ConfigError, match="2 names"):
            await FileFence().hold(name, 34).__aenter__()
        with pytest.raises(holdfast.ConfigError, match="2 names"):
            FileFence().guard(name, 34)
    FileFence().write(path, "new", 34)  # has a file of its own by this
    assert (path.read_text(), other.read_text()) == ("new", "old")
    with FileFence().hold(path, 34):
        path.write_text("newer")


@pytest.mark.parametrize("damage", ["{", "[]", "", '{"token": "34"}', '{"token": 34, "lock": 7}'])
def test_a_damaged_memory_is_reset_as_its_error_says(damage: str, tmp_path: Path) -> None:
    fence, path, memory = FileFence(), tmp_path / "file", tmp_path / ".file.fence"
    fence.write(path, "a", 34)
    memory.write_text(damage)
    if damage:
        for refused in (lambda: fence.write(path, "b", 35), lambda: fence.highest(path)):
            with pytest.raises(holdfast.GuaranteeError, match=r"damaged.*reset\(\)"):
                refused()
        assert memory.read_text() == damage
    assert fence.reset(path, by="ada", to=34) == 0
    (entry,) = json.loads(memory.read_text())["resets"]
    assert (entry["by"], entry.get("damaged", False)) == ("ada", bool(damage))
    with pytest.raises(holdfast.StaleToken):
        fence.write(path, "late", 33)
    fence.write(path, "b", 35)
    assert (path.read_text(), fence.highest(path)) == ("b", 35)


@pytest.mark.parametrize("damage", ["{", "[]", '{"redis:a": "x"}', '{"redis:a": null}'])
def test_damaged_floors_let_nobody_new_pass(damage: str, tmp_path: Path) -> None:
    fence, floors = FileFence(), tmp_path / ".holdfast-floors.fence"
    fence.write(tmp_path / "old", "a", 34)
    floors.write_text(damage)
    with pytest.raises(holdfast.GuaranteeError, match="remove it"):
        fence.write(tmp_path / "new", "b", 35)
    fence.write(tmp_path / "old", "c", 35)
    assert fence.reset(tmp_path / "new", by="ada", to=34) == 0
    floors.unlink()
    fence.write(tmp_path / "newer", "b", 35)


@pytest.mark.parametrize("verb", ["write", "guard", "hold", "highest", "reset"])
def test_what_is_no_path_is_refused(verb: str, tmp_path: Path) -> None:
    fence: Any = FileFence()
    calls: dict[str, Callable[[Any], Any]] = {
        "write": lambda path: fence.write(path, "a", 34),
        "guard": lambda path: fence.guard(path, 34),
        "hold": lambda path: fence.hold(path, 34).__enter__(),
        "highest": fence.highest,
        "reset": lambda path: fence.reset(path, by="a test"),
    }
    for path in (None, 0, b"x", "", "a\0b", "\ud800", object(), tmp_path / ("n" * 250)):
        with pytest.raises(holdfast.ConfigError, match=r"path|name"):
            calls[verb](path)
    longest = tmp_path / ("n" * 244)
    fence.write(longest, "a", 34)
    assert fence.highest(longest) == 34
