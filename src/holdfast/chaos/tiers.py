"""Tiers: what this machine lets us break. Each is found out by trying, and says why it is missing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

from ..refusals import installing
from .faults import CLIENTS, CLOCK, NAMESPACES, STORES, STRACE, VDSO
from .servers.daemon import find
from .servers.errors import ServerError
from .servers.processes import await_stopped, end_group, start, state_of


class Tier(NamedTuple):
    """A group of faults that are possible together."""

    name: str
    """`clients`, `stores`, `namespaces`, `strace`, `clock` or `vdso`."""
    available: bool
    why: str
    """If it is available, what was found; if not, what is missing and how to get it."""


def tiers() -> list[Tier]:
    """Returns all tiers, in their order; trying them takes a second, once."""
    return [tier(name) for name in _TRIALS]


@cache
def tier(name: str) -> Tier:
    """Returns one tier."""
    try:
        return Tier(name, True, _TRIALS[name]())
    except (ServerError, OSError, subprocess.SubprocessError) as error:
        return Tier(name, False, str(error))


@cache
def stores() -> dict[str, str | None]:
    """Returns, by the name of each lab, why it cannot be started on this machine; None if it can."""
    from .labs import LABS, lab_class

    found: dict[str, str | None] = {}
    for name in LABS:
        lab = lab_class(name)
        missing = [f"the Python module {one}" for one in lab.modules if find_spec(one) is None]
        how = [installing(lab.extra)] if missing else []
        packages = set()
        for program, _, package in (text.partition(":") for text in lab.programs):
            try:
                find(program, package, *lab.folders())
            except ServerError:
                missing.append(program)
                packages.add(package)
        if packages:
            how.append(f"apt-get install {' '.join(sorted(packages))}")
        found[name] = f"{', '.join(missing)} missing: {'; '.join(how)}" if missing else None
    return found


def _try_clients() -> str:
    process = start(["sleep", "60"])
    try:
        os.kill(process.pid, signal.SIGSTOP)
        await_stopped(process.pid)
        if state_of(process.pid) not in ("T", "t", ""):
            raise ServerError("a process of ours does not stop when it is told to (SIGSTOP)")
    finally:
        end_group(process)
    return "pause and kill of workers, and a TCP proxy before the store"


def _try_stores() -> str:
    found = [name for name, why in stores().items() if why is None]
    missing = [name for name, why in stores().items() if why is not None]
    text = f"; not {', '.join(missing)}, see --list" if missing else ""
    return f"throw-away servers: {', '.join(found)}{text}"


def _try_namespaces() -> str:
    from .servers.network import Network

    network = Network()
    try:
        network.room("try")
    finally:
        network.stop()
    return "network namespaces: partitions, one-way cuts, loss and reordering"


def _try_strace() -> str:
    from .servers.tracing import Trace

    process = start(["sleep", "60"])
    try:
        Trace([process.pid], "fsync:error=EIO").stop()
    finally:
        end_group(process)
    return "strace attaches: slow and failing disks, kill at a system call"


def _try_clock() -> str:
    from .servers.stepped import SteppedClock

    clock = SteppedClock()
    try:
        clock.step(100_000)
        said = subprocess.run(
            [sys.executable, "-I", "-S", "-c", "import time; print(time.time())"],
            env={**os.environ, **clock.environment},
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        ).stdout
        if abs(float(said) - time.time() - 100_000) > 1_000:
            raise ServerError("a program with the stepped clock preloaded does not follow it")
    finally:
        clock.remove()
    return f"a clock that can be stepped, made by {shutil.which('cc')}, for one server at a time"


def _try_vdso() -> str:
    from .servers.vdso import ReplacedClock

    program = "import time\nwhile input(): print(time.time(), flush=True)"
    process = start(
        [sys.executable, "-I", "-S", "-c", program],
        stdin=subprocess.PIPE,
        output=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        for step in (0, 100_000):
            if step:  # not before the kernel has put its code there
                ReplacedClock(lambda: process.pid).step(step)
            process.stdin.write(b"now\n")
            process.stdin.flush()
            if abs(float(process.stdout.readline()) - time.time() - step) > 1_000:
                raise ServerError("a program whose clock was replaced does not follow it")
    except ValueError:
        raise ServerError("a program whose clock was to be replaced has ended") from None
    finally:
        end_group(process)
        process.stdin.close()
        process.stdout.close()
    return "the kernel's code for the time, replaced in one process: a clock step of etcd"


_TRIALS: dict[str, Callable[[], str]] = {
    CLIENTS: _try_clients,
    STORES: _try_stores,
    NAMESPACES: _try_namespaces,
    STRACE: _try_strace,
    CLOCK: _try_clock,
    VDSO: _try_vdso,
}
