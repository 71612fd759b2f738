"""An event loop on a virtual clock, on which several simulated machines share one thread.

Each callback belongs to a *process* (a client or a server), found by its context. Within a process
callbacks run in the order in which they were scheduled, as asyncio promises; whose turn it is next
among the processes is drawn from the seed. A paused process runs nothing; a killed one never again.
Time stands still while callbacks run, but for a moment each, and jumps when there is nothing to do.
"""

from __future__ import annotations

import asyncio
import heapq
import socket
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from functools import partial
from itertools import count
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from .network import Network

Result = TypeVar("Result")

STEP = 3e-6
"""Seconds that each callback takes."""
START = 1_000.0
WALL = 1_700_000_000.0
"""What the wall clocks say at the start."""


class Stuck(Exception):
    """Raised when nothing is left that could ever happen, or too much has happened."""


class SimClock:
    """The clock of one machine: it may run fast or slow, and its wall clock may be stepped."""

    __slots__ = ("_base", "_loop", "_offset", "_rate", "_since", "set_back", "stepped")

    def __init__(self, loop: VirtualLoop, rate: float = 1.0) -> None:
        self._loop = loop
        self._rate = rate
        self._since = loop.now
        self._offset = 0.0
        self._base = START
        self.stepped = 0.0
        self.set_back = 0.0
        """By how much in all."""

    def now(self) -> float:
        return self._base + (self._loop.now - self._since) * self._rate

    def wall(self) -> float:
        now = self._base + (self._loop.now - self._since) * self._rate
        return WALL + now + self.stepped

    def micros(self) -> int:
        """The wall clock's, whole ones."""
        now = self._base + (self._loop.now - self._since) * self._rate
        return int((WALL + now + self.stepped) * 1_000_000)

    def step(self, deadline: float) -> None:
        self.stepped += deadline
        self.set_back += max(0.0, -deadline)

    def run_at(self, rate: float) -> None:
        """From now on so fast."""
        self._offset += (self._loop.now - self._since) * self._rate
        self._base = START + self._offset
        self._since = self._loop.now
        self._rate = rate

    def subscribe(self, moved: Callable[[], None]) -> None:
        return None


class Process:
    """One simulated machine: a client, or a server."""

    def __init__(self, loop: VirtualLoop, name: str, rate: float = 1.0) -> None:
        self.loop = loop
        self.name = name
        self.clock = SimClock(loop, rate)
        self.ready: deque[Handle | Call] = deque()
        self.paused = False
        self.dead = False
        self.steps = 0
        self.stop_at = -1
        """After so many callbacks the loop's `on_stop` is called."""
        self.buried: list[Handle | Call] = []
        context = Context()
        context.run(PROCESS.set, self)
        self.run: Callable[..., Any] = context.run
        """Calls something as this process."""

    def spawn(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
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
        # Not thrown away: tasks that Python tidies up would run their last lines, in this very run.
        self.buried.extend(self.ready)
        self.ready.clear()
        self.loop.runnable.pop(self, None)


PROCESS: ContextVar[Process] = ContextVar("process")


Call = tuple[Any, ...]
"""A callback to come, and its arguments: called as its process, and never cancelled."""


class Handle:
    """The same, in a context of its own, as asyncio asks for it. The name and `cancel` are asyncio's.

    Made by `_new`, not by a constructor: in Python that is a detour, and there is one for each step.
    """

    __slots__ = ("call", "context")

    call: Call | None
    """None: it was cancelled."""
    context: Context

    def cancel(self) -> None:
        self.call = None

    def cancelled(self) -> bool:
        return self.call is None


_new: Callable[..., Any] = object.__new__


class Never:
    """A callback that does not come, because the run is over: Python tidies up what is left of it."""

    def cancel(self) -> None:
        pass

    def cancelled(self) -> bool:
        return True


_push, _pop = heapq.heappush, heapq.heappop

_Base: Any = asyncio.AbstractEventLoop  # most of it is not needed here


class VirtualLoop(_Base):  # type: ignore[misc]
    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.create_future: Callable[[], asyncio.Future[Any]] = partial(asyncio.Future, loop=self)
        self.random = Random(seed)
        self.network: Network | None = None
        self.runnable: dict[Process, None] = {}
        """Those that could go on; a dict, because its order is the same in each run."""
        self.steps = 0
        self.unhandled: list[Exception] = []
        self.timers: list[tuple[float, int, Process, Handle | Call]] = []
        """When, and a number: what was scheduled earlier for the same moment comes first."""
        self.number = count(1).__next__
        self._running = self._closed = False
        self.on_stop: Callable[[Process], None] = lambda process: None

    # What asyncio's own classes call.

    def time(self) -> float:
        return self.now

    get_debug = bool
    """Which is False: called for each future, so it had better not be written in Python."""

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        self.timers.clear()

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, **options)

    # A call is the callback and its arguments.

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
        process.ready.append(handle)  # `enqueue`, in short
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
        # `call_at`, in short
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
        """What asyncio would log: of the killed, mostly, and whenever Python tidies up."""

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port))]

    def create_connection(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        assert self.network is not None
        return self.network.connect(PROCESS.get(), protocol_factory, f"{args[0]}:{args[1]}")

    # Ours.

    def enqueue(self, process: Process, what: Handle | Call) -> None:
        if process.dead:
            process.buried.append(what)
            return
        process.ready.append(what)
        if not process.paused:
            self.runnable[process] = None

    def after(self, delay: float, process: Process, *call: Any) -> None:
        """Call it in so many seconds, as that process."""
        _push(self.timers, (self.now + delay, self.number(), process, call))

    def at(self, when: float, process: Process, *call: Any) -> None:
        """Call it then: behind what was scheduled earlier for the same moment."""
        _push(self.timers, (when, self.number(), process, call))

    def run(self, main: asyncio.Task[Any], whose: Process, most_steps: int, until: float) -> None:
        """Until this task of that process has ended."""
        asyncio._set_running_loop(self)
        self._running = True
        timers, runnable, random = self.timers, self.runnable, self.random.random
        enqueue, done = self.enqueue, main.done
        steps, now = 0, self.now  # which nobody else sets
        process: Process
        what: Any
        # Behind all others: so there is always one to look at.
        _push(timers, (inf, 0, whose, (done,)))
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
                        enqueue(process, what)  # whose turn it is has still to be drawn
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
                if process is whose and done():
                    break
            else:
                raise Stuck(f"it took more than {most_steps} steps")
        finally:
            self.steps = steps
            self._running = False
            asyncio._set_running_loop(None)
