"""Forks: the number of them behind this process, by which it knows what an ancestor made.

Python tells of a fork that it makes itself. C code may fork without telling (uWSGI does, by default),
so `current()` compares process ids as well, and a child that was told nothing begins afresh there.

A signal's handler may raise inside a hook of a fork. Python then prints that, drops the rest of the
hook and goes on. So each hook is registered twice, the second time for what the first has left undone;
and what is still left after that is done by `current()`.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import compress, repeat
from operator import methodcaller
from typing import Any, Protocol
from weakref import WeakSet

from .errors import LockError

generation = 0
"""The fork generation: one more in each forked child. An object that was made under another value was
made by an ancestor. As far as Python was told of forks: `current()` knows of all."""


class Survivor(Protocol):
    """An object that starts afresh in a forked child, before anything else runs there."""

    def _after_fork(self) -> None: ...


_survivors: WeakSet[Survivor] = WeakSet()
_mutexes: WeakSet[Any] = WeakSet()
_abandoned: list[object] = []
_in_child_first: list[Callable[[], None]] = []
_pid = os.getpid()
_left: list[Callable[[], None]] = []
"""The steps by which this child begins afresh, as far as they are not done."""
_under_way = False
"""Whether those steps are being done: they may ask for `current()`."""


class HeldLocks(threading.local):
    """The locks that this thread holds for a fork. What is noted is what is held, wherever a signal's
    handler raises: each of the methods does all in one call that runs no Python code."""

    def __init__(self) -> None:
        self.locks: list[threading.RLock] = []

    def take(self, lock: threading.RLock, timeout: float = -1) -> bool:
        """Takes `lock`, once more if it is held; returns False if that took too long."""
        before = len(self.locks)
        self.locks.extend(compress((lock,), map(lock.acquire, (True,), (timeout,))))
        return len(self.locks) > before

    def give_back(self) -> None:
        """Gives back all, the latest first."""
        deque(map(_release, map(self.locks.pop, repeat(-1, len(self.locks)))), 0)


_release = methodcaller("release")


def current() -> int:
    """Returns the fork generation of this process."""
    if os.getpid() != _pid:
        _tell_python()
    if _left:
        _go_on()
    return generation


class Inherited(LockError):
    """Raised in a child that would use what belongs to its parent."""

    def __init__(self) -> None:
        super().__init__("this connection is of the parent process; ask for a new one here")


def refuse_inherited(made_in: int) -> None:
    """Raises `Inherited` in a child of the process that made something under generation `made_in`."""
    if made_in != current():
        raise Inherited


def _tell_python() -> None:
    """Has Python begin afresh in a child that it was not told of: else a thread may never start here.

    C code that forks ought to call this itself, at once. It ends the other threads, so not if there are
    any: those were begun in the child.
    """
    with suppress(ImportError):
        import ctypes

        if _threads() == 1:
            ctypes.pythonapi.PyOS_AfterFork_Child()  # which calls `_in_child`
    if os.getpid() != _pid:
        _in_child()


def _threads() -> int:
    """Returns the number of threads of this process; 0 if the system does not say.

    It keeps the interpreter's lock, which every function of `os` that reads a file would let go of: if
    a thread of the parent was just taking that lock, nobody ends that here, until Python begins afresh.
    """
    import ctypes

    library = ctypes.pythonapi
    text = ctypes.create_string_buffer(4096)
    file = library.open(b"/proc/self/stat", os.O_RDONLY | os.O_CLOEXEC)
    if file < 0:
        return 0
    length = library.read(file, text, len(text))
    library.close(file)
    # The name of the program comes second, in brackets, and may have any character.
    fields = text.raw[: max(length, 0)].rpartition(b")")[2].split()
    return int(fields[17]) if len(fields) > 17 else 0


def in_child(begin_afresh: Callable[[], None]) -> None:
    """Calls `begin_afresh` in every forked child, ahead of the survivors; again if it was
    interrupted."""
    _in_child_first.append(begin_afresh)


def survive(thing: Survivor) -> None:
    """Calls `thing._after_fork()` in every forked child, for as long as `thing` lives; again if it was
    interrupted."""
    _survivors.add(thing)


def mutex() -> threading.RLock:
    """Returns a mutex that no other thread of the parent is inside in a forked child: none runs there.

    A child that goes on in the middle of a call may have to take it.
    """
    made = threading.RLock()
    _mutexes.add(made)
    return made


def _renew_mutexes() -> None:
    for one in list(_mutexes):
        if not one._is_owned():  # else this thread is inside, and comes out by itself
            one._at_fork_reinit()  # as the standard library does with its own


def abandon(thing: object) -> None:
    """Keeps `thing` from being finalized in the child: its connections and threads are the parent's.

    A SQLite connection, above all, must not be closed by a process that did not open it.
    """
    _abandoned.append(thing)
    with suppress(ImportError):
        import ctypes  # only ever in a forked child

        # One reference more than will ever be given back: it outlives the interpreter's own end.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _in_child() -> None:
    global generation, _pid, _under_way
    pid = os.getpid()
    if pid != _pid:
        _left[:] = [*_in_child_first, *(thing._after_fork for thing in list(_survivors))]
        # Nothing is called in between, so no handler runs there.
        _pid = pid
        generation += 1
        _under_way = False  # or else a handler has forked, in the middle of a child's steps
    _go_on()


def _go_on() -> None:
    """Does the steps that are left, unless we are called by one of them."""
    global _under_way
    if _under_way:
        return
    _under_way = True
    try:
        _do_what_is_left()
    finally:
        _under_way = False


def _do_what_is_left() -> None:
    # In a function of its own: see the loops of `Gate`.
    while _left:
        step = _left[0]
        step()
        if _left[:1] == [step]:
            del _left[0]


in_child(_renew_mutexes)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
    os.register_at_fork(after_in_child=_in_child)
