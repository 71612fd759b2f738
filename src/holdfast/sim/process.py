"""A simulated machine: a client or a server, with a clock of its own."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from .clock import SimClock

if TYPE_CHECKING:
    from .loop import Call, Handle, VirtualLoop

Result = TypeVar("Result")


class Process:
    """One simulated machine. Its callbacks run in order, unless it is paused or dead."""

    def __init__(self, loop: VirtualLoop, name: str, rate: float = 1.0) -> None:
        self.loop = loop
        self.name = name
        self.clock = SimClock(loop, rate)
        self.ready: deque[Handle | Call] = deque()
        """Callbacks that could run now."""
        self.paused = False
        self.dead = False
        self.steps = 0
        """Callbacks that have run."""
        self.stop_at = -1
        """The step after which the loop calls `on_stop`."""
        self.buried: list[Handle | Call] = []
        """Callbacks that came after the process was killed, and never run."""
        context = Context()
        context.run(PROCESS.set, self)
        self.run: Callable[..., Any] = context.run
        """Calls a function as this process."""

    def spawn(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Returns a task that runs `work` as this process."""
        return asyncio.Task(work, loop=self.loop, context=self.run(copy_context))

    def pause(self) -> None:
        self.paused = True
        self.loop.runnable.pop(self, None)

    def resume(self) -> None:
        self.paused = False
        if self.ready and not self.dead:
            self.loop.runnable[self] = None

    def kill(self) -> None:
        self.dead = True
        # Kept, not thrown away: a task that Python collects would run its last lines, in this very run.
        self.buried.extend(self.ready)
        self.ready.clear()
        self.loop.runnable.pop(self, None)


PROCESS: ContextVar[Process] = ContextVar("process")
"""The process to which the running callback belongs."""
