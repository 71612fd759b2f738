"""The shim for blocking code and threads. Its twin is `aio`; the same names, the same meanings."""

from __future__ import annotations

import os
import select
from _thread import allocate_lock
from _thread import get_ident as current
from collections.abc import Callable
from threading import Lock, Thread
from typing import TypeVar

from ..clock import Clock
from ..wheel import Wheel

__all__ = [
    "Alarm",
    "Interrupt",
    "Mutex",
    "Poller",
    "Routine",
    "Signal",
    "Worker",
    "current",
    "finish",
    "here",
]

Result = TypeVar("Result")

LONGEST_SLEEP = 1.0
"""A sleep stands still while the machine is suspended; the boot clock does not. So look."""


Mutex = Lock
"""Held across calls to the store; what is only held across plain code is a `threading.Lock`."""


def here() -> object:
    """Where a session belongs: to an event loop there, to the whole process here."""
    return None


class Signal:
    """Something that is set once for each `wait`, from any thread, and remembered until then."""

    # A bare lock that is taken while nothing has happened: `set` lets it go, `wait` takes it again.

    __slots__ = ("_clock", "_is_set", "_lock", "_mutex")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_set = False
        self._lock = allocate_lock()
        self._lock.acquire()
        self._mutex = allocate_lock()

    def set(self) -> None:
        self._is_set = True
        self._nudge()

    def _nudge(self) -> None:
        with self._mutex:
            if self._lock.locked():
                self._lock.release()

    def wait(self, until: float | None) -> bool:
        """True if it was set, which this takes back; False once `until` has come."""
        unsubscribe = self._clock.subscribe(self._nudge)
        try:
            while not self._is_set:
                left = None if until is None else until - self._clock.now()
                if left is not None and left <= 0:
                    return False
                if left is None or unsubscribe is not None:
                    self._lock.acquire()
                else:
                    self._lock.acquire(True, min(left, LONGEST_SLEEP))
            self._is_set = False
            return True
        finally:
            if unsubscribe is not None:
                unsubscribe()


class Worker:
    """Runs blocking calls where they are made: the caller's thread may block."""

    def __init__(self, name: str) -> None:
        pass

    def call(self, function: Callable[..., Result], *args: object) -> Result:
        return function(*args)

    def close(self) -> None:
        pass


class Routine:
    """Work that goes on beside the caller until it returns: a thread here, a task there."""

    def __init__(self, work: Callable[[], None], name: str) -> None:
        self._thread = Thread(target=work, name=name, daemon=True)
        self._thread.start()

    def join(self) -> None:
        if self._thread.ident != current():
            self._thread.join()


def finish(cleanup: Callable[[], None], grace: float) -> None:
    """Do this whatever happens to the caller. A thread cannot be cancelled, so simply do it."""
    try:
        cleanup()
    except Exception:
        return  # clean-ups tell their failures by events


class Alarm:
    """Calls back at set times, whatever the network does. One thread for any number of them.

    The thread starts with the first call to `at`: who never asks to be told has none.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wheel: Wheel[Callable[[], None]] = Wheel()
        self._mutex = Lock()
        self._signal = Signal(clock)
        self._due = 0.0
        self._thread: Thread | None = None
        self._closed = False

    def at(self, due: float, ring: Callable[[], None]) -> None:
        """Call `ring` at `due`, or a little earlier; it looks at the clock and may ask again."""
        with self._mutex:
            if self._closed:
                return
            slot = self._wheel.add(ring, due, self._clock.now())
            if self._thread is None:
                self._thread = Thread(target=self._run, name="holdfast-alarm", daemon=True)
                self._thread.start()
            elif slot < self._due:
                self._signal.set()

    def cancel(self, ring: Callable[[], None]) -> None:
        with self._mutex:
            self._wheel.remove(ring)

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            self._wheel = Wheel()
        self._signal.set()

    def _run(self) -> None:
        while True:
            with self._mutex:
                if self._closed:
                    return
                due = self._wheel.pop_due(self._clock.now())
            for ring in due:
                ring()
            with self._mutex:
                self._due = self._wheel.next_due()
            self._signal.wait(self._due if self._due != float("inf") else None)


class Interrupt:
    """There is no safe way to stop a thread: blocking code asks its lease instead."""

    works = False

    __slots__ = ()

    def fire(self) -> None:
        pass

    def settle(self, error: BaseException | None) -> bool:
        return False


class Poller:
    """Calls back when a descriptor becomes readable, or its other end hangs up.

    On a thread of its own, started with the first descriptor.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._mutex = Lock()
        self._watched: dict[int, Callable[[], None]] = {}
        self._thread: Thread | None = None
        self._wake_read = self._wake_write = -1
        self._closed = False

    def watch(self, fd: int, ready: Callable[[], None]) -> None:
        with self._mutex:
            if self._closed:
                os.close(fd)
                return
            self._watched[fd] = ready
            if self._thread is None:
                self._wake_read, self._wake_write = os.pipe()
                os.set_blocking(self._wake_write, False)
                self._thread = Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            else:
                self._wake()

    def unwatch(self, fd: int) -> None:
        """Stop watching, and close the descriptor."""
        with self._mutex:
            if self._watched.pop(fd, None) is not None:
                os.close(fd)
                self._wake()

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            for fd in self._watched:
                os.close(fd)
            self._watched.clear()
            if self._thread is not None:
                self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._wake_write, b"\0")
        except BlockingIOError:
            return  # it has been told already

    def _run(self) -> None:
        registered: set[int] = set()
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        while True:
            with self._mutex:
                if self._closed:
                    os.close(self._wake_read)
                    os.close(self._wake_write)
                    return
                wanted = set(self._watched)
            for fd in registered - wanted:
                poll.unregister(fd)
            for fd in wanted - registered:
                poll.register(fd, select.POLLIN)
            registered = wanted
            for fd, _ in poll.poll():
                if fd == self._wake_read:
                    os.read(fd, 4096)
                    continue
                with self._mutex:
                    ready = self._watched.get(fd)
                if ready is not None:
                    ready()
