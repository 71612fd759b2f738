"""The command: a child in a process group of its own, so that all of it can be told and ended."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress

from . import statuses

_HIGH = 64
"""The descriptor of the command's tether: above those that scripts use by number."""
_IGNORED_BY_PYTHON = tuple(
    getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ") if hasattr(signal, name)
)


class CannotStart(Exception):
    """Raised when the command could not be started; `status` is what a shell would answer."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class Child:
    """`pid` is that of the command and of its group."""

    __slots__ = ("pid", "status")

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.status: int | None = None
        """The exit status, once it has ended; -n if signal n ended it."""

    @classmethod
    def start(
        cls,
        command: list[str],
        environment: Mapping[str, str],
        tether: int | None,
        default: Sequence[int],
    ) -> Child:
        """Start it. Of our own descriptors it inherits the tether; `default` are signals that we
        ignore and it should not."""
        actions: list[tuple[int, int, int]] = []
        spare = -1
        if tether is not None:
            try:
                spare = fcntl.fcntl(tether, fcntl.F_DUPFD_CLOEXEC, _HIGH)
            except OSError:
                spare = os.dup(tether)  # the limit is low; anything will do
            actions.append((os.POSIX_SPAWN_DUP2, tether, spare))
        try:
            pid = os.posix_spawnp(
                command[0],
                command,
                environment,
                file_actions=actions,
                setpgroup=0,
                setsigdef=[*_IGNORED_BY_PYTHON, *default],
            )
        except (OSError, ValueError) as error:
            raise _refused(command[0], error) from error
        finally:
            if spare >= 0:
                os.close(spare)
        return cls(pid)

    def poll(self) -> int | None:
        """See what became of it; answers the signal by which it has been stopped, if it has."""
        if self.status is not None:
            return None
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            return None
        if os.WIFSTOPPED(status):
            return os.WSTOPSIG(status)
        self.status = os.waitstatus_to_exitcode(status)
        return None

    def tell(self, number: int) -> bool:
        """Send a signal to the whole group; False if nobody is left in it, or we may not."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def group_lives(self) -> bool:
        """Returns True if anybody is left in the group, the command itself included."""
        if self.status is not None:
            # As the first process of a container we are the one to bury its orphans.
            with suppress(ChildProcessError):
                while os.waitpid(-self.pid, os.WNOHANG)[0]:
                    pass
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return self.status is None
        return True


def _refused(file: str, error: OSError | ValueError) -> CannotStart:
    """As a shell does: 127 for what is not there, 126 for what is there and cannot be run."""
    if isinstance(error, ValueError):  # an empty name
        return CannotStart(f"{file!r} is not the name of a command", statuses.NOT_FOUND)
    searched = "/" not in file
    if error.errno == errno.ENOENT or (searched and error.errno == errno.ENOTDIR):
        where = "in $PATH" if searched else "at that path, or the interpreter its first line names"
        return CannotStart(f"{file}: not found {where}", statuses.NOT_FOUND)
    why = error.strerror or str(error)
    if error.errno == errno.ENOEXEC:
        why += f"; if it is a script, start it with a line such as #!/bin/sh, or run: sh {file}"
    elif error.errno == errno.EACCES and os.path.isdir(file):
        why = "it is a folder"
    elif error.errno == errno.EACCES:
        why += "; make it executable: chmod +x"
    return CannotStart(f"{file}: found, but cannot be run: {why}", statuses.CANNOT_RUN)
