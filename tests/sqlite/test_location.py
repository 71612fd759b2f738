"""The location of a store: told from the URL, from the mounts, and by trying."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import BackendUnavailable, ConfigError
from holdfast.mounts import Mount, mount_of
from holdfast.stores.sqlite.location import (
    clock_identity,
    default_path,
    identity_of,
    is_shared,
    live_directory,
    path_of_url,
    prepare,
    refuse_unsuitable,
)


def test_default_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert default_path() == "/home/ada/.local/state/holdfast/locks.db"
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/ignored")
    assert default_path() == "/home/ada/.local/state/holdfast/locks.db"
    monkeypatch.setenv("XDG_STATE_HOME", "/var/ada")
    assert default_path() == "/var/ada/holdfast/locks.db"
    monkeypatch.setenv("XDG_STATE_HOME", "")
    monkeypatch.setenv("HOME", "nowhere")
    with pytest.raises(ConfigError, match="sqlite:///"):
        default_path()


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///var/locks.db", "/var/locks.db"),
        ("SQLite:////var/locks.db", "/var/locks.db"),
        ("sqlite://///var//locks.db", "/var//locks.db"),
        ("sqlite:///a%20b/%C3%BC%3F%23.db", "/a b/ü?#.db"),
        ("sqlite:///100%25.db", "/100%.db"),
        ("sqlite:///ü b.db", "/ü b.db"),
        ("sqlite:///%ff.db", "/\udcff.db"),
        ("sqlite:///a@b:c.db", "/a@b:c.db"),
    ],
)
def test_path_of_url(url: str, path: str) -> None:
    assert path_of_url(url) == path


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("sqlite://locks.db", "three slashes"),
        ("sqlite://host/locks.db", "'host'"),
        ("sqlite://", "three slashes"),
        ("sqlite:///", "no path"),
        ("sqlite:////", "no path"),
        ("sqlite:///var/", "folder"),
        ("sqlite:///var/..", "folder"),
        ("sqlite:///var/.", "folder"),
        ("sqlite:///a%00b", "control"),
        ("sqlite:///a\nb", "control"),
        ("sqlite:///a%7Fb", "control"),
        ("sqlite:///a?b", "%3F"),
        ("sqlite:///a#b", "%23"),
        ("sqlite:///a%2", "%25"),
        ("sqlite:///a%zz", "%25"),
        ("sqlite:///a% 1", "%25"),
        ("sqlite:///a%+1", "%25"),
        ("sqlite:/var/locks.db", "three slashes"),
        ("redis:///var/locks.db", "not the URL"),
        ("/var/locks.db", "not the URL"),
    ],
)
def test_bad_urls(url: str, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        path_of_url(url)
    assert text in str(raised.value)


def test_no_password_is_shown() -> None:
    with pytest.raises(ConfigError) as raised:
        path_of_url("sqlite://ada:secret@host/locks.db")
    assert "secret" not in str(raised.value)


# The root comes after what was mounted before it was moved into place, as it does after a boot.
MOUNTS = r"""
22 28 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw
28 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw,errors=remount-ro
31 28 8:3 / /home rw shared:12 - xfs /dev/sda3 rw
32 31 0:40 / /home/ada/net rw shared:13 - nfs4 server:/ada rw,vers=4.2
33 31 0:41 / /home/ada/a\040b\134c rw - fuse.sshfs host: rw
34 28 0:42 / /srv rw - 9p share rw
35 34 8:4 / /srv rw master:1 propagate_from:2 - btrfs /dev/sdb1 rw
36 28 0:43 / /mnt/deep/er rw - tmpfs tmpfs rw
37 28 0:44 / /mnt rw - cifs //server/x rw
this line makes no sense
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/homer/x", "ext4"),
        ("/home", "xfs"),
        ("/home/ada/network", "xfs"),
        ("/home/ada/net", "nfs4"),
        ("/home/ada/net/deep/er", "nfs4"),
        ("/home/ada/a b\\c/d", "fuse.sshfs"),
        ("/srv/x", "btrfs"),  # stacked: the last one counts
        ("/mnt/deep/er/x", "cifs"),  # hidden by what was mounted above it later
        ("/sys/kernel", "sysfs"),
    ],
)
def test_mount_of(path: str, kind: str) -> None:
    assert mount_of(path, MOUNTS).kind == kind


def test_mount_of_a_root_that_is_no_mount() -> None:
    lines = [
        "50 28 8:3 / /data rw - xfs /dev/sda3 rw",
        "51 50 8:3 / /data/x rw - nfs a rw",
        "52 51 8:3 / /data/x rw - tmpfs b rw",
    ]
    assert mount_of("/data/y", "\n".join(lines)).kind == "xfs"
    assert mount_of("/data/x/y", "\n".join(lines)).kind == "tmpfs"
    assert mount_of("/other", "\n".join(lines)) == Mount("", "")
    assert mount_of("/other", "") == Mount("", "")


