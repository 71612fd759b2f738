"""The queue before each write transaction: one flock on PATH-live/gate.

Why. SQLite's own way to wait for a write is to try again after a sleep: it wakes late, and the process
that tries most often wins. The kernel queues the waiters for an flock and wakes the first one.

It is about order and speed, not about safety: SQLite's own lock is still taken inside. If the gate
fails to exclude (its folder was removed while it was in use), writers meet in SQLite's busy handler,
slower and unfairly, and nothing else happens.

How a thread waits. First for the other threads of this process; then an attempt on the flock, which is
all it costs when it is free; then further attempts for some 100 µs, because a transaction takes
about 30; then blocked in the kernel. A blocked flock cannot be given a time limit and cannot be
called off, and the process inside may be frozen, so it is a helper thread that blocks while the
caller waits for it, up to the deadline. The lock belongs to the open file, whichever thread locked it.
When the helper gets it too late it unlocks it, unless another thread is waiting by then.

Hence one rule: *while the helper is blocked, no other thread locks*. If another thread took the lock
by itself, the helper's request would be granted too, being for the same open file, and its unlocking
would open the gate while that thread is inside. `_helper_blocked` is set only by a thread that holds
`_mutex`, and cleared by the helper together with its decision; so a thread that holds `_mutex` and sees
it clear may lock.

Interrupts. A signal handler may raise after any call, and those of two signals that came at once raise
one right after the other. `enter` undoes what it had done by then. `leave` does nothing if we are not
inside, and may be interrupted before its first step, by each of the two, so:

    try:
        gate.enter(deadline)
        ...
    finally:
        try:
            try:
                gate.leave()
            finally:
                gate.leave()
        finally:
            gate.leave()

A handler or a finaliser that comes back to the same gate in the same thread, while that thread is
inside, is refused at once; it would wait for itself.

Fork. A child that shared our open file would share our lock, be let in together with us, and keep
the gate shut after our death. Descriptors are closed in the child, which opens its own when it
needs one. A spawned program does not inherit them.
"""

from __future__ import annotations

import _thread
import errno
import fcntl
import os
import threading
import weakref
from contextlib import suppress

from ... import forks
from ...clock import BootClock
from ...errors import BackendUnavailable
from ...interrupts import let_through

# Its hook comes first: it asks which thread is inside, which we forget in a child.
from . import forking as _forking  # noqa: F401
from .lockfiles import Opened, close_last, open_into

PATIENCE = 10.0

# About 100 µs of attempts; longer only if each of them lets other processes run, as it should when
# there are more of those than processors, and then they make progress.
_ATTEMPTS = 20
_SPIN = 1e-3
_SLICE = 0.5  # waits are cut up, as a thread's time-out stands still while the machine sleeps
_TRY = fcntl.LOCK_EX | fcntl.LOCK_NB
_OPEN = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC

_now = BootClock().now
_gates: weakref.WeakSet[Gate] = weakref.WeakSet()


