"""The queue before each write transaction: one flock on PATH-live/gate.

Why. SQLite's own way to wait for a write is to try again after a sleep: it wakes late, and it lets
whoever asks most often win. The kernel queues those who wait for an flock and wakes the first one.

It is about order and speed, not about safety: SQLite's own lock is still taken inside. If the gate
fails to exclude (somebody removed the folder while it was in use), writers meet in SQLite's busy
handler, slower and unfairly, and nothing else happens.

How one waits. First for the other threads of this process; then an attempt on the flock, which is
all it costs when it is free; then further attempts for some 100 µs, because a transaction takes
about 30; then blocked in the kernel. A blocked flock cannot be given a time limit and cannot be
called off, and the process inside may be frozen, so it is a helper thread that blocks while the
caller waits for it, up to the deadline. The lock belongs to the open file, whichever thread asked.
When the helper gets it too late it gives it back, unless somebody is waiting by then.

Hence one rule: *while the helper is asking, nobody else asks*. If another thread took the lock by
itself, the helper's request would be granted too, being for the same open file, and its giving
back would open the gate under that thread's feet. `_asking` is set only by a thread that holds
`_mutex`, and cleared by the helper together with its decision; so whoever holds `_mutex` and sees
it clear may ask.

Interrupts. A signal handler may raise after any call. `enter` undoes what it had done by then.
`leave` does nothing if we are not inside, and may be interrupted before its first step, so:

    try:
        gate.enter(deadline)
        ...
    finally:
        try:
            gate.leave()
        except BaseException:
            gate.leave()
            raise

A handler or a finaliser that comes back to the same gate in the same thread, while that thread is
inside, is refused at once; it would wait for itself.

Fork. A child that shared our open file would share our lock, be let in together with us, and keep
the gate shut after our death. Descriptors are closed in the child, which opens its own when it
needs it. A spawned program does not inherit them.
"""

from __future__ import annotations

import _thread
import fcntl
import os
import threading
import weakref
from contextlib import suppress

from ...clock import BootClock
from ...errors import BackendUnavailable

PATIENCE = 10.0

# About 100 µs of attempts; longer only if each of them lets other processes run, as it should when
# there are more of those than processors, and then they are getting on.
_ATTEMPTS = 20
_SPIN = 1e-3
_SLICE = 0.5  # waits are cut up, as a thread's time-out stands still while the machine sleeps
_TRY = fcntl.LOCK_EX | fcntl.LOCK_NB
_OPEN = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC

_now = BootClock().now
_gates: weakref.WeakSet[Gate] = weakref.WeakSet()


