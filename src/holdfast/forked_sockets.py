"""Sockets that a forked child must not share with its parent: in the child they are at their end.

A child may go on from where its parent was, in the middle of a call: where the handler of a signal
forks and returns, or where it leaves by its copy of an event loop. What it sent by an inherited socket
would be answered to the parent, and what it read the parent would miss.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet

from . import forks


class Connected(Protocol):
    """A connection of ours."""

    def fileno(self) -> int:
        """Returns the descriptor of its socket; raises, or returns -1, if there is none."""
        ...


_connections: WeakSet[Connected] = WeakSet()


def end_in_children(connection: Connected) -> None:
    """Has `connection` at its end in each child that is forked from now on."""
    _connections.add(connection)


def _after_fork_in_child() -> None:
    for connection in list(_connections):
        with suppress(Exception):  # a driver's own, of a connection that is closed
            fd = connection.fileno()
            if fd >= 0:
                _end(fd)
    _connections.clear()


def _end(fd: int) -> None:
    """Puts a socket whose other end is closed in the place of `fd`."""
    try:
        ended, other = socket.socketpair()
    except OSError:  # no descriptors are left
        os.close(fd)
        spare = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        if spare != fd:
            os.dup2(spare, fd, inheritable=False)
            os.close(spare)
        return
    other.close()
    os.dup2(ended.fileno(), fd, inheritable=False)
    ended.close()


forks.in_child(_after_fork_in_child)
