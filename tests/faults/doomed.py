"""`python -m faults.doomed`: run under strace, which kills it at one call or another.

strace counts the calls of each thread by itself, and kills at number AT. There is one strace for
all attempts, so a thread that is to die at its Nth call makes as many harmless calls of that kind
before as are needed. Each attempt is a fork of a parent that uses no store itself.

On stdin: scene, URL, kind of call, N. On stdout: how the child ended, which is 0 when it makes fewer
calls of that kind than N.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

import holdfast
import holdfast.stores.sqlite._sync.backend  # now, and not under the eyes of strace
import holdfast.stores.sqlite.mailbox

AT = 300
"""More than the parent ever makes."""

KINDS = (
    "pwrite64",
    "write",
    "flock",
    "fcntl",
    "openat",
    "unlink",
    "link",
    "ftruncate",
    "sendto",
)


def burn(kind: str, calls: int) -> None:
    """Makes so many calls of that kind, none of which does anything."""
    nothing = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    memory = os.memfd_create("nothing")
    unbound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    if kind == "openat":
        calls -= 1  # the first one above
    harmless: dict[str, Callable[[], object]] = {
        "pwrite64": lambda: os.pwrite(nothing, b"", 0),
        "write": lambda: os.write(nothing, b""),
        "flock": lambda: fcntl.flock(nothing, fcntl.LOCK_UN),
        "fcntl": lambda: fcntl.fcntl(nothing, fcntl.F_GETFD),
        "openat": lambda: os.open("/nowhere/at/all", os.O_RDONLY),
        "unlink": lambda: os.unlink("/nowhere/at/all"),
        "link": lambda: os.link("/nowhere/at/all", "/nowhere/else"),
        "ftruncate": lambda: os.ftruncate(memory, 0),
        "sendto": lambda: unbound.sendto(b"", "/nowhere/at/all"),
    }
    for _ in range(calls):
        with suppress(OSError):
            harmless[kind]()


def die(kind: str, number: int, act: Callable[[], object]) -> None:
    """Do it, but for the call of that kind that is not survived."""

    def work() -> None:
        burn(kind, AT - number)
        act()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def whole(url: str, kind: str, number: int) -> None:
    """All that there is: opening, acquiring, renewing, releasing and closing."""
    locks = holdfast.connect(url)

    def act() -> None:
        lease = locks.lock("x").acquire(timeout=5.0)
        lease.renew()
        lease.release()
        locks.close()

    die(kind, number, act)


def handing(url: str, kind: str, number: int) -> None:
    """A release for which somebody waits."""
    locks = holdfast.connect(url)
    lease = locks.lock("x").acquire(timeout=5.0)
    os.read(0, 3)  # "go", once somebody waits
    die(kind, number, lease.release)


def main() -> None:
    for line in iter(sys.stdin.readline, ""):
        scene, url, kind, number = line.split()
        pid = os.fork()
        if pid == 0:
            globals()[scene](url, kind, int(number))
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
