"""The mounts that this process sees: which file system a path is on, and whether it is a mount point.

The kernel tells on Linux only. A file may be mounted by itself, without the folder that it is in: then
it has a second name, and what stands beside it is seen by nobody behind the other one.
"""

from __future__ import annotations

from typing import NamedTuple

from .interrupts import let_through


def mount_table() -> str:
    """Returns /proc/self/mountinfo; an empty text where the system does not tell."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError as error:
        let_through(error)
        return ""


def is_mount_point(path: str) -> bool:
    """Returns True if something is mounted at that real, absolute path; False if that is unknown."""
    return mount_of(path, mount_table()).point == path


class Mount(NamedTuple):
    """A mounted file system: its mount point, and its type. Both are empty where that is unknown."""

    point: str
    kind: str


def mount_of(path: str, mountinfo: str) -> Mount:
    """Returns the mount that a real, absolute path is on, by /proc/self/mountinfo.

    Walks down from the root as the kernel does: at each folder of the path, the mount that sits
    there on the mount we are in, and again while another one is stacked on it. The longest matching
    mount point would be wrong when a later mount above has hidden it.
    """
    mounts: list[tuple[str, str, Mount]] = []  # id, id of its parent
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if separator and len(fields) >= 6:
            mount = Mount(_unescape(fields[4]), after.split(" ")[0])
            mounts.append((fields[0], fields[1], mount))
    at = {(parent, mount.point): (number, mount) for number, parent, mount in mounts}
    known = {number for number, _, _ in mounts}
    current, found = "", None
    for number, parent, mount in mounts:
        if mount.point == "/" and (parent not in known or parent == number):
            current, found = number, mount
    if found is None:
        return _longest(path, [mount for _, _, mount in mounts])
    names = [name for name in path.split("/") if name]
    for depth in range(len(names) + 1):
        point = "/" + "/".join(names[:depth])
        seen = {current}
        while (current, point) in at and at[current, point][0] not in seen:
            current, found = at[current, point]
            seen.add(current)
    return found


def _longest(path: str, mounts: list[Mount]) -> Mount:
    """Returns the deepest mount above, for a root that is no mount point."""
    best, found = -1, Mount("", "")
    for mount in mounts:
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        if inside and len(mount.point) >= best:
            best, found = len(mount.point), mount
    return found


def _unescape(field: str) -> str:
    """Decodes a mount point, in which blanks and such are three octal digits: `\\040`."""
    first, *parts = field.split("\\")
    return first + "".join(
        chr(int(part[:3], 8)) + part[3:] if part[:3].isdigit() else "\\" + part for part in parts
    )
