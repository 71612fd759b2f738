"""Work beside the caller, calls that block, and clean-up: mostly what a thread simply does."""

from __future__ import annotations

from _thread import allocate_lock, get_ident, start_new_thread
from collections.abc import Callable, Sequence
from threading import local
from time import sleep
from typing import TypeVar

from ...errors import LockError
from ...events import report
from ...forks import Inherited

Result = TypeVar("Result")


class _Me(local):
    def __init__(self) -> None:
        self.me = object()


_me = _Me()


def current() -> object:
    """Returns the caller: a thread here, a task there. Never the same for two, as numbers are that the
    system gives to another thread when one has ended."""
    return _me.me


def here() -> object:
    """Returns the place that a session belongs to: an event loop there, the whole process here."""
    return None


def send_home(call: Callable[[], None], home: object) -> bool:
    """Returns False: every thread of the process is at home here."""
    return False


class Worker:
    """The runner of blocking calls: here the caller's own thread, which may block."""

    def __init__(self, name: str, threads: int = 1) -> None:
        pass

    def call(self, function: Callable[..., Result], *args: object) -> Result:
        return function(*args)

    call_ahead = call

    def close(self, last: Callable[[], object] | None = None) -> None:
        if last is not None:
            last()


FAILED_PAUSE, LOOKS = 1.0, 20
"""Seconds after which a routine that failed begins anew; it looks as often whether that is needed. (An
`Event` would do, but what a signal's handler raises inside one may leave it locked.)"""


class Routine:
    """Work that goes on beside the caller until it returns: a thread here, a task there.

    Work that failed begins anew after a pause.
    """

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self._work = work
        self._name = name
        self._joined = False
        self._runner = 0
        """The number of its thread."""
        self._running = allocate_lock()
        self._running.acquire()
        # Not a `Thread`, whose start may be interrupted with its own locks held.
        start_new_thread(self._run, ())

    def _run(self) -> None:
        self._runner = get_ident()
        try:
            while not self._has_ended():
                for _ in range(LOOKS):
                    if self._joined:
                        return
                    sleep(FAILED_PAUSE / LOOKS)
        finally:
            self._runner = 0  # another thread may have that number next
            self._running.release()

    def _has_ended(self) -> bool:
        """Does the work; returns False if it has failed."""
        try:
            self._work()
        except Inherited:  # begun by a child, in the middle of a call of its parent
            return True
        except BaseException as error:  # also one that exits: others depend on the work
            report(f"the routine {self._name!r} failed", error)
            return False
        return True

    def join(self, within: float | None = None) -> bool:
        """Waits for the end of the work, `within` seconds at the most; returns whether it has ended.

        Not if the caller is the work itself.
        """
        if self._runner == get_ident():
            return False
        self._joined = True
        ended = self._running.acquire(timeout=-1 if within is None else max(within, 0.0))
        if ended:
            self._running.release()  # for another who waits
        return ended


def finish(cleanup: Callable[[], None], grace: float) -> None:
    """Runs `cleanup` whatever happens to the caller. A thread cannot be cancelled: it simply runs."""
    try:
        cleanup()
    except LockError:
        return  # clean-ups tell their failures by events; what a signal's handler raises comes out


def call_all(calls: Sequence[Callable[[], Result]]) -> list[Result]:
    """Makes all the calls, one after another; returns their results. The first error ends it."""
    return [call() for call in calls]


def in_background(
    work: Callable[[], None], home: object, cut_off: Callable[[], object] | None = None
) -> None:
    """Runs `work` in a thread of its own. From a finalizer too, where no mutex may be taken.

    No loop ends here, so `cut_off` is never called.
    """
    start_new_thread(work, ())


class Interrupt:
    """The interruption of a body whose lease is lost: there is no safe one for a thread, so blocking
    code asks its lease instead."""

    works = False

    __slots__ = ()

    def cancellations(self) -> int:
        return 0

    def fire(self) -> None:
        pass

    def settle(self, error: BaseException | None, before: int, others: bool) -> bool:
        return False
