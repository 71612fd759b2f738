"""The doctors of the embedded store and of the store in memory, with each finding provoked."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from doctor.look import Look, look
from holdfast.findings import Finding


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "locks"
    folder.mkdir(0o700)
    return folder


def in_namespace(setup: str, url: str) -> Look:
    """Examines a store behind mounts of its own, which end with the process."""
    program = shutil.which("unshare")
    assert program is not None, "this test needs unshare, of util-linux"
    doctor = f"{sys.executable} -m holdfast doctor --json --url {url}"
    own = [program, "-m"] if os.geteuid() == 0 else [program, "-Um", "--map-root-user"]
    done = subprocess.run(
        [*own, "sh", "-c", f"set -e; {setup}; {doctor}"],
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode in (0, 1), done.stderr.decode()
    return Look([Finding(**one) for one in json.loads(done.stdout)])


def test_a_store_that_is_not_there_yet_is_not_made(folder: Path) -> None:
    found = look(f"sqlite://{folder}/deeper/locks.db")
    found.one("file", "note", "no store yet")
    found.one("space", "ok")
    assert "wrong" not in [one.level for one in found.findings]
    assert list(folder.iterdir()) == []


def test_a_good_store_keeps_its_locks_and_gets_no_other(folder: Path) -> None:
    url = f"sqlite://{folder}/locks.db"
    with holdfast.connect(url) as locks, locks.lock("mine") as lease:
        found = Look(locks.doctor())
        found.one("steps", "ok", "taken, handed over and released")
        found.one("permissions", "ok")
        lease.ensure()
        assert [state.name for state in locks.list()] == ["mine"]
    found = look(url)
    found.one("steps", "ok")
    with sqlite3.connect(folder / "locks.db") as connection:
        assert "doctor" not in "".join(connection.iterdump())


def test_a_process_that_is_frozen_inside_a_step(folder: Path) -> None:
    url = f"sqlite://{folder}/locks.db"
    with holdfast.connect(url) as locks:
        locks.inspect("x")
    fd = os.open(folder / "locks.db-live" / "gate", os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        look(url, timeout=0.5).one("steps", "wrong", "cannot be taken")
    finally:
        os.close(fd)


def test_a_file_system_in_memory_with_little_room(folder: Path) -> None:
    url = f"sqlite://{folder}/locks.db"
    found = in_namespace(f"mount -t tmpfs -o size=1m,mode=700 none {folder}", url)
    found.one("file-system", "warning", "tmpfs")
    found.one("space", "wrong", "KiB are free")
    found = in_namespace(f"mount -t tmpfs -o size=32m,mode=700 none {folder}", url)
    found.one("space", "warning", "MiB are free")
    found = in_namespace(f"mount -t tmpfs -o nr_inodes=1,size=1g,mode=700 none {folder}", url)
    found.one("space", "wrong", "no inode")


def test_a_container(folder: Path) -> None:
    parts = [folder / name for name in ("lower", "upper", "work", "merged")]
    for part in parts:
        part.mkdir()
    lower, upper, work, merged = parts
    setup = (
        f"mount -t tmpfs none {folder}; mkdir {' '.join(map(str, parts))}; mount -t overlay none "
    )
    setup += f"-o lowerdir={lower},upperdir={upper},workdir={work} {merged}"
    in_namespace(setup, f"sqlite://{merged}/locks.db").one("file-system", "warning", "overlay")


def test_a_file_that_is_mounted_by_itself(folder: Path) -> None:
    (folder / "locks.db").touch()
    setup = f"mount --bind {folder}/locks.db {folder}/locks.db"
    found = in_namespace(setup, f"sqlite://{folder}/locks.db")
    assert "mounted by itself" in found.one("file-system", "wrong").why


def test_a_folder_of_another_user(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    folder.mkdir(0o755)
    url = f"sqlite://{folder}/locks.db"
    if os.geteuid() == 0:
        for above in (tmp_path, *tmp_path.parents):
            if above.stat().st_uid == 0 and not above.stat().st_mode & 0o001:
                above.chmod(0o711)
        os.seteuid(65534)
        try:
            found = look(url)
        finally:
            os.seteuid(0)
    else:
        folder.chmod(0o555)
        found = look(url)
        folder.chmod(0o755)
    found.one("permissions", "wrong", "may not write")


def test_a_folder_for_everybody(folder: Path) -> None:
    folder.chmod(0o777)
    look(f"sqlite://{folder}/locks.db").one("permissions", "warning", "every user")


def test_a_second_name(folder: Path) -> None:
    url = f"sqlite://{folder}/locks.db"
    with holdfast.connect(url) as locks:
        locks.inspect("x")
    os.link(folder / "locks.db", folder / "other.db")
    assert "second name" in look(url).one("steps", "wrong").what


def test_a_file_that_is_none_of_ours(folder: Path) -> None:
    (folder / "locks.db").write_text("notes\n" * 100)
    look(f"sqlite://{folder}/locks.db").one("steps", "wrong")
    assert (folder / "locks.db").read_text() == "notes\n" * 100


def test_memory_is_for_tests() -> None:
    assert look("memory://").bad() == ["purpose"]
    with holdfast.connect("memory://") as locks, locks.lock("mine"):
        assert [one.check for one in locks.doctor()] == ["purpose"]
