"""Starting the command, in a process group of its own, with what it is to inherit of us."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Mapping, Sequence

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


def spawn(
    command: list[str],
    environment: Mapping[str, str],
    tethers: Sequence[int],
    default: Sequence[int],
) -> int:
    """Starts the command, and returns its process id, which is that of its group too.

    Of our own descriptors it inherits the tethers; `default` are signals that we ignore and it
    should not.
    """
    actions: list[tuple[int, int, int]] = []
    spares: list[int] = []
    try:
        for tether in tethers:
            try:
                spares.append(fcntl.fcntl(tether, fcntl.F_DUPFD_CLOEXEC, _HIGH))
            except OSError:
                spares.append(os.dup(tether))  # the limit is low; anything will do
            actions.append((os.POSIX_SPAWN_DUP2, tether, spares[-1]))
        return os.posix_spawnp(
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
        for spare in spares:
            os.close(spare)


def _refused(file: str, error: OSError | ValueError) -> CannotStart:
    """As a shell does: 127 for what is not there, 126 for what is there and cannot be run."""
    if isinstance(error, ValueError):  # an empty name
        return CannotStart(f"{file!r} is not the name of a command", statuses.NOT_FOUND)
    searched = "/" not in file
    # A folder of $PATH that this user may not enter is passed over, as shells do.
    unseen = searched and error.errno in (errno.EACCES, errno.ENOTDIR) and not _is_in_path(file)
    if error.errno == errno.ENOENT or unseen:
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


def _is_in_path(file: str) -> bool:
    """Returns whether a folder of $PATH has `file`, which perhaps cannot be run."""
    return any(os.path.exists(os.path.join(folder, file)) for folder in os.get_exec_path())
