"""Processes and folders that end with this process, whatever becomes of it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

ROOM = 2**30
"""Bytes that must be free in memory for one more folder to be made there."""


def start(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    output: IO[bytes] | int | None = subprocess.DEVNULL,
    errors: IO[bytes] | int | None = subprocess.STDOUT,
    folder: Path | None = None,
    **others: Any,
) -> subprocess.Popen[bytes]:
    """Starts a process, in a session of its own, that ends with this one; `others` are Popen's.

    The `environment` is put on top of this process's own. Whoever ends the process calls `end_group`,
    or `forget` once it has been waited for.
    """
    from .janitor import MARK, janitor

    watched = janitor()
    process = subprocess.Popen(
        command,
        stdin=others.pop("stdin", subprocess.DEVNULL),
        stdout=output,
        stderr=errors,
        cwd=folder,
        env={**os.environ, **(environment or {}), MARK: watched.mark},
        start_new_session=True,
        **others,
    )
    watched.watch_process(process.pid)
    return process


def end_group(process: subprocess.Popen[Any]) -> None:
    """Kills a process that `start` started, with its whole group, and waits for it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    forget(process)


def forget(process: subprocess.Popen[Any]) -> None:
    """Has the janitor forget a process that has been waited for: its id may be given to another."""
    from .janitor import janitor

    janitor().forget_process(process.pid)


def make_folder(name: str, *, on_disk: bool = False) -> Path:
    """Makes a temporary folder that is removed when this process ends; by `remove_folder` before.

    Unless it is to be `on_disk`, it is in memory where there is room: nobody cuts the power, and a busy
    disk holds no server up.
    """
    from .janitor import janitor

    folder = Path(tempfile.mkdtemp(prefix=f"hf-{name}-", dir=None if on_disk else _memory()))
    janitor().watch_folder(folder)
    return folder


def remove_folder(folder: Path) -> None:
    from .janitor import janitor

    shutil.rmtree(folder, ignore_errors=True)
    janitor().forget_folder(folder)


def _memory() -> str | None:
    place = Path("/dev/shm")
    try:
        roomy = shutil.disk_usage(place).free > ROOM and os.access(place, os.W_OK)
    except OSError:
        return None
    return str(place) if roomy else None


def began_at(pid: int) -> str:
    """Returns when a process began, in the kernel's words: with its id it names it for good."""
    fields = stat_fields(pid)
    return fields[19] if fields else ""


def state_of(pid: int) -> str:
    """Returns the state of a process in one letter, as `ps` shows it; empty if there is none."""
    fields = stat_fields(pid)
    return fields[0] if fields else ""


def has_ended(pid: int) -> bool:
    """Tells whether there is no such process, or only what is left of it."""
    return state_of(pid) in ("", "Z", "X")


def await_ended(pid: int, limit: float) -> None:
    """Waits until the process has ended, for so many seconds at most."""
    until = time.monotonic() + limit
    while not has_ended(pid) and time.monotonic() < until:
        time.sleep(0.005)


def stat_fields(pid: int | str) -> list[str]:
    """Returns what /proc tells of a process, behind its name; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def children_of(pid: int) -> list[int]:
    """Returns the processes that a process started, and that live."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def freeze(pid: int) -> None:
    """Has a process stand still, with all of its threads, which it does when this returns."""
    os.kill(pid, signal.SIGSTOP)
    await_stopped(pid)


def thaw(pid: int) -> None:
    """Has a process go on; harmless if it has ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def await_stopped(pid: int, limit: float = 10.0) -> None:
    """Waits until all threads of the process stand still, which takes the kernel a moment."""
    until = time.monotonic() + limit
    while time.monotonic() < until:
        try:
            tasks = [f"{pid}/task/{task}" for task in os.listdir(f"/proc/{pid}/task")]
        except OSError:  # it has ended; or this system has no /proc
            return
        if all(fields[0] in "TtZX" for task in tasks if (fields := stat_fields(task))):
            return
        time.sleep(0.001)
