"""The users' side of a lease: the objects by which they have it, their acquisitions and their bodies.

Threads share a lease, and their bodies come and go at the same moments. What depends on two of these is
decided under the session's mutex. A finalizer may run in the middle of our own steps, so it takes no
mutex: it changes one thing, in one step, and leaves the rest to the keeper.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any
from weakref import ref

from .._runtime.aio import Interrupt


class Watch(ref[Any]):
    """A watch over an object that users have: a lease, or the exit of a body.

    If that is finalized before the watch is given up, something is called. A method `__del__` would
    run at the end of each one: what a signal's handler raises just then would be lost.
    """

    __slots__ = ("body", "hold")
    hold: Any
    """The hold of the lease, or of several as one."""
    body: Body | None


class Body:
    """A body of `with` that runs under a lease."""

    __slots__ = ("before", "interrupt", "runner")

    def __init__(self, runner: object, interrupt: Interrupt) -> None:
        self.runner = runner
        """The task or thread that has entered it."""
        self.interrupt = interrupt
        """The interruption of its task: the same for all bodies of one task, which end in any order."""
        self.before = interrupt.cancellations()
        """The cancellations that the task had been asked for when it entered it."""


class Usage:
    """The usage of one lease."""

    __slots__ = ("_left", "_mutex", "bodies", "depth", "dropped", "given", "watches")

    def __init__(self, mutex: RLock) -> None:
        self._mutex = mutex
        self.bodies: list[Body] = []
        """The bodies of `with` that run under the lease. To be copied before it is gone through."""
        self.watches: list[Watch] = []
        """The watches over the lease, and over the exits of its bodies. To be copied, too."""
        self.depth = 1
        """The acquisitions that the lease stands for: more than one where the lock is re-entrant."""
        self.given = False
        """Whether the one who asked for the lease has got it. If not, an exception came in between."""
        self.dropped = False
        """Whether the one who acquired the lease never got it, or has left its body without releasing
        it, because of an exception. The keeper frees the lease."""
        self._left = False
        """Whether the last body was left: no other may begin."""

    # Watches.

    def watch(self, hold: object, thing: object, on_drop: Callable[[Watch], None]) -> Watch:
        """Calls `on_drop` when `thing` is finalized, while `hold` is held."""
        watch = Watch(thing, on_drop)
        watch.hold = hold
        watch.body = None
        self.watches.append(watch)
        return watch

    def unwatch(self, thing: object) -> None:
        """Gives up the watch over `thing`."""
        for watch in list(self.watches):
            if watch() is thing:
                self.take_drop(watch)

    def unwatch_leases(self) -> None:
        """Gives up the watches over leases: one that has ended may be dropped. Its bodies still end."""
        self.watches[:] = [watch for watch in list(self.watches) if watch.body is not None]

    def unwatch_lease(self, hold: object) -> None:
        """Gives up the watches over one lease of several that have this usage."""
        self.watches[:] = [watch for watch in list(self.watches) if watch.hold is not hold]

    def take_drop(self, watch: Watch) -> bool:
        """Ends a watch whose object is gone; returns False if it had been given up before."""
        try:
            self.watches.remove(watch)
        except ValueError:
            return False
        return True

    # Bodies.

    def new_body(self, runner: object) -> Body:
        """Returns a body that `runner` enters."""
        for body in list(self.bodies):
            if body.runner is runner:
                return Body(runner, body.interrupt)
        return Body(runner, Interrupt())

    def begin(self, body: Body) -> bool:
        """Notes a body that begins; returns False if it may not: the lease is being released."""
        with self._mutex:
            if self._left or self.dropped:
                return False
            self.bodies.append(body)
            return True

    def end(self, body: Body | None) -> None:
        """Forgets a body that has ended, unless that was done before."""
        if body is None:
            return
        try:
            self.bodies.remove(body)
        except ValueError:
            return  # it has ended before

    def settle(self, body: Body, error: BaseException | None) -> bool:
        """Ends a body; returns whether `error`, which ended it, is the doing of its interruption alone.

        That is for the first of several bodies in one task to say, which may be around the others. A
        generator has a body, too, and may be left before or behind those that began after it.
        """
        if not Interrupt.works:
            self.end(body)
            return False
        alike = [other for other in list(self.bodies) if other.interrupt is body.interrupt]
        self.end(body)
        if alike and alike[0] is not body:
            return False
        return body.interrupt.settle(error, body.before, len(alike) > 1)

    def leave(self, depth: int) -> bool:
        """Notes that a body was left, of an acquisition at `depth`; returns whether it has to release.

        No body begins under the lease after the last one.
        """
        if depth > 1:
            return True
        with self._mutex:
            self._left = not self.bodies
            return self._left

    # Acquisitions.

    def give_one_back(self) -> bool:
        """Counts one acquisition less; returns False if there is one only, and the lease is to end."""
        with self._mutex:
            if self.depth == 1:
                return False
            self.depth -= 1
            return True

    def abandon(self, depth: int) -> bool:
        """Gives up one acquisition whose body is over: `depth` was the depth when that was left.

        Returns whether the lease is to be freed. Called where an object is finalized.
        """
        if self.depth < depth:
            return False  # it has been released
        if depth > 1:
            self.depth -= 1
        elif not self.bodies:
            self.dropped = True
        return self.dropped

    def confirm_dropped(self) -> bool:
        """Confirms that the lease was dropped, unless somebody has come to use it since."""
        if self.dropped:
            with self._mutex:
                if self.bodies or self.give_one_back():
                    self.dropped = False
        return self.dropped
