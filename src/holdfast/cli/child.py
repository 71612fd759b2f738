"""The command and all that comes from it: our child, and whatever it starts, wherever that has gone.

What leaves the command's process group or session, or outlives its parents, is still a descendant of
ours (see `processes`). Where the system cannot adopt orphans, the process group is all that is known.

Signals that are passed on go to the command's group, as a terminal would send them. One that asks to
end goes to the groups of *our own* children too, once each: what has a parent below us hears of it
from that one, or is adopted when that one ends. So the command of a wrapper inside ours is told
once, by its own wrapper. SIGKILL goes to everybody.

Children that we had before the command was started (a script that did `job & exec holdfast run …`) are
none of it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence

from .processes import Family, Process, adopt_orphans, send
from .spawn import spawn

_CHASES = 100
"""Looks for processes that fork all the time, before all processes are read again."""


class Child:
    """The command, and all that comes from it. `pid` is the id of its process, and of its group."""

    def __init__(self, pid: int, strangers: set[int], adopting: bool) -> None:
        self.pid = pid
        self.status: int | None = None
        """The exit status of the command, once it has ended; -n if signal n ended it."""
        self._strangers = strangers
        self._adopting = adopting
        self._childless = False
        self._asked: set[int] = set()
        """The addresses that have been asked to end."""
        self._killed: set[int] = set()
        """The process ids that the last look found, and killed."""

    @classmethod
    def start(
        cls,
        command: list[str],
        environment: Mapping[str, str],
        tethers: Sequence[int],
        default: Sequence[int],
    ) -> Child:
        """Starts the command; see `spawn`."""
        adopting = adopt_orphans()
        strangers = _children()
        return cls(spawn(command, environment, tethers, default), strangers, adopting)

    def poll(self) -> int | None:
        """Sees what became of it; returns the signal by which it has been stopped, if it has."""
        stopped = None
        while not self._childless:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                self._childless = True
                break
            if pid == 0:
                break
            if pid != self.pid:
                if not os.WIFSTOPPED(status):
                    self._strangers.discard(pid)
            elif os.WIFSTOPPED(status):
                stopped = os.WSTOPSIG(status)
            else:
                self.status = os.waitstatus_to_exitcode(status)
                stopped = None
        return stopped

    def lives(self) -> bool:
        """Returns True if anything of the command is left."""
        self.poll()
        if self.status is None:
            return True
        if not self._adopting:
            return _exists(self.pid)
        if self._childless:
            return False
        return not self._strangers or bool(self._family().children())

    def tell(self, number: int) -> None:
        """Sends a signal to the command's group, while the command itself lives."""
        if self.status is None:
            send(-self.pid, number)

    def ask_to_end(self) -> None:
        """Sends SIGTERM to those who have not had it from us, and wakes them if they are stopped."""
        family = self._family()
        addresses = set(map(family.address, family.children()))
        if self._has_group():
            addresses.add(-self.pid)
        for address in addresses - self._asked:
            self._asked.add(address)
            send(address, signal.SIGTERM)
            send(address, signal.SIGCONT)

    def wake(self) -> None:
        """Lets all that is stopped go on."""
        self.tell(signal.SIGCONT)
        if self.status is not None:
            for member in self._family().members:
                send(member.pid, signal.SIGCONT)

    def kill(self) -> bool:
        """Sends SIGKILL to all of it. Returns True if there were some who had not had it yet, who may
        have forked meanwhile: so look again at once."""
        if self._has_group():
            send(-self.pid, signal.SIGKILL)
        family = self._family()
        for address in dict.fromkeys(map(family.address, family.members)):
            send(address, signal.SIGKILL)
        for _ in range(_CHASES):
            before = len(family.pids)
            for newcomer in family.newcomers():
                send(newcomer.pid, signal.SIGKILL)
            if len(family.pids) == before:
                break
        known, self._killed = self._killed, family.pids
        return not self._killed <= known

    def left(self) -> list[Process]:
        """Returns what is left of it, as far as /proc shows that; not those who are dead already."""
        return [member for member in self._family().members if member.state not in ("Z", "X")]

    def _has_group(self) -> bool:
        """Returns False once the group's number may be somebody else's, unless it is all we know."""
        return self.status is None or not self._adopting

    def _family(self) -> Family:
        return Family(os.getpid(), self._strangers)


def _children() -> set[int]:
    """Returns our children; those that have ended are reaped."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return set()
    return {child.pid for child in Family(os.getpid()).children()}


def _exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):  # or another one's, which has the number again
        return False
    return True
