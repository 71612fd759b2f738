"""The processes of this machine as /proc shows them, and the adoption of orphans.

A process whose parent ends is given to the nearest ancestor that adopts orphans, whatever session or
group it has moved to. So who adopts keeps all its descendants, and has none when it has no child: the
kernel says that by `waitpid`, without a race. /proc only shows whom to send a signal to.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import suppress

_PR_SET_CHILD_SUBREAPER = 36
_LOOKS = 3
_STATES = {"D": "waits for a device", "T": "is stopped", "t": "is being traced"}


class Process:
    """A process as it was when /proc was read."""

    __slots__ = ("group", "name", "parent", "pid", "state")

    def __init__(self, pid: int, parent: int, group: int, state: str, name: str) -> None:
        self.pid = pid
        self.parent = parent
        self.group = group
        self.state = state
        self.name = name

    def __str__(self) -> str:
        notes = [f"pid {self.pid}"]
        with suppress(OSError):
            if os.stat(f"/proc/{self.pid}").st_uid != os.geteuid():
                notes.append("runs as another user")
        if self.state in _STATES:
            notes.append(_STATES[self.state])
        return f"{self.name} ({', '.join(notes)})"


class Family:
    """The descendants of a process at one moment, without some of its children and theirs."""

    __slots__ = ("_ancestor", "_others", "_outsiders", "members", "pids")

    def __init__(self, ancestor: int, excluded: Collection[int] = ()) -> None:
        everybody = _everybody()
        children: dict[int, list[Process]] = {}
        for process in everybody.values():
            children.setdefault(process.parent, []).append(process)
        self._ancestor = ancestor
        self.members: list[Process] = []
        """Parents stand before their children."""
        parents = [ancestor]
        while parents:
            found = [
                child for child in children.pop(parents.pop(), ()) if child.pid not in excluded
            ]
            self.members += found
            parents += [child.pid for child in found]
        self.pids = {member.pid for member in self.members}
        self._others = everybody.keys() - self.pids
        self._outsiders = {everybody[pid].group for pid in self._others}
        """The groups in which somebody else is too."""

    def children(self) -> list[Process]:
        return [member for member in self.members if member.parent == self._ancestor]

    def newcomers(self) -> Iterator[Process]:
        """Yields members that have come since, each as soon as it is found: it may be gone soon."""
        for name in _names():
            pid = int(name)
            if pid in self.pids or pid in self._others or (process := _read(name)) is None:
                continue
            if process.parent in self.pids or process.parent == self._ancestor:
                self.pids.add(pid)
                yield process
            elif process.parent in self._others:
                self._others.add(pid)

    def address(self, member: Process) -> int:
        """Returns where to send a signal for that member: to its group, which nobody can leave by
        forking meanwhile, or to the member alone if its group is not all of the family."""
        return member.pid if member.group in self._outsiders else -member.group


def send(address: int, number: int) -> None:
    """Sends a signal to a process, or to a group if the address is negative, as far as we may."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(address, number)


def adopt_orphans() -> bool:
    """Makes this process the parent of orphaned descendants. Returns False if the system cannot."""
    try:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def _names() -> list[str]:
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _everybody() -> dict[int, Process]:
    found = {int(name): process for name in _names() if (process := _read(name)) is not None}
    for _ in range(_LOOKS):
        # Those whose parents ended while we read have others now, or have ended too.
        astray = [one.pid for one in found.values() if one.parent and one.parent not in found]
        if not astray:
            break
        for pid in astray:
            process = _read(str(pid))
            if process is None:
                del found[pid]
            else:
                found[pid] = process
    return found


def _read(pid: str) -> Process | None:
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # it has ended
        return None
    try:
        front, _, back = os.read(fd, 1024).rpartition(b")")
    except OSError:
        return None
    finally:
        os.close(fd)
    state, parent, group = back.split(None, 3)[:3]
    name = front.partition(b"(")[2].decode(errors="replace")
    return Process(int(pid), int(parent), int(group), state.decode(), name)
