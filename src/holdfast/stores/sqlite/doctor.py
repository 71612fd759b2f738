"""The doctor of the embedded store: its folder, its disk, and a lock on it.

The file itself is never opened here but through SQLite: to close another descriptor of it would drop
the locks of this process.
"""

from __future__ import annotations

import os
import stat
import time
from typing import Any

from ...errors import ConfigError, LockError
from ...findings import Findings
from ...interrupts import real_path
from ...mounts import mount_of, mount_table
from ..measures import trial_namespace, try_out
from ..timing import TIMING_OPTIONS, timing_of
from ..urls import Target, merge_options
from . import location
from ._sync.backend import SqliteBackend

NEEDED, COMFORTABLE = 4 << 20, 64 << 20
"""Bytes of free space without which the log cannot grow, and below which it may soon not."""
SLOW = 1.0
"""Seconds for taking, handing over and releasing a lock that are too many for a local disk."""
VOLATILE = ("tmpfs", "ramfs")


def examine(target: Target, namespace: str, options: dict[str, Any], deadline: float) -> Findings:
    """Returns the findings about the store that a URL names."""
    timing = timing_of(merge_options(target, options, {**TIMING_OPTIONS}))
    path = real_path(location.path_of_url(f"sqlite://{target.rest}"))
    findings = Findings()
    if not _judge_file_system(findings, path):
        return findings
    folder = _existing(os.path.dirname(path))
    writable = _judge_permissions(findings, path, folder)
    _judge_space(findings, folder)
    if not os.path.exists(path):
        findings.note("file", "there is no store yet", "it is made by the first lock")
    elif writable:
        backend = SqliteBackend(path, trial_namespace(namespace), timing)
        _try_lock(findings, backend, deadline)
    return findings


def _existing(folder: str) -> str:
    """Returns the folder, or the nearest one above it that exists."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder


def _judge_file_system(findings: Findings, path: str) -> bool:
    """Adds on what the store is; returns whether it can be there at all."""
    try:
        location.refuse_unsuitable(path)
    except ConfigError as error:
        findings.wrong(
            "file-system",
            "the store cannot be here",
            str(error),
            "name a file on a local disk, such as sqlite:///var/lib/app/locks.db",
        )
        return False
    kind = mount_of(os.path.dirname(path), mount_table()).kind
    if not kind:
        findings.note(
            "file-system",
            "the system does not tell on which file system the store is",
            "on one that several machines share, nobody can tell whether a holder is alive",
            "see that its folder is on a local disk",
        )
    elif kind in VOLATILE:
        findings.warning(
            "file-system",
            f"the store is on {kind}, which is gone when the machine restarts",
            "tokens go on from the clock then, and would go back if that was set back meanwhile; slots "
            "of once() are forgotten, so that work is done twice",
            "put it on a disk, such as sqlite:///var/lib/app/locks.db",
        )
    elif kind == "overlay":
        findings.warning(
            "file-system",
            "the store is inside a container (overlay)",
            "no other container sees it, so it excludes nobody there; and it is gone with the "
            "container",
            "mount a folder of the host into all containers that share the locks",
        )
    else:
        findings.ok("file-system", f"the store is on a local file system ({kind})")
    return True


def _judge_permissions(findings: Findings, path: str, folder: str) -> bool:
    """Adds who may use the store; returns whether we may."""
    needed = [folder]
    if os.path.exists(path):
        needed += [path, *filter(os.path.exists, [location.live_directory(path)])]
    for one in needed:
        if not os.access(one, os.R_OK | os.W_OK, effective_ids=True):
            findings.wrong(
                "permissions",
                f"this user may not write to {one}",
                "each lock is a write to the file, and to the folder beside it",
                "let all users of the locks be in a group that may write to the folder, or name "
                "another file",
            )
            return False
    mode = os.stat(folder).st_mode
    if mode & stat.S_IWOTH:
        findings.warning(
            "permissions",
            f"every user of this machine may write to {folder}",
            "any of them can remove the store, or put another in its place: then its locks are "
            "forgotten "
            "while they are held",
            "give the store a folder of its own, which only its users may write to",
        )
    else:
        findings.ok("permissions", f"this user may write to {folder}, and not everybody may")
    return True


def _judge_space(findings: Findings, folder: str) -> None:
    """Adds whether there is room on the disk."""
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    why = "a lock that cannot be written down is refused, and so are renewals: leases are lost"
    if free < NEEDED or (disk.f_files and not disk.f_favail):
        what = (
            f"{free // 1024:,} KiB are free on the disk"
            if free < NEEDED
            else "the disk has no inode left"
        )
        findings.wrong("space", what, why, "make room on the disk, or name a file on another")
    elif free < COMFORTABLE:
        findings.warning(
            "space", f"{free >> 20} MiB are free on the disk", why, "make room before it is full"
        )
    else:
        findings.ok("space", f"{free >> 20:,} MiB are free on the disk")


def _try_lock(findings: Findings, backend: SqliteBackend, deadline: float) -> None:
    """Adds whether a lock can be taken, and how long that takes."""
    began = time.monotonic()
    try:
        try_out(backend, deadline)
    except LockError as error:
        findings.wrong(
            "steps",
            f"a lock cannot be taken: {error}",
            "nobody else can take one either",
            "if a process is stopped in the middle of a step, let it go on or end it (fuser shows who "
            "has the file open); a file that is broken has to be removed while nobody uses it",
        )
        return
    took = time.monotonic() - began
    if took > SLOW:
        findings.warning(
            "steps",
            f"to take a lock, hand it over and release it took {took:.1f} s",
            "leases whose TTL is not much longer may end although their holder is alive",
            "find out what keeps the disk busy, or use longer TTLs",
        )
    else:
        findings.ok("steps", f"a lock was taken, handed over and released in {took * 1000:.0f} ms")
