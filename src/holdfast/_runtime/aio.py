"""The shim for asyncio. Its twin is `threads`; the two have the same names and meanings."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from threading import get_ident as _thread
from typing import Any, TypeVar

from ..clock import Clock
from ..errors import BackendUnavailable
from ..timer_wheel import Wheel

Result = TypeVar("Result")

AWAKE, REST = 1e-3, 0.05
"""Seconds for which one stays awake for what is expected, and for which one does not do so again."""
LONGEST_SLEEP = 1.0
"""A timer of the loop stands still while the machine sleeps; the boot clock does not. So look."""


def current() -> object:
    """Who is running: a task here, a thread there."""
    return asyncio.current_task()


Mutex = asyncio.Lock
"""Held across calls to the store; what is only held across plain code is a `threading.Lock`."""


async def enter(mutex: Mutex, within: float) -> bool:
    """Take it; False if others have had it for all of these seconds."""
    try:
        async with asyncio.timeout(within):
            return await mutex.acquire()
    except TimeoutError:
        return False


here: Callable[[], object] = asyncio.get_running_loop
"""Where a session belongs: to an event loop here, to the whole process there."""


class Signal:
    """Something that is set once for each `wait`, from any thread, and remembered until then."""

    __slots__ = ("_clock", "_ident", "_is_set", "_loop", "_waiter")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._ident = _thread()
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        self._is_set = True
        if self._waiter is None and _thread() == self._ident:
            return
        self._from_anywhere()

    def _from_anywhere(self) -> None:
        if _thread() == self._ident:
            self._nudge()
        else:
            try:
                self._loop.call_soon_threadsafe(self._nudge)
            except RuntimeError:
                return  # the loop is closed, and nobody waits on it any more

    def _nudge(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, until: float | None) -> bool:
        """True if it was set, which this takes back; False once `until` has come."""
        unsubscribe = self._clock.subscribe(self._from_anywhere)
        try:
            while not self._is_set:
                left = None if until is None else until - self._clock.now()
                if left is not None and left <= 0:
                    return False
                self._waiter = self._loop.create_future()
                timer = None
                if left is not None and unsubscribe is None:
                    timer = self._loop.call_later(min(left, LONGEST_SLEEP), self._nudge)
                try:
                    if not self._is_set:  # set between the test and the future, by another thread
                        await self._waiter
                finally:
                    self._waiter = None
                    if timer is not None:
                        timer.cancel()
            self._is_set = False
            return True
        finally:
            if unsubscribe is not None:
                unsubscribe()


class Worker:
    """Runs blocking calls on one thread of its own, in the order in which they were asked for.

    A call whose task is cancelled still runs, so what is asked for behind it finds it done.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._closed = False

    async def call(self, function: Callable[..., Result], *args: object) -> Result:
        if self._closed:
            raise BackendUnavailable("this connection to the store is closed")
        if self._thread is None:
            self._thread = Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        future: asyncio.Future[Result] = self._loop.create_future()

        def job() -> None:
            try:
                result = function(*args)
            except BaseException as error:
                self._answer(_fail, future, error)
            else:
                self._answer(_succeed, future, result)

        self._jobs.put(job)
        return await future

    def _answer(self, settle: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(settle, *args)
        except RuntimeError:
            return  # the loop was closed while the call was running

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def close(self) -> None:
        """Take no more calls, and let the thread end once it has done those that were made."""
        if not self._closed and self._thread is not None:
            self._jobs.put(None)
        self._closed = True


def _succeed(future: asyncio.Future[Any], result: object) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


class Routine:
    """Work that goes on beside the caller until it returns: a task here, a thread there."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self._task = asyncio.get_running_loop().create_task(work(), name=name)

    async def join(self) -> None:
        if not self._task.done():
            await asyncio.wait({self._task})


_unfinished: set[asyncio.Task[Any]] = set()


async def finish(cleanup: Callable[[], Coroutine[Any, Any, None]], grace: float) -> None:
    """Do this whatever happens to the caller; wait for it, but no longer than `grace`.

    A cancellation of the caller does not reach it: it goes on behind, until it is done.
    """
    task = asyncio.get_running_loop().create_task(cleanup())
    _unfinished.add(task)
    task.add_done_callback(_unfinished.discard)
    await asyncio.wait({task}, timeout=grace)
    if task.done() and not task.cancelled():
        task.exception()  # seen: clean-ups tell their failures by events


class Alarm:
    """Calls back at set times, whatever the network does. One timer for any number of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._wheel: Wheel[Callable[[], None]] = Wheel()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._unsubscribe = clock.subscribe(self._moved)

    def at(self, due: float, ring: Callable[[], None]) -> None:
        """Call `ring` at `due`, or a little earlier; it looks at the clock and may ask again."""
        slot = self._wheel.add(ring, due, self._clock.now())
        if self._timer is None or slot < self._timer_due:
            self._arm(slot)

    def cancel(self, ring: Callable[[], None]) -> None:
        self._wheel.remove(ring)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._unsubscribe is not None:
            self._unsubscribe()
        self._wheel = Wheel()

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        if self._unsubscribe is None:
            delay = min(max(due - self._clock.now(), 0.0), LONGEST_SLEEP)
            self._timer = self._loop.call_later(delay, self._ring)
        elif due <= self._clock.now():
            self._timer = self._loop.call_later(0.0, self._ring)

    def _moved(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        self._timer = None
        for ring in self._wheel.pop_due(self._clock.now()):
            ring()
        if len(self._wheel) and self._timer is None:
            self._arm(self._wheel.next_due())


class Interrupt:
    """Stops the body of `async with` when its lease is lost: cancels the task that runs it."""

    works = True

    __slots__ = ("_cancelled", "_cancelling", "_fired", "_loop", "_settled", "_task")

    def __init__(self) -> None:
        task = asyncio.current_task()
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._cancelling = task.cancelling() if task is not None else 0
        self._fired = self._cancelled = self._settled = False

    def fire(self) -> None:
        if not self._fired:
            self._fired = True
            # Not at once: it may be the body itself that has just noticed, and raises by itself; or
            # another thread, which may not cancel a task.
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None and not self._settled and not self._task.done():
            self._cancelled = True
            self._task.cancel("the lease was lost")

    def settle(self, error: BaseException | None) -> bool:
        """At the end of the body: was `error` our own doing, and nobody else's?"""
        self._settled = True
        if not self._cancelled or self._task is None:
            return False
        ours = self._task.uncancel() <= self._cancelling
        return ours and isinstance(error, asyncio.CancelledError)


class Poller:
    """Calls back when a descriptor becomes readable, or its other end hangs up."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._watched: set[int] = set()
        self._rested = 0.0

    def watch(self, fd: int, ready: Callable[[], object]) -> None:
        self._watched.add(fd)
        self._loop.add_reader(fd, ready)

    def unwatch(self, fd: int) -> None:
        """Stop watching, and close the descriptor."""
        if fd in self._watched:
            self._watched.discard(fd)
            self._loop.remove_reader(fd)
            os.close(fd)

    def expect(self, look: Callable[[], bool]) -> None:
        """`look` will soon find something: stay awake for it, but not for long and not often."""
        now = self._loop.time()
        if now >= self._rested:
            self._rested = now + AWAKE + REST
            self._stay_awake(look, now + AWAKE)

    def _stay_awake(self, look: Callable[[], bool], until: float) -> None:
        # A loop that has something to do does not sleep, and does all the rest as well.
        if self._watched and not look() and self._loop.time() < until:
            self._loop.call_soon(self._stay_awake, look, until)

    async def attend(self, signal: Signal, until: float | None) -> bool:
        """Wait for the signal; the loop serves the descriptors."""
        return await signal.wait(until)

    def close(self) -> None:
        for fd in list(self._watched):
            self.unwatch(fd)