class Gate:
    """The gate of the store at `path`. For many threads; used once each by enter() and leave()."""

    def __init__(self, path: str, *, patience: float = PATIENCE) -> None:
        self.file = f"{path}-live/gate"
        self.patience = patience
        self._closed = False
        self._reset()
        try:
            with suppress(FileExistsError):
                os.mkdir(os.path.dirname(self.file))
            self._fd = os.open(self.file, _OPEN, 0o666)
        except OSError as error:
            raise BackendUnavailable(f"cannot open {self.file!r}: {error}") from error
        _gates.add(self)

    def _reset(self) -> None:
        self._fd = -1
        self._inside = 0  # the thread that has _mutex and is at, or through, the gate
        self._mutex = threading.RLock()
        self._state = threading.Lock()  # guards the fields below; never held for long
        self._asking = False  # the helper is about to ask, or blocked
        self._wish: threading.Lock | None = None  # to be released when the helper has the flock
        self._work = threading.Lock()  # released to set the helper to work
        self._work.acquire()
        self._helping = False  # there is a helper thread
        self._failure: OSError | None = None

    def enter(self, deadline: float | None = None) -> None:
        """Wait for our turn, until `deadline` on the boot clock (None: for `patience` seconds).

        BackendUnavailable when the turn did not come; the gate is then not held.
        """
        me = threading.get_ident()
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
            if not self._asking and self._attempt():
                return
            # Loops are in functions of their own: from Python 3.12 on, an interrupt that comes as a
            # loop turns is not caught by a `try` around it in the same function.
            started = _now()
            if self._asking or not self._spin(started):
                self._queue(started, deadline)
        except BaseException:
            if self._inside == me:
                self.leave()
            else:
                with suppress(RuntimeError):  # not ours: interrupted before we had it
                    self._mutex.release()
            raise

    def leave(self) -> None:
        """Let the next one in. Without effect in a thread that is not inside."""
        if self._inside != threading.get_ident():
            return
        try:
            held = True
            if self._asking:
                # We were waiting, and give up. As long as the helper is asking, the flock is not
                # ours to unlock: it may have got it this moment, for the next one who waits.
                with self._state:
                    self._wish = None
                    held = not self._asking
            if held and self._fd >= 0:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        except OSError:
            self._fd = -1  # closed behind our back, and so unlocked
        finally:
            self._inside = 0
            self._mutex.release()
            if self._closed:
                self.close()

    def pause(self, deadline: float) -> bool:
        """Keep the other threads of this process out until `resume`; False if that cannot be had.

        Not the other processes: for a fork, which takes a copy of this one.
        """
        if self._inside == threading.get_ident():
            return False
        return self._mutex.acquire(timeout=max(0.0, deadline - _now()))

    def resume(self) -> None:
        self._mutex.release()

    def close(self) -> None:
        """Let go of the file, now or when the thread inside has left. Safe to call again."""
        # The flag first: whoever has the mutex now will look at it after giving the mutex back.
        self._closed = True
        if self._inside != threading.get_ident() and self._mutex.acquire(blocking=False):
            try:
                self._shut()
            finally:
                self._mutex.release()

    def _attempt(self) -> bool:
        try:
            fcntl.flock(self._fd, _TRY)
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._broken(error) from error
        return True

    def _spin(self, started: float) -> bool:
        for _ in range(_ATTEMPTS):
            os.sched_yield()
            if self._attempt():
                return True
            if _now() > started + _SPIN:
                break
        return False

    def _queue(self, started: float, deadline: float | None) -> None:
        """Have the helper wait in the kernel's queue for us."""
        wish = threading.Lock()
        wish.acquire()
        with self._state:
            self._failure = None
            # A flag and then the call that makes it true, with nothing between them: an interrupt
            # comes only after a call. (Not a threading.Thread, whose start can be interrupted.)
            if not self._helping:
                self._helping = True
                try:
                    _thread.start_new_thread(self._help, ())
                except RuntimeError as error:  # no more threads
                    self._helping = False
                    raise BackendUnavailable(f"cannot wait for {self.file!r}: {error}") from error
            self._wish = wish
            if not self._asking:
                self._asking = True
                self._work.release()
        self._wait(wish, started, deadline)
        if self._failure is not None:
            raise self._broken(self._failure) from self._failure

    def _wait(
        self, lock: threading.Lock | threading.RLock, started: float, deadline: float | None
    ) -> None:
        """Acquire that lock, or raise at the deadline."""
        if deadline is None:
            deadline = started + self.patience
        while True:
            left = deadline - _now()
            if lock.acquire(timeout=max(0.0, min(left, _SLICE))):
                return
            if left <= 0:
                raise BackendUnavailable(
                    f"waited {_now() - started:.1f} s to write to the store, and some process has "
                    f"been inside all that time, perhaps frozen; it holds {self.file!r}"
                )

    def _help(self) -> None:
        """The helper thread: block in the kernel for whoever waits."""
        state, work = self._state, self._work
        while True:
            work.acquire()
            with state:
                going, fd = self._helping, self._fd
            if not going:
                return
            failure = None
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
            except OSError as error:
                failure = error
            with state:
                wish, self._wish = self._wish, None
                if wish is None and failure is None:
                    fcntl.flock(fd, fcntl.LOCK_UN)
                self._asking = False
                self._failure = failure
                if wish is not None:
                    wish.release()
                if not self._helping:
                    os.close(fd)
                    return

    def _shut(self) -> None:
        """Close the file and end the helper, under _mutex. If that one is asking it does both when
        it is through: until then the descriptor's number must not become another file's."""
        fd, self._fd = self._fd, -1
        with self._state:
            helping, self._helping = self._helping, False
            if self._asking:
                return
            if helping:
                self._work.release()
        if fd >= 0:
            os.close(fd)

    def _broken(self, error: OSError) -> BackendUnavailable:
        self._fd = -1  # closed behind our back, perhaps; the next one opens it again
        return BackendUnavailable(f"cannot lock {self.file!r}: {error}")

    def _reopen(self) -> None:
        if self._closed:
            raise BackendUnavailable(f"{self.file!r} was closed")
        try:
            self._fd = os.open(self.file, _OPEN, 0o666)
        except OSError as error:
            raise BackendUnavailable(f"cannot open {self.file!r}: {error}") from error

    def _abandon(self) -> None:
        """Forget, in a forked child, all that was the parent's. Closing does not unlock."""
        fd = self._fd
        self._reset()
        if fd >= 0:
            os.close(fd)


def _after_fork_in_child() -> None:
    for gate in list(_gates):
        gate._abandon()


os.register_at_fork(after_in_child=_after_fork_in_child)
