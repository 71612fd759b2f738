"""The shim for blocking code and threads. Its twin is `aio`; the same names, the same meanings."""

from __future__ import annotations

import os
import select
import time
from _thread import allocate_lock
from _thread import get_ident as current
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, RLock, Thread
from typing import TypeVar

from ..clock import Clock
from ..timer_wheel import Wheel

__all__ = [
    "Alarm",
    "Interrupt",
    "Mutex",
    "Poller",
    "Routine",
    "Signal",
    "Worker",
    "current",
    "enter",
    "finish",
    "here",
]

Result = TypeVar("Result")

AWAKE, REST = 1e-3, 0.05
"""Seconds for which one stays awake for what is expected, and for which one does not do so again."""
LONGEST_SLEEP = 1.0
"""A sleep stands still while the machine is suspended; the boot clock does not. So look."""


Mutex = Lock
"""Held across calls to the store; what is only held across plain code is a `threading.Lock`."""


def enter(mutex: Lock, within: float) -> bool:
    """Take it; False if others have had it for all of these seconds."""
    return mutex.acquire(timeout=max(within, 0.0))


def here() -> object:
    """Where a session belongs: to an event loop there, to the whole process here."""
    return None


class Signal:
    """Something that is set once for each `wait`, from any thread, and remembered until then."""

    # A bare lock that is taken while nothing has happened: `set` lets it go, `wait` takes it again.

    __slots__ = ("_clock", "_lock", "_mutex", "bell", "is_set")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.is_set = False
        self._lock = allocate_lock()
        self._lock.acquire()
        self._mutex = RLock()  # a signal's handler may come back here
        self.bell: Callable[[], None] | None = None
        """Called by `set` instead, while the one who waits here waits for more than this."""

    def set(self) -> None:
        self.is_set = True
        bell = self.bell
        if bell is None:
            self.nudge()
        else:
            bell()

    def nudge(self) -> None:
        """Wake who waits here, without having set it."""
        with self._mutex:
            if self._lock.locked():
                with suppress(RuntimeError):
                    self._lock.release()

    def rehearse(self) -> None:
        """Have ready what `set` and `take` need, in the processor's caches, without doing either."""
        other = Signal(self._clock)
        other.bell = self.bell
        other.set()
        other.take()

    def take(self) -> bool:
        """Whether it was set, which this takes back."""
        was_set, self.is_set = self.is_set, False
        return was_set

    def wait(self, until: float | None) -> bool:
        """True if it was set, which this takes back; False once `until` has come."""
        while True:
            done = self.wait_a_while(until)
            if done is not None:
                return done

    def wait_a_while(self, until: float | None) -> bool | None:
        """As `wait`, or None after a nudge or a while."""
        unsubscribe = self._clock.subscribe(self.nudge)
        try:
            if self.take():
                return True
            left = None if until is None else until - self._clock.now()
            if left is not None and left <= 0:
                return False
            if left is None or unsubscribe is not None:
                self._lock.acquire()
            else:
                self._lock.acquire(True, min(left, LONGEST_SLEEP))
            return True if self.take() else None
        finally:
            if unsubscribe is not None:
                unsubscribe()

    def left(self, until: float | None) -> float:
        """Seconds until then, or until it is time to look at the clock again."""
        if until is None:
            return LONGEST_SLEEP
        return min(until - self._clock.now(), LONGEST_SLEEP)


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
        self._mutex = RLock()
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

    It has no thread of its own. Of those who wait, one *leads*: it polls the descriptors for all,
    and so is woken by its own message without another thread in between. When it has what it waited
    for, it nudges another to lead. While nobody waits, nobody looks.
    """

    def __init__(self, name: str) -> None:
        self._mutex = RLock()
        self._watched: dict[int, Callable[[], object]] = {}
        self._leading = False
        self._leader = 0
        self._followers: dict[Signal, None] = {}
        self._wake_read = self._wake_write = -1
        self._look: Callable[[], bool] | None = None
        self._rested = 0.0
        self._closed = False

    def watch(self, fd: int, ready: Callable[[], object]) -> None:
        with self._mutex:
            if self._closed:
                os.close(fd)
                return
            self._watched[fd] = ready
            self._wake()

    def unwatch(self, fd: int) -> None:
        """Stop watching, and close the descriptor."""
        with self._mutex:
            if self._watched.pop(fd, None) is not None:
                os.close(fd)
                self._wake()

    def expect(self, look: Callable[[], bool]) -> None:
        """`look` will soon find something: stay awake for it, but not for long and not often.

        Called by whoever leads, because a descriptor became readable.
        """
        if time.monotonic() >= self._rested:
            self._look = look

    def attend(self, signal: Signal, until: float | None) -> bool:
        """Wait for the signal, and serve the descriptors meanwhile unless somebody does already."""
        while True:
            lead = False
            try:
                with self._mutex:
                    lead = not (self._leading or self._closed)
                    if lead:
                        self._leading = True
                        self._leader = current()
                        if self._wake_read < 0:
                            self._wake_read, self._wake_write = os.pipe()
                            os.set_blocking(self._wake_write, False)
                    else:
                        self._followers[signal] = None
                done = self._lead(signal, until) if lead else signal.wait_a_while(until)
            finally:
                # Twice, as an interrupt may come at its very entry: somebody has to lead after us.
                try:
                    self._step_down(signal, lead)
                except BaseException:
                    self._step_down(signal, lead)
                    raise
            if done is not None:
                return done

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            for fd in self._watched:
                os.close(fd)
            self._watched.clear()
            self._wake()
            self._close_pipe()

    def _lead(self, signal: Signal, until: float | None) -> bool | None:
        signal.bell = self._ring
        try:
            while True:
                if signal.take():
                    return True
                left = signal.left(until)
                if left <= 0:
                    return False
                poll = select.poll()
                with self._mutex:
                    if self._closed:
                        return None
                    poll.register(self._wake_read, select.POLLIN)
                    for fd in self._watched:
                        poll.register(fd, select.POLLIN)
                for fd, _ in poll.poll(left * 1000 + 1):
                    if fd == self._wake_read:
                        os.read(fd, 4096)
                        continue
                    with self._mutex:
                        ready = self._watched.get(fd)
                    if ready is not None:
                        ready()
                look, self._look = self._look, None
                if look is not None and not signal.is_set:
                    self._stay_awake(signal, look)
        finally:
            signal.bell = None

    def _stay_awake(self, signal: Signal, look: Callable[[], bool]) -> None:
        """To go to sleep and be woken would take longer than what is expected does."""
        until = time.monotonic() + AWAKE
        self._rested = until + REST
        signal.rehearse()
        while not (signal.is_set or look()) and time.monotonic() < until:
            pass

    def _step_down(self, signal: Signal, led: bool) -> None:
        with self._mutex:
            if led:
                if self._leader in (current(), 0):  # and not yet another's
                    self._leading = False
                    self._leader = 0
                    self._close_pipe()
            else:
                self._followers.pop(signal, None)
            heir = None
            if self._followers and not self._leading:
                heir = next(iter(self._followers))
        if heir is not None:
            heir.nudge()

    def _ring(self) -> None:
        if current() != self._leader:  # who has called this itself need not be woken
            with self._mutex:
                self._wake()

    def _wake(self) -> None:
        """Have the leader look again. Under the mutex."""
        if self._leading and self._wake_write >= 0:
            try:
                os.write(self._wake_write, b"\0")
            except BlockingIOError:
                return  # it has been told already

    def _close_pipe(self) -> None:
        if self._closed and not self._leading and self._wake_read >= 0:
            os.close(self._wake_read)
            os.close(self._wake_write)
            self._wake_read = self._wake_write = -1
