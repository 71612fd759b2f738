"""The tree of znodes, as one simulated server has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Stat(NamedTuple):
    """The facts about a znode, in ZooKeeper's words."""

    czxid: int
    mzxid: int
    mtime: int
    version: int
    ephemeralOwner: int
    pzxid: int


class Znode:
    """One znode. `owner` is the session that it ends with, or 0."""

    __slots__ = (
        "children",
        "creates",
        "czxid",
        "data",
        "mtime",
        "mzxid",
        "owner",
        "pzxid",
        "version",
    )

    def __init__(self, data: bytes, owner: int, zxid: int, mtime: int) -> None:
        self.data = data
        self.owner = owner
        self.czxid = self.mzxid = self.pzxid = zxid
        self.mtime = mtime
        self.version = 0
        self.creates = 0
        """Children that were ever created: the next sequence number."""
        self.children: dict[str, None] = {}

    @property
    def stat(self) -> Stat:
        return Stat(self.czxid, self.mzxid, self.mtime, self.version, self.owner, self.pzxid)


class Tree:
    """The znodes after all changes that were applied so far."""

    def __init__(self) -> None:
        self.znodes: dict[str, Znode] = {"/": Znode(b"", 0, 0, 0)}
        self.zxid = 0

    def apply(
        self, zxid: int, change: tuple[Any, ...], on_change: Callable[[str, str], None]
    ) -> None:
        """Applies a change; calls `on_change` with each path that it concerns, and in which way."""
        self.zxid = zxid
        if change[0] == "step":
            for one in change[1]:
                self.apply(zxid, one, on_change)
            return
        kind, path, *rest = change
        parent = parent_of(path)
        if kind == "create":
            data, owner, mtime = rest
            self.znodes[path] = Znode(data, owner, zxid, mtime)
            above = self.znodes[parent]
            above.children[path.rpartition("/")[2]] = None
            above.creates += 1
            above.pzxid = zxid
            on_change(parent, "children")
        elif kind == "delete":
            self.znodes.pop(path)
            above = self.znodes[parent]
            del above.children[path.rpartition("/")[2]]
            above.pzxid = zxid
            on_change(path, "deleted")
            on_change(parent, "children")
        elif kind == "set":
            data, mtime = rest
            znode = self.znodes[path]
            znode.data, znode.mzxid, znode.mtime = data, zxid, mtime
            znode.version += 1
            on_change(path, "changed")


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"
