"""The number of forks behind this process, by which it knows what an ancestor made."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Protocol
from weakref import WeakSet

generation = 0
"""The fork generation: one more in each forked child. An object that was made under another value was
made by an ancestor."""


class Survivor(Protocol):
    """An object that starts afresh in a forked child, before anything else runs there."""

    def _after_fork(self) -> None: ...


_survivors: WeakSet[Survivor] = WeakSet()
_abandoned: list[object] = []


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
    global generation
    generation += 1
    for thing in list(_survivors):
        thing._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