def test_a_mount_point_is_told_from_what_is_below_it() -> None:
    assert mount_of("/home/ada/net", MOUNTS).point == "/home/ada/net"
    assert mount_of("/home/ada/net/locks.db", MOUNTS).point == "/home/ada/net"
    assert mount_of("/mnt/deep/er", MOUNTS).point == "/mnt"  # hidden


def test_kinds() -> None:
    shared = "nfs nfs4 cifs smb3 smbfs 9p virtiofs fuse fuse.sshfs fuseblk ceph glusterfs lustre"
    shared += " gfs2 ocfs2 afs beegfs gpfs vboxsf prl_fs drvfs ncpfs coda orangefs davfs"
    assert [kind for kind in shared.split() if not is_shared(kind)] == []
    local = "ext4 xfs btrfs tmpfs overlay zfs f2fs bcachefs ext2 s 9 fs"
    assert [kind for kind in local.split() if is_shared(kind)] == []


def test_a_shared_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "holdfast.stores.sqlite.location.mount_of", lambda *_: Mount("/mnt", "nfs4")
    )
    path = tmp_path / "new" / "locks.db"
    for check in (refuse_unsuitable, prepare):
        with pytest.raises(ConfigError) as raised:
            check(str(path))
        assert str(path) in str(raised.value)
        assert "nfs4" in str(raised.value)
        assert "local disk" in str(raised.value)
        assert "redis://" in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_what_is_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    for path, text in [
        (tmp_path, "is a folder"),
        (tmp_path / "file" / "locks.db", "is not a folder"),
        (tmp_path / "file" / "deep" / "locks.db", "is not a folder"),
        (tmp_path / "fifo", "not a regular file"),
    ]:
        with pytest.raises(ConfigError, match=text):
            refuse_unsuitable(str(path))
    refuse_unsuitable(str(tmp_path / "file"))
    refuse_unsuitable(str(tmp_path / "not" / "yet" / "locks.db"))
    assert not (tmp_path / "not").exists()


def test_prepare(tmp_path: Path) -> None:
    path = tmp_path / "state" / "holdfast" / "locks.db"
    assert prepare(str(path)) == str(path)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["locks.db-live"]
    assert live_directory(str(path)) == f"{path}-live"
    (tmp_path / "link").symlink_to(path)
    assert prepare(str(tmp_path / "link")) == str(path)  # one folder, whatever it is called
    assert prepare(str(path)) == str(path)


@pytest.mark.parametrize(
    ("number", "kind", "text"),
    [
        (errno.EROFS, ConfigError, "read-only"),
        (errno.EACCES, ConfigError, "Permission denied"),
        (errno.ENOSPC, BackendUnavailable, "No space"),
    ],
)
def test_not_writable(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    kind: type[Exception],
    text: str,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    for step in ("open", "mkdir"):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, refuse)
            with pytest.raises(kind, match=text) as raised:
                prepare(str(tmp_path / "new" / "locks.db"))
        assert str(tmp_path) in str(raised.value)


def as_somebody(work: Callable[[], object]) -> str:
    """Returns what `work` raised in a child that is not root: no permission binds root."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = "nothing"
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            work()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        finally:
            os.write(write, said.encode())
            os._exit(0)
    os.close(write)
    with open(read) as told:
        said = told.read()
    os.waitpid(child, 0)
    return said


def test_really_not_writable() -> None:
    with tempfile.TemporaryDirectory() as name:  # not below a folder that only we may enter
        folder = Path(name)
        folder.chmod(0o777)
        path = folder / "locks.db"
        path.touch(mode=0o400)
        if os.geteuid() != 0:
            path.chmod(0o000)
        said = as_somebody(lambda: prepare(str(path)))
        assert said.startswith("ConfigError")
        assert "read and written" in said
        folder.chmod(0o500 if os.geteuid() != 0 else 0o755)
        said = as_somebody(lambda: prepare(str(path)))
        assert said.startswith("ConfigError")
        assert "Permission denied" in said
        folder.chmod(0o700)


def test_clock_identity() -> None:
    boot, namespace = clock_identity()
    assert clock_identity() == (boot, namespace)
    if Path("/proc/sys/kernel/random/boot_id").exists():
        assert len(boot) == 36
    if Path("/proc/self/ns/time").exists():
        assert int(namespace) > 0


def test_identity_of_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "live"
    folder.mkdir()
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(identity_of(str(folder)))) for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 16
    assert len(set(found)) == 1
    assert len(found[0]) == 32
    assert [path.name for path in folder.iterdir()] == ["id"]
    with pytest.raises(BackendUnavailable):
        identity_of(str(tmp_path / "missing"))
