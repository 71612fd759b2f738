"""Work beside the caller, calls that block, clean-up, and the interruption of a body."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread, current_thread
from typing import Any, TypeVar

from ...errors import BackendUnavailable
from ...events import report
from ...forks import Inherited

Result = TypeVar("Result")


def current() -> object:
    """Returns the caller: a task here, or a thread in which no loop runs; a thread there."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return current_thread()


here: Callable[[], asyncio.AbstractEventLoop] = asyncio.get_running_loop
"""The place that a session belongs to: an event loop here, the whole process there."""


def send_home(call: Callable[[], None], home: object) -> bool:
    """Has `call` made in the loop `home`, if the caller is not in it; returns whether it was not."""
    assert isinstance(home, asyncio.AbstractEventLoop)
    if asyncio._get_running_loop() is home:
        return False
    with suppress(RuntimeError):  # the loop is closed
        home.call_soon_threadsafe(call)
    return True


class Worker:
    """The runner of blocking calls: a thread of its own, which makes them in the order of `call`.

    A call whose task is cancelled is made all the same, so the next call finds it done. Renewals do
    not stand in line behind thousands of new attempts: they are made by `call_ahead`. With more than
    one thread, calls are made side by side, and nothing is said of their order.
    """

    def __init__(self, name: str, threads: int = 1) -> None:
        self._name = name
        self._most = threads
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._ahead: deque[Callable[[], None]] = deque()
        self._threads: list[Thread] = []
        self._ended: list[None] = []
        """An item for each thread that makes no more calls."""
        self._last: Callable[[], object] | None = None
        self._under_way = 0
        self._closed = False

    async def call(self, function: Callable[..., Result], *args: object) -> Result:
        """Returns what `function(*args)` returns, on the worker's thread."""
        future, job = self._prepare(function, args)
        self._jobs.put(job)
        return await future

    async def call_ahead(self, function: Callable[..., Result], *args: object) -> Result:
        """Does as `call`, ahead of all that was asked for by `call`."""
        future, job = self._prepare(function, args)
        self._ahead.append(job)
        self._jobs.put(_look)
        return await future

    def _prepare(
        self, function: Callable[..., Result], args: tuple[object, ...]
    ) -> tuple[asyncio.Future[Result], Callable[[], None]]:
        if self._closed:
            raise BackendUnavailable("this connection to the store is closed")
        if self._under_way >= len(self._threads) < self._most:
            thread = Thread(target=self._run, name=self._name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._under_way += 1
        future: asyncio.Future[Result] = self._loop.create_future()

        def job() -> None:
            try:
                result = function(*args)
            except BaseException as error:
                self._report(self._fail, future, error)
            else:
                self._report(self._succeed, future, result)

        return future, job

    def _report(self, settle: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(settle, *args)
        except RuntimeError:
            return  # the loop was closed while the call was running

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            while self._ahead:
                with suppress(IndexError):  # another thread was faster
                    self._ahead.popleft()()
            job()
        self._ended.append(None)
        if len(self._ended) == len(self._threads) and self._last is not None:
            self._last()

    def close(self, last: Callable[[], object] | None = None) -> None:
        """Takes no more calls; the threads make those that were asked for, and `last`, and end."""
        if not self._closed and self._threads:
            self._last = last
            for _ in self._threads:
                self._jobs.put(None)
        elif not self._closed and last is not None:
            last()
        self._closed = True

    def _succeed(self, future: asyncio.Future[Any], result: object) -> None:
        self._under_way -= 1
        if not future.done():
            future.set_result(result)

    def _fail(self, future: asyncio.Future[Any], error: BaseException) -> None:
        self._under_way -= 1
        if not future.done():
            future.set_exception(error)


def _look() -> None:
    """Does nothing: the worker has looked at the calls that go ahead."""


RESTART_PAUSE = 0.1
"""Seconds after which a routine that was cancelled begins anew. By then a loop that is ending, and
cancels all its tasks, is closed; a loop that goes on needs the routine again."""
FAILED_PAUSE = 1.0
"""Seconds after which a routine that failed begins anew."""


class Routine:
    """Work that goes on beside the caller until it returns: a task here, a thread there.

    Programs that shut down often cancel every task of the loop, and some of them go on afterwards: so
    work that was cancelled, or that failed, begins anew after a pause. A loop that is ending begins
    only what is `waited_for`.
    """

    def __init__(
        self,
        work: Callable[[], Coroutine[Any, Any, None]],
        name: str,
        waited_for: bool = False,
    ) -> None:
        self._work = work
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._again = False
        """Whether it begins anew after a pause."""
        self._joined = False
        if waited_for:
            self._start()
        else:
            self._start_unless_ending()

    def _start_again(self) -> None:
        if self._again:  # not at once, by `join`
            self._start_unless_ending()

    def _start_unless_ending(self) -> None:
        self._again = False
        if not getattr(self._loop, "_asyncgens_shutdown_called", False):
            self._start()

    def _start(self) -> None:
        self._again = False
        self._task = self._loop.create_task(self._work(), name=self._name)
        _running.add(self._task)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        _running.discard(task)
        if task.cancelled():
            self._pause(RESTART_PAUSE)
        elif isinstance(error := task.exception(), Inherited):
            return  # it goes on in a child, whose parent has another
        elif error is not None:
            report(f"the routine {self._name!r} failed", error)
            if not self._joined:
                self._pause(FAILED_PAUSE)

    def _pause(self, seconds: float) -> None:
        self._again = True
        # Only the loop has this timer: one that is closed lets go of us by it, and of the work.
        self._loop.call_later(seconds, self._start_again)

    @property
    def cancelled(self) -> bool:
        """Whether the work was cancelled, or is about to be, and has not begun anew."""
        cancelling = self._task is not None and self._task.cancelling() > 0
        return cancelling or self._again

    async def join(self, within: float | None = None) -> bool:
        """Waits for the end of the work, `within` seconds at the most; returns whether it has ended.

        Work that was cancelled begins anew at once.
        """
        until = None if within is None else self._loop.time() + within
        self._joined = True
        while True:
            if self._again:
                self._start()
            if self._task is None:
                return True
            left = None if until is None else max(until - self._loop.time(), 0.0)
            done, _ = await asyncio.wait({self._task}, timeout=left)
            if not done:
                return False
            await asyncio.sleep(0)  # for `_ended`
            if not self._again:
                return True


_running: set[asyncio.Task[None]] = set()
"""The tasks of all routines: a loop holds its tasks weakly."""


def forget_closed_loops() -> None:
    """Lets go of routines whose loop was closed under them."""
    for task in list(_running):
        if task.get_loop().is_closed():
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # nobody can end it now
            _running.discard(task)


async def finish(cleanup: Callable[[], Coroutine[Any, Any, None]], grace: float) -> None:
    """Runs `cleanup` whatever happens to the caller, who waits for it for at most `grace` seconds.

    A cancellation of the caller does not reach `cleanup`, which goes on in the background. If the
    clean-up was cancelled too, as by a loop that ends, the caller waits for another try.
    """

    async def quietly() -> None:
        with suppress(Exception):  # clean-ups tell their failures by events
            await cleanup()

    routine = Routine(quietly, "holdfast-clean-up", waited_for=True)
    try:
        await routine.join(grace)
    except asyncio.CancelledError:
        if routine.cancelled:
            await routine.join(grace)
        raise


async def call_all(calls: Sequence[Callable[[], Coroutine[Any, Any, Result]]]) -> list[Result]:
    """Makes all the calls at once; returns their results, in order, when all have ended.

    The first error of theirs is raised then. Each cancellation of the caller reaches every call.
    """
    if len(calls) == 1:
        return [await calls[0]()]
    tasks = [asyncio.create_task(call()) for call in calls]
    cancelled: asyncio.CancelledError | None = None
    while not all(task.done() for task in tasks):
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError as error:
            cancelled = error
            for task in tasks:
                task.cancel()
    failed = [task for task in tasks if task.cancelled() or task.exception() is not None]
    if cancelled is not None:
        raise cancelled
    for task in failed:
        task.result()
    return [task.result() for task in tasks]


class _Background:
    """Work in the background, which its loop lets go of when it is closed."""

    def __init__(
        self, work: Callable[[], Coroutine[Any, Any, None]], cut_off: Callable[[], object] | None
    ) -> None:
        self._work = work
        self._cut_off = cut_off

    async def run(self) -> None:
        await self._work()
        self._cut_off = None

    def __del__(self) -> None:
        if not sys.is_finalizing() and self._cut_off is not None:
            self._cut_off()


def in_background(
    work: Callable[[], Coroutine[Any, Any, None]],
    home: object,
    cut_off: Callable[[], object] | None = None,
) -> None:
    """Runs `work` in the loop `home`, if that is still open. From any thread, and from a finalizer.

    `cut_off` is called if the loop was closed before the work has ended.
    """
    assert isinstance(home, asyncio.AbstractEventLoop)
    forget_closed_loops()  # work that they have cut off
    background = _Background(work, cut_off)
    with suppress(RuntimeError):  # the loop is closed
        home.call_soon_threadsafe(lambda: Routine(background.run, "holdfast-dropped"))


class Interrupt:
    """The interruption of a body of `async with` whose lease is lost: its task is cancelled."""

    works = True

    __slots__ = ("_cancelled", "_fired", "_loop", "_settled", "_task")

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._fired = self._cancelled = self._settled = False

    def cancellations(self) -> int:
        """Returns how many cancellations of the body's task were asked for, and not taken back."""
        return self._task.cancelling() if self._task is not None else 0

    def fire(self) -> None:
        """Cancels the body's task, from any thread."""
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

    def settle(self, error: BaseException | None, before: int, others: bool) -> bool:
        """Ends the watch over a body; returns whether `error`, which ended it, is our doing alone.

        `before`: the cancellations when it began. `others`: the task has other bodies, which are
        watched over from now on, unless it was this one that was stopped.
        """
        stopped = self._cancelled and isinstance(error, asyncio.CancelledError)
        if self._settled or (others and not stopped):
            return False
        self._settled = True
        if not self._cancelled or self._task is None:
            return False
        return self._task.uncancel() <= before and stopped
