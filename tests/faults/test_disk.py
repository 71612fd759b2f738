"""Cases 6 and 7: no room, and no permission."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults import actors
from faults.actors import run

NOBODY = 65534
PRIVATE = ("unshare", "-m") if os.getuid() == 0 else ("unshare", "-Urm")


@pytest.mark.parametrize(
    ("scene", "world"),
    [
        ("full", "blocking"),
        ("full", "aio"),
        ("waiting", "aio"),
        ("new", "blocking"),
        ("read_only", "blocking"),
    ],
)
def test_disk(scene: str, world: str, tmp_path: Path) -> None:
    run("disk", scene, world, str(tmp_path), before=PRIVATE)


@pytest.fixture
def open_folder() -> Iterator[str]:
    """One that other users can reach, unlike those that pytest makes."""
    folder = tempfile.mkdtemp(prefix="holdfast-")
    os.chmod(folder, 0o755)
    try:
        yield folder
    finally:
        os.chmod(folder, 0o755)
        shutil.rmtree(folder)


# Another user may not be able to read the library, so all that will be needed is loaded first.
AS_NOBODY = f"""
import os, tempfile, traceback, urllib.parse
import holdfast.aio, holdfast.stores.sqlite._async.backend
with tempfile.TemporaryDirectory() as folder:
    with holdfast.connect(f"sqlite://{{folder}}/locks.db") as locks:
        locks.lock("x").acquire().release()
if os.getuid() == 0:
    os.setuid({NOBODY})
"""


def test_a_folder_that_is_not_ours_to_write(open_folder: str, world: str) -> None:
    os.chmod(open_folder, 0o555)
    with actors.stage(open_folder) as stage:
        actor = stage.actor(world, AS_NOBODY)
        refused = actor.send("attempt", key="x", name="x").error()
        assert refused.kind == "ConfigError"
        assert open_folder in refused.text
        assert os.listdir(open_folder) == []


def test_a_file_that_is_not_ours_to_write(open_folder: str) -> None:
    with actors.stage(open_folder) as stage:
        maker = stage.actor()
        maker.acquire("x")
        maker.end()
        os.chmod(open_folder, 0o777)
        os.chmod(f"{stage.path}-live", 0o777)
        os.chmod(stage.path, 0o444)
        before = Path(stage.path).read_bytes()
        actor = stage.actor(prelude=AS_NOBODY)
        refused = actor.send("attempt", key="x", name="x").error()
        assert refused.kind == "ConfigError"
        assert stage.path in refused.text
        assert Path(stage.path).read_bytes() == before
        assert stat.S_IMODE(os.stat(stage.path).st_mode) == 0o444