class Gate:
    """The gate of the store at `path`, for many threads. Each `enter` needs a `leave`."""

    def __init__(self, path: str, *, patience: float = PATIENCE) -> None:
        self.file = f"{path}-live/gate"
        self._written = f"{path}-wal"  # changed by whoever was inside
        self.patience = patience
        self._closed = False
        self._reset()
        _gates.add(self)

    def _reset(self) -> None:
        self._fd = (
            -1
        )  # opened by the first thread that enters: a gate that is only made leaves nothing
        self._opened: Opened = []  # what is on its way to _fd
        self._inside = 0  # the thread that has _mutex and is at, or through, the gate
        self._mutex = threading.RLock()
        self._state = threading.Lock()  # guards the fields below; never held for long
        self._helper_blocked = False  # the helper is blocked in the kernel, or about to be
        self._waiter: threading.Lock | None = None  # to be released when the helper has the flock
        self._work = threading.Lock()  # released to set the helper to work
        self._work.acquire()
        self._has_helper = False  # there is a helper thread
        self._failure: Exception | None = None

    def enter(self, deadline: float | None = None) -> None:
        """Waits for our turn, until `deadline` on the boot clock (None: for `patience` seconds).

        Raises BackendUnavailable when the turn did not come; the gate is then not held.
        """
        me, began_in = threading.get_ident(), forks.generation
        if self._inside == me:
            raise BackendUnavailable(
                f"{self.file!r} is already held by this thread: the store was used again, by a "
                "signal handler or a finaliser, in the middle of one of its own steps"
            )
        try:
            if not self._mutex.acquire(blocking=False):
                self._wait(self._mutex, _now(), deadline)
            self._inside = me
            if self._closed or self._fd < 0:
                self._reopen()
            if self._helper_blocked or not self._attempt():
                # Loops are in functions of their own: from Python 3.12 on, an interrupt that comes as a
                # loop turns is not caught by a `try` around it in the same function.
                started = _now()
                if self._helper_blocked or not self._spin(started):
                    self._queue(started, deadline)
            if began_in != forks.generation:
                forks.refuse_inherited(began_in)
        except BaseException:
            try:
                if self._inside != me:
                    self._mutex.release()
            except RuntimeError:
                pass  # not ours: interrupted before we had it
            finally:
                try:
                    self.leave()
                finally:
                    self.leave()
            if began_in != forks.generation:  # it is our parent who enters
                self.close()  # a helper that was begun here may be blocked, with the file
                forks.refuse_inherited(began_in)
            raise

    def leave(self) -> None:
        """Lets the next thread or process in. Without effect in a thread that is not inside."""
        if self._inside != threading.get_ident():
            return
        try:
            held = True
            if self._helper_blocked:
                # We were waiting, and give up. As long as the helper is blocked, the flock is not
                # ours to unlock: the helper may have got it this moment, for the next waiter.
                with self._state:
                    self._waiter = None
                    held = not self._helper_blocked
            if held and self._fd >= 0:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise  # the handler of a signal has raised it
            self._fd = -1  # closed by other code, and so unlocked
        except ValueError as error:
            let_through(error)
            self._fd = -1  # in a child that was forked on the line before
        finally:
            self._inside = 0
            # No `with suppress`: an error of a signal's handler would come before the release.
            try:
                self._mutex.release()
            except RuntimeError as error:
                let_through(error)  # else a child has a mutex of its own, which is free
            if self._closed:
                self.close()

    def is_entered(self) -> bool:
        """Returns whether a thread of this process is at the gate, or through it."""
        return self._inside != 0

    def is_inside(self, thread: int | None = None) -> bool:
        """Returns whether this very thread is, or that one."""
        return self._inside == (threading.get_ident() if thread is None else thread)

    def pause(self, deadline: float, held: forks.HeldLocks) -> bool:
        """Keeps the other threads of this process out by a lock in `held`; returns False if it cannot.

        Other processes are not kept out: this is for a fork, which copies this one.
        """
        if self.is_inside():
            return False
        return held.take(self._mutex, max(0.0, deadline - _now()))

    def close(self) -> None:
        """Closes the file, now or when the thread inside has left. Safe to call again."""
        # The flag first: a thread that has the mutex now reads the flag after it released the mutex.
        self._closed = True
        if self._inside != threading.get_ident() and self._mutex.acquire(blocking=False):
            try:
                self._shut()
            finally:
                self._mutex.release()

    def _attempt(self) -> bool:
        """Locks the file, if that is possible at once."""
        try:
            fcntl.flock(self._fd, _TRY)
        except BlockingIOError as error:
            let_through(error)
            return False
        except OSError as error:
            let_through(error)
            raise self._broken(error) from error
        return True

    def _spin(self, started: float) -> bool:
        """Tries to lock the file for a while."""
        for _ in range(_ATTEMPTS):
            os.sched_yield()
            if self._attempt():
                return True
            if _now() > started + _SPIN:
                break
        return False

    def _queue(self, started: float, deadline: float | None) -> None:
        """Has the helper wait in the kernel's queue for us."""
        waiter = threading.Lock()
        waiter.acquire()
        with self._state:
            self._failure = None
            # A flag and then the call that makes it true, with nothing between them: an interrupt
            # comes only after a call. (Not a threading.Thread, whose start can be interrupted.)
            if not self._has_helper:
                self._has_helper = True
                try:
                    _thread.start_new_thread(self._help, ())
                except RuntimeError as error:  # no more threads
                    self._has_helper = False
                    raise BackendUnavailable(f"cannot wait for {self.file!r}: {error}") from error
            self._waiter = waiter
            if not self._helper_blocked:
                self._helper_blocked = True
                self._work.release()
        self._wait(waiter, started, deadline)
        if self._failure is not None:
            raise self._broken(self._failure) from self._failure

    def _wait(
        self, lock: threading.Lock | threading.RLock, started: float, deadline: float | None
    ) -> None:
        """Acquires `lock`, or raises at the deadline."""
        if deadline is None:
            deadline = started + self.patience
        before, began_in = self._last_write(), forks.generation
        while True:
            if began_in != forks.generation:
                forks.refuse_inherited(began_in)  # nobody lets a child in
            left = deadline - _now()
            if lock.acquire(timeout=max(0.0, min(left, _SLICE))):
                return
            if left <= 0:
                waited = f"waited {_now() - started:.1f} s to write to the store"
                if self._last_write() != before:
                    raise BackendUnavailable(
                        f"{waited}, and did not get a turn: many others write to it, or this machine "
                        "has more to do than it can"
                    )
                raise BackendUnavailable(
                    f"{waited}, and some process has been inside all that time, perhaps frozen; "
                    f"it holds {self.file!r}"
                )

    def _last_write(self) -> int:
        """Returns a number that differs once somebody has written."""
        try:
            return os.stat(self._written).st_mtime_ns
        except OSError as error:
            let_through(error)
            return 0

    def _help(self) -> None:
        """Blocks in the kernel for the thread that waits; runs in the helper thread."""
        state, work = self._state, self._work
        while True:
            work.acquire()
            with state:
                going, fd = self._has_helper, self._fd
            if not going:
                return
            failure: Exception | None = None
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
            except (
                OSError,
                ValueError,
            ) as error:  # no number at all: in a child of the one who waits
                failure = error
            with state:
                waiter, self._waiter = self._waiter, None
                if waiter is None and failure is None:
                    fcntl.flock(fd, fcntl.LOCK_UN)
                self._helper_blocked = False
                self._failure = failure
                if waiter is not None:
                    waiter.release()
                if not self._has_helper:
                    os.close(fd)
                    return

    def _shut(self) -> None:
        """Closes the file and ends the helper, under _mutex. A helper that is blocked does both when it
        gets on: until then the descriptor's number must not become another file's."""
        if self._opened:
            close_last(self._opened)
        fd, self._fd = self._fd, -1
        with self._state:
            has_helper, self._has_helper = self._has_helper, False
            if self._helper_blocked:
                return
            if has_helper:
                self._work.release()
        if fd >= 0:
            os.close(fd)

    def _broken(self, error: Exception) -> BackendUnavailable:
        self._fd = -1  # perhaps closed by other code; the next thread opens it again
        return BackendUnavailable(f"cannot lock {self.file!r}: {error}")

    def _reopen(self) -> None:
        """Opens the file, if the gate was not closed for good."""
        if self._closed:
            raise BackendUnavailable(f"{self.file!r} was closed")
        try:
            if not self._opened:
                with suppress(FileExistsError):
                    os.mkdir(os.path.dirname(self.file))
                open_into(self._opened, self.file, _OPEN)
        except OSError as error:
            let_through(error)
            raise BackendUnavailable(f"cannot open {self.file!r}: {error}") from error
        self._fd = self._opened[0]
        del self._opened[0]  # no call between the two: an interrupt comes only after one

    def _abandon(self) -> None:
        """Forgets, in a forked child, all that is the parent's. Closing does not unlock."""
        if self._opened:
            close_last(self._opened)
        fd, self._fd = self._fd, -1
        try:
            if fd >= 0:
                os.close(fd)
        except OSError:
            pass  # closed by other code
        self._reset()


def _after_fork_in_child() -> None:
    for gate in list(_gates):
        gate._abandon()


forks.in_child(_after_fork_in_child)
