"""The parts of an event loop that a forked child must not share with its parent: its poller and pipe.

A child that leaves by the loop, as `sys.exit()` in a coroutine does, runs its copy of what was to be
done next. The poller of asyncio is the same in both, so the parent would hear no more of what the child
closes.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import socket
from contextlib import suppress
from typing import Any
from weakref import WeakSet

# Its hook has to come first: our poller is given the sockets as they are from then on.
from ... import forked_sockets as _forked_sockets  # noqa: F401
from ... import forks

_loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


def renew_in_children(loop: asyncio.AbstractEventLoop) -> None:
    """Has `loop` wait by a poller and a pipe of its own in each child that is forked from now on."""
    _loops.add(loop)


def _after_fork_in_child() -> None:
    for loop in list(_loops):
        if not loop.is_closed():
            with suppress(OSError):  # no descriptors are left
                _renew_pipe(loop)
                _renew_poller(loop)


def _renew_pipe(loop: Any) -> None:
    """Puts another pipe in the place of the one by which threads wake the loop, if it is asyncio's."""
    inherited = [getattr(loop, "_ssock", None), getattr(loop, "_csock", None)]
    for old, new in zip(inherited, socket.socketpair(), strict=True):
        with new:
            new.setblocking(False)
            if old is not None:
                os.dup2(new.fileno(), old.fileno(), inheritable=False)


def _renew_poller(loop: Any) -> None:
    """Puts another poller in the place of the loop's, if that is shared; uvloop sees to its own."""
    kind = getattr(selectors, "EpollSelector", None)
    selector = getattr(loop, "_selector", None)
    if kind is None or not isinstance(selector, kind):
        return
    import select

    with select.epoll() as poller:
        for key in selector.get_map().values():
            reading = select.EPOLLIN if key.events & selectors.EVENT_READ else 0
            writing = select.EPOLLOUT if key.events & selectors.EVENT_WRITE else 0
            with suppress(OSError):  # its owner has closed it
                poller.register(key.fd, reading | writing)
        os.dup2(poller.fileno(), selector.fileno(), inheritable=False)


forks.in_child(_after_fork_in_child)
