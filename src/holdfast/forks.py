"""Forks: the number of them behind this process, by which it knows what an ancestor made.

Python tells of a fork that it makes itself. C code may fork without telling (uWSGI does, by default),
so `current()` compares process ids as well, and a child that was told nothing begins afresh there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet

generation = 0
"""The fork generation: one more in each forked child. An object that was made under another value was
made by an ancestor. As far as Python was told of forks: `current()` knows of all."""


class Survivor(Protocol):
    """An object that starts afresh in a forked child, before anything else runs there."""

    def _after_fork(self) -> None: ...


_survivors: WeakSet[Survivor] = WeakSet()
_abandoned: list[object] = []
_in_child_first: list[Callable[[], None]] = []
_pid = os.getpid()


def current() -> int:
    """Returns the fork generation of this process."""
    if os.getpid() != _pid:
        _in_child()
    return generation


def in_child(begin_afresh: Callable[[], None]) -> None:
    """Calls `begin_afresh` in every forked child, ahead of the survivors."""
    _in_child_first.append(begin_afresh)


def survive(thing: Survivor) -> None:
    """Calls `thing._after_fork()` in every forked child, for as long as `thing` lives."""
    _survivors.add(thing)


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
    global generation, _pid
    _pid = os.getpid()
    generation += 1
    for begin_afresh in _in_child_first:
        begin_afresh()
    for thing in list(_survivors):
        thing._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
