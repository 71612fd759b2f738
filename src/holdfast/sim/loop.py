"""An event loop on a virtual clock, on which several simulated machines share one thread.

Each callback belongs to a *process* (a client or a server), which is found in its context. The
callbacks of one process run in the order in which they were scheduled, as asyncio promises; which
process goes next is drawn from the seed. A paused process runs nothing, and a killed one never runs
again. Each callback takes a fixed moment of virtual time; when nothing is left to run, time jumps to
the next timer.
"""

from __future__ import annotations

import asyncio
import heapq
import socket
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from itertools import count
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any

from .process import PROCESS, Process

if TYPE_CHECKING:
    from .network import Network

STEP = 3e-6
"""Seconds that each callback takes."""


class Stuck(Exception):
    """Raised when nothing is left that could ever happen, or too much has happened."""


Call = tuple[Any, ...]
"""A callback and its arguments, to be called as its process. It cannot be cancelled."""


class Handle:
    """A call in a context of its own, which can be cancelled, with the members that asyncio wants.

    Handles are made by `_new`: there is one for each step, and a constructor written in Python would
    make each of them slower.
    """

    __slots__ = ("call", "context")

    call: Call | None
    """The call; None once it was cancelled."""
    context: Context

    def cancel(self) -> None:
        self.call = None

    def cancelled(self) -> bool:
        return self.call is None


_new: Callable[..., Any] = object.__new__


class Never:
    """The handle of a callback that never runs, because the run is over."""

    def cancel(self) -> None:
        pass

    def cancelled(self) -> bool:
        return True


_push, _pop = heapq.heappush, heapq.heappop

_Base: Any = asyncio.AbstractEventLoop  # most of it is not needed here


class VirtualLoop(_Base):  # type: ignore[misc]
    """The event loop of one run."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.create_future: Callable[[], asyncio.Future[Any]] = partial(asyncio.Future, loop=self)
        self.random = Random(seed)
        self.network: Network | None = None
        self.runnable: dict[Process, None] = {}
        """The processes that have something to run; a dict, whose order is the same in each run."""
        self.steps = 0
        self.unhandled: list[Exception] = []
        self.timers: list[tuple[float, int, Process, Handle | Call]] = []
        """Due times; the number makes what was scheduled earlier for the same moment come first."""
        self.number = count(1).__next__
        self._running = self._closed = False
        self.on_stop: Callable[[Process], None] = lambda process: None

    # The part that asyncio's own classes call.

    def time(self) -> float:
        return self.now

    get_debug = bool
    """Returns False, and is not written in Python because it is called for each future."""

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        self.timers.clear()

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, **options)

    # `call` is a callback and its arguments.

    def call_soon(self, *call: Any, context: Context | None = None) -> Any:
        if self._closed:
            return Never()
        if context is None:
            context = copy_context()
        process = context[PROCESS]
        handle = _new(Handle)
        handle.call, handle.context = call, context
        if process.dead:
            process.buried.append(handle)
            return handle
        process.ready.append(handle)  # as `enqueue`, without its call
        if not process.paused:
            self.runnable[process] = None
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, *call: Any, context: Context | None = None) -> Any:
        if self._closed:
            return Never()
        if context is None:
            context = copy_context()
        handle = _new(Handle)
        handle.call, handle.context = call, context
        # as `call_at`, without its call
        _push(self.timers, (self.now + delay, self.number(), context[PROCESS], handle))
        return handle

    def call_at(self, when: float, *call: Any, context: Context | None = None) -> Any:
        if self._closed:
            return Never()
        if context is None:
            context = copy_context()
        handle = _new(Handle)
        handle.call, handle.context = call, context
        _push(self.timers, (when, self.number(), context[PROCESS], handle))
        return handle

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignores errors that asyncio would log: mostly of killed processes, as Python frees them."""

    def resolve(self, host: str, port: int) -> list[tuple[int, Any]]:
        """Returns the address of a simulated machine: its name."""
        return [(socket.AF_INET, (host, port))]

    def create_connection(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        assert self.network is not None
        return self.network.connect(PROCESS.get(), protocol_factory, f"{args[0]}:{args[1]}")

    # The part that the simulator calls.

    def enqueue(self, process: Process, what: Handle | Call) -> None:
        """Appends `what` to the callbacks that `process` could run now."""
        if process.dead:
            process.buried.append(what)
            return
        process.ready.append(what)
        if not process.paused:
            self.runnable[process] = None

    def after(self, delay: float, process: Process, *call: Any) -> None:
        """Schedules `call` in `delay` seconds, as `process`."""
        _push(self.timers, (self.now + delay, self.number(), process, call))

    def at(self, when: float, process: Process, *call: Any) -> None:
        """Schedules `call` for `when`, as `process`, behind earlier calls for the same moment."""
        _push(self.timers, (when, self.number(), process, call))

    def run(self, main: asyncio.Task[Any], owner: Process, most_steps: int, until: float) -> None:
        """Runs callbacks until `main`, a task of the process `owner`, has ended.

        Raises Stuck after `most_steps` callbacks, or at the virtual time `until`.
        """
        asyncio._set_running_loop(self)
        self._running = True
        timers, runnable, random = self.timers, self.runnable, self.random.random
        enqueue, done = self.enqueue, main.done
        steps, now = 0, self.now  # nothing else sets them
        process: Process
        what: Any
        # A timer behind all others, so that there is always one to look at.
        _push(timers, (inf, 0, owner, (done,)))
        try:
            for steps in range(1, most_steps + 2):  # noqa: B007 (counts them for `finally`)
                while True:
                    if timers[0][0] <= now:
                        _, _, process, what = _pop(timers)
                        enqueue(process, what)
                    elif runnable:
                        if len(runnable) == 1:
                            (process,) = runnable
                        else:
                            process = list(runnable)[int(random() * len(runnable))]
                        ready = process.ready
                        what = ready.popleft()
                        if not ready:
                            del runnable[process]
                        if type(what) is tuple or what.call is not None:
                            break
                    else:
                        now, _, process, what = _pop(timers)
                        if now > until:
                            raise Stuck(
                                "nothing is left that could happen"
                                if now == inf
                                else f"it took longer than {until:g} s"
                            )
                        self.now = now
                        if type(what) is not tuple and what.call is None:
                            continue
                        if not process.paused and not process.dead and timers[0][0] > now:
                            break
                        enqueue(process, what)  # which process goes next has still to be drawn
                self.now = now = now + STEP
                try:
                    if type(what) is tuple:
                        process.run(*what)
                    else:
                        what.context.run(*what.call)
                except Exception as error:
                    self.unhandled.append(error)
                process.steps += 1
                if process.steps == process.stop_at:
                    self.on_stop(process)
                if process is owner and done():
                    break
            else:
                raise Stuck(f"it took more than {most_steps} steps")
        finally:
            self.steps = steps
            self._running = False
            asyncio._set_running_loop(None)
