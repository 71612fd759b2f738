"""Case 11: containers. They share a kernel and a disk, and yet see another boot, or only the file."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from faults.actors import Stage, environment, now
from holdfast.stores.sqlite.tokens import HEADROOM

PRIVATE = ("unshare", "-m") if os.getuid() == 0 else ("unshare", "-Urm")
BOOT_ID = "/proc/sys/kernel/random/boot_id"
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


Command = tuple[str, ...]


@pytest.fixture(params=["another", "empty", "unreadable"])
def container(request: pytest.FixtureRequest, tmp_path: Path) -> Command:
    """A command that runs what follows where the boot's id is another one, or cannot be read."""
    stand_in = tmp_path / "boot"
    if request.param == "unreadable":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(stand_in))
    else:
        stand_in.write_text("0f7a" * 9 + "\n" if request.param == "another" else "")
    return mounted((stand_in, BOOT_ID))


@pytest.mark.parametrize("outside", [True, False])
def test_another_boot_id_ends_no_living_lease(
    stage: Stage, container: Command, world: str, outside: bool
) -> None:
    """Wherever the holder is, and wherever the next process that opens the store."""
    sides: list[Command] = [(), container] if outside else [container, ()]
    holder = stage.actor(world, before=sides[0])
    first = holder.acquire("x", ttl=3.0)
    rival, stranger = stage.actor(world, before=sides[1]), stage.actor(world, before=sides[0])
    for one in (rival, stranger):
        assert one.attempt("x") is None
    waiting = rival.queue("x")
    holder.waits("x", rival)
    assert holder.held("x")
    holder.ask("renew", key="x")
    holder.ask("release", key="x")
    assert waiting.get()["token"] > first["token"]
    assert stranger.attempt("x") is None
    rival.kill()
    assert stranger.acquire("x")["token"] > first["token"]


def test_a_tethered_command_outlives_another_boot_id(stage: Stage, container: Command) -> None:
    holder = stage.actor()
    holder.acquire("x", ttl=600.0)
    sleep = "['sleep', '1000'], stdin=-3, stdout=-3, stderr=-3"
    tethered = f"{sleep}, pass_fds=[me.leases['x'].tether()]"
    pid = holder.ask("run", code=f"__import__('subprocess').Popen({tethered}).pid")
    try:
        holder.kill()
        holder.process.wait()
        assert stage.actor(before=container).attempt("x") is None
    finally:
        os.kill(pid, 9)
    assert stage.actor(before=container).acquire("x") is not None


def test_boots_that_take_turns_do_not_drive_tokens_ahead(
    stage: Stage, container: Command, tmp_path: Path
) -> None:
    tokens = []
    began = now()
    for turn in range(12):
        one = stage.actor(before=container if turn % 2 else ())
        tokens.append(one.acquire("x")["token"])
        one.kill()
        one.process.wait()
    assert tokens == sorted(set(tokens))
    with closing(sqlite3.connect(tmp_path / "locks.db")) as store:
        ((ceiling,),) = store.execute("SELECT ceiling FROM store")
    passed = (now() - began) * 1e6
    assert tokens[-1] - tokens[0] < passed + HEADROOM + 2e6
    assert ceiling - tokens[0] < passed + HEADROOM + 2e6
