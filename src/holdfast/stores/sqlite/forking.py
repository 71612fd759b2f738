"""Closing of connections before a fork: SQLite allows none to be open across it.

SQLite keeps, for the whole process, a table of the files that it has open and of the locks that it
believes to hold on them. A forked child inherits that table, but not the locks: they belong to the
parent. A *new* connection of the child to the same file would trust the table, take no lock of its
own, and later find the log deleted by a parent that closed as "the last one"; from then on parent
and child would each see a store of their own, and grant the same lock twice.

So before a fork every store closes its connection, with other threads kept out for that moment, and
parent and child both open anew when they need it. The log stays where it is: to write it back would
wait for the disk, while whoever is inside the gate waits for us.

If a store cannot be closed, because the fork is made from inside one of its own steps (by a signal
handler) or a step does not end, then the child may not use that file at all, and gets an error that
says so. So does a child of a fork that Python was not told of, if a store was open then.

Threads fork one after the other. A signal's handler may fork while its own thread is about to; when
that fork is over all threads are let in again, and the thread begins anew to keep them out.

A handler may also raise in any of these hooks, and the fork goes on: see `forks`.
"""

from __future__ import annotations

import os
from threading import RLock
from typing import Protocol
from weakref import WeakSet

from ... import forks
from ...clock import BootClock

# Its hooks have to be registered before ours, so that ours come first before a fork: the gate, then
# the presence, in the same order as a step takes them.
from . import presence as _presence  # noqa: F401

PATIENCE = 5.0
"""Seconds that a fork waits for steps of other threads to end."""


class Forkable(Protocol):
    """A store whose connection can be closed before a fork."""

    path: str

    def is_open(self) -> bool:
        """Returns whether there is a connection, or a thread that may be about to make one."""
        ...

    def is_inside(self) -> bool:
        """Returns whether this very thread is inside a step."""
        ...

    def before_fork(self, deadline: float, held: forks.HeldLocks) -> None:
        """Closes the connection, and keeps threads out by a lock in `held`; if that is possible."""
        ...

    def after_fork_inside(self) -> None:
        """Lets nothing more be done, in a child that was forked inside a step."""
        ...


class _HeldLocks(forks.HeldLocks):
    """The locks that keep other threads out of all stores."""

    complete = False
    """Whether `_before` came to its end, and they are still held."""


_stores: WeakSet[Forkable] = WeakSet()
_turn = RLock()  # held by the thread that forks
_held = _HeldLocks()
unusable: set[str] = set()
"""Paths of stores that were open when this process was forked off."""


def register(store: Forkable) -> None:
    """Has the connection of `store` closed before each fork. Waits for the end of one that goes on: it
    has paused all stores that it knew of."""
    with _turn:
        _stores.add(store)


def _before() -> None:
    _held.complete = False
    _held.take(_turn)
    deadline = BootClock().now() + PATIENCE
    stores = list(_stores)
    # A handler of ours forks inside a step. Other steps on that file may be waiting for ours.
    inside = {store.path for store in stores if store.is_inside()}
    for store in stores:
        if store.path not in inside:
            store.before_fork(deadline, _held)
    _held.complete = _turn in _held.locks


def _before_again() -> None:
    if not _held.complete:
        _before()


def _in_parent() -> None:
    _held.complete = False
    _held.give_back()


def _in_child() -> None:
    # The stores themselves are the parent's, and so are their gates: nothing is to be let go here.
    global _turn
    _turn = RLock()
    for store in list(_stores):
        if store.is_open():
            unusable.add(store.path)
        if store.is_inside():
            store.after_fork_inside()
    _stores.clear()
    _held.locks.clear()
    _held.complete = False


# What is registered last is called first before a fork.
os.register_at_fork(before=_before_again, after_in_parent=_in_parent)
os.register_at_fork(before=_before, after_in_parent=_in_parent)
forks.in_child(_in_child)
