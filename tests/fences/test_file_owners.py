"""Files that several users write to: a write leaves a file, and its memory, to their owner."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from holdfast.fences import FileFence
from holdfast.versioned import FileVersioned

USER, GROUP, OTHER = 4711, 4712, 4713

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may act as other users")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yields a folder of the user's, which others can reach."""
    with TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        os.chown(name, USER, GROUP)
        yield Path(name)


def act(
    program: str, folder: Path, user: int = USER, group: int = GROUP, more: int = GROUP
) -> None:
    """Runs a program as another user, whose groups are `group` and `more`.

    Root runs it before, elsewhere, since the user may not read where Python and its modules are.
    """
    text = (
        "import os, tempfile\nfrom holdfast.fences import FileFence\n"
        "from holdfast.versioned import FileVersioned\nfence, files = FileFence(), FileVersioned()\n"
        "with tempfile.TemporaryDirectory() as elsewhere:\n"
        f"    os.chdir(elsewhere); exec({program!r})\n"
        f"os.chdir({str(folder)!r}); os.setgroups([{more}]); os.setgid({group}); os.setuid({user})\n"
        f"exec({program!r})\n"
    )
    subprocess.run([sys.executable, "-c", text], check=True)


@as_root
def test_root_shuts_nobody_out_of_his_files(folder: Path) -> None:
    act("fence.write('a', 'one', 5)", folder)
    FileFence().write(folder / "a", "two", 6)
    act("fence.write('a', 'three', 7); open('a', 'a').close()", folder)
    with FileFence().hold(folder / "a", 8):
        pass
    act("fence.write('a', 'four', 9)", folder)
    assert (folder / "a").stat().st_uid == USER


@as_root
def test_root_may_be_the_first_to_write_or_to_prune(folder: Path) -> None:
    FileFence().prune(folder, 0.001)
    act("fence.write('a', 'one', 5)", folder)
    (folder / "b").touch()
    os.chown(folder / "b", USER, GROUP)
    FileFence().write(folder / "b", "one", 5)
    act("fence.write('b', 'two', 6)", folder)
    assert FileFence().prune(folder, 0.000001) == 2
    act("fence.write('c', 'one', 10); fence.prune('.', 1e-6)", folder)
    assert all(file.stat().st_uid == USER for file in folder.iterdir())


@as_root
def test_a_planted_link_gives_nothing_away(folder: Path, tmp_path: Path) -> None:
    """What is behind it is not the user's, and does not become his."""
    precious = tmp_path / "precious"
    precious.touch()
    (folder / ".a.fence").symlink_to(precious)
    FileFence().write(folder / "a", "one", 5)
    assert precious.stat().st_uid == 0
    os.link(precious, folder / ".b.fence")
    with FileFence().hold(folder / "b", 5):
        assert precious.stat().st_uid == 0


@as_root
@pytest.mark.parametrize("versioned", [False, True])
def test_no_other_group_reads_what_is_written(folder: Path, versioned: bool) -> None:
    """The rights of the former group are not those of the writer's."""
    folder.chmod(0o777)
    path = folder / "a"
    path.write_text("old")
    os.chown(path, USER, GROUP)
    path.chmod(0o664)
    write = "fence.write('a', 'new', 5)"
    if versioned:
        write = "files.put('a', 'new 5', files.get('a').version)"
    act(write, folder, OTHER, OTHER, more=GROUP)
    found = path.stat()
    assert (found.st_gid, found.st_mode & 0o777) == (GROUP, 0o664)
    path.chmod(0o664)
    act(write.replace("5", "6"), folder, OTHER, OTHER, more=OTHER)
    found = path.stat()
    assert (found.st_gid, found.st_mode & 0o777) == (OTHER, 0o644)


@pytest.mark.parametrize("versioned", [False, True])
def test_attributes_of_the_user_stay(tmp_path: Path, versioned: bool) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    try:
        os.setxattr(path, "user.origin", b"here")
    except OSError:
        pytest.skip("this file system has no attributes")
    if versioned:
        files = FileVersioned()
        files.put(path, b"new", files.get(path).version)
    else:
        FileFence().write(path, "new", 5)
    assert path.read_text() == "new"
    assert os.getxattr(path, "user.origin") == b"here"


def test_what_a_crash_has_left_is_not_written_to(tmp_path: Path) -> None:
    """It may be open elsewhere, or be readable by others."""
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o600)
    left = tmp_path / ".a.fence-a"
    left.write_text("left")
    left.chmod(0o666)
    with left.open() as opened:
        FileFence().write(path, "new", 5)
        assert opened.read() == "left"
    assert path.stat().st_mode & 0o777 == 0o600
