"""The holder of a turn at a resource: which thread it is, and which task of an event loop.

A thread that waits for a turn stands still, and with it every task of its event loop. So it must not
wait for a turn that is its own, or one of these tasks': that turn would never end.
"""

from __future__ import annotations

import os
import sys
from threading import get_ident
from typing import Any, NamedTuple

from ..errors import ConfigError


class TurnHolder(NamedTuple):
    """The place in the program where a turn was taken, or is waited for."""

    process: int
    thread: int
    task: Any
    """The task of an event loop; None outside of any."""

    @classmethod
    def here(cls) -> TurnHolder:
        return cls(os.getpid(), get_ident(), _task())

    def refuse_to_block(self, resource: str) -> None:
        """Raises if this thread is the holder's own, and would wait for itself."""
        if (self.process, self.thread) == (os.getpid(), get_ident()):
            raise ConfigError(
                f"this thread would wait for itself: it has the turn at {resource!r} already, by a "
                "hold() that is still open, or by a task of its event loop; leave that hold() first "
                "(a response of a WSGI application: close it), and in asyncio use "
                "`async with fence.hold(…)`, or asyncio.to_thread()"
            )

    def refuse_to_await(self, resource: str) -> None:
        """Raises if the running task is the holder itself."""
        if self.task is not None and self.process == os.getpid() and self.task is _task():
            raise ConfigError(
                f"this task would wait for itself: it is inside a hold() of {resource!r} already"
            )


def _task() -> Any:
    asyncio = sys.modules.get("asyncio")  # who has not imported it has no task
    if asyncio is None:
        return None
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
