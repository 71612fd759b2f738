"""A file that takes another one's place: whose it is, and who may use it.

A write by another user, root say, must not shut out the one whose file it was; nor may a group that
had no part in the former file read the new one.
"""

from __future__ import annotations

import os
import stat
from typing import Any

from ..interrupts import let_through

ACCESS = "system.posix_acl_access"
"""The attribute that has the rights of single users and groups (ACL)."""
BITS = 0o777
GROUP, OTHERS = 0o070, 0o007


def fresh_file(path: str, mode: int = 0o600) -> int:
    """Opens a new file at `path`; removes what a crash has left there."""
    try:
        os.unlink(path)
    except FileNotFoundError as error:
        let_through(error)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)


def staged_file(path: str, former: str) -> int:
    """Opens a new file at `path` for what will replace the file `former`, if that is there."""
    try:
        os.stat(former)
    except FileNotFoundError as error:
        let_through(error)
        return fresh_file(path, 0o666)
    descriptor = fresh_file(path)
    try:
        dress(descriptor, former)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def dress(descriptor: int, former: int | str) -> None:
    """Gives a file the owner, group, rights and attributes of the one that it will replace.

    The group is given the rights of all others where it cannot be the former one, or where that had
    rights that cannot be kept.
    """
    was, own = os.stat(former), os.fstat(descriptor)
    mode = stat.S_IMODE(was.st_mode) & BITS
    if was.st_uid != own.st_uid:
        _tried(os.fchown, descriptor, was.st_uid, -1)
    kept = was.st_gid == own.st_gid or _tried(os.fchown, descriptor, -1, was.st_gid)
    attributes = _attributes(former)
    if not kept or (ACCESS in attributes and not _tried(_set, descriptor, attributes, ACCESS)):
        mode = mode & ~GROUP | (mode & OTHERS) << 3
    for name in attributes:
        if name != ACCESS:
            _tried(_set, descriptor, attributes, name)
    os.fchmod(descriptor, mode)


def give_to_folder(descriptor: int, path: str) -> None:
    """Gives a file that root has just made to the owner of its folder, who could not use it else."""
    if os.geteuid() != 0:
        return
    own, named = os.fstat(descriptor), os.lstat(path)
    ours = stat.S_ISREG(named.st_mode) and named.st_nlink == 1  # no link to a file elsewhere
    if own.st_uid == 0 and own.st_size == 0 and ours and os.path.samestat(own, named):
        folder = os.stat(os.path.dirname(path))
        if folder.st_uid != 0:
            _tried(os.fchown, descriptor, folder.st_uid, folder.st_gid)


def _attributes(former: int | str) -> dict[str, bytes]:
    if not hasattr(os, "listxattr"):  # Linux has them
        return {}
    try:
        names = [name for name in os.listxattr(former) if name.startswith(("user.", ACCESS))]
        return {name: os.getxattr(former, name) for name in names}
    except OSError as error:
        let_through(error)
        return {}


def _set(descriptor: int, attributes: dict[str, bytes], name: str) -> None:
    os.setxattr(descriptor, name, attributes[name])


def _tried(call: Any, *arguments: Any) -> bool:
    """Returns False if a call is not allowed, or not known to the file system."""
    try:
        call(*arguments)
    except OSError as error:
        let_through(error)
        return False
    return True
