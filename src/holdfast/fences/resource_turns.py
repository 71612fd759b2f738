"""Turns at a resource within one process, for threads and for the tasks of event loops alike.

One who has the turn writes; the others wait in order. The end of a turn hands it to the next, so
nobody polls and nobody is overtaken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Event, Lock
from typing import TYPE_CHECKING, NamedTuple

from .turn_holder import TurnHolder

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

Wake = Callable[[], object]
"""Wakes a waiter; returns False if there is nobody to be woken any more."""


class _Place(NamedTuple):
    """The place of a waiter in the queue for a turn."""

    wake: Wake
    holder: TurnHolder


class ResourceTurns:
    """The turns at any number of resources; a resource that nobody uses is not kept."""

    def __init__(self) -> None:
        self._mutex = Lock()
        self._queues: dict[str, deque[_Place]] = {}
        """The waiters for each resource whose turn is taken."""
        self._holders: dict[str, TurnHolder] = {}

    def begin(self, resource: str) -> None:
        """Waits for the turn, in a thread; raises `ConfigError` if it would wait for itself."""
        woken = Event()
        if self._enrol(resource, woken.set, blocks=True):
            return
        try:
            woken.wait()
        except BaseException:  # interrupted by a signal's handler
            self._withdraw(resource, woken.set)
            raise

    async def begin_in_loop(self, resource: str) -> None:
        """Waits for the turn, in an event loop; raises `ConfigError` if the task has it already."""
        from asyncio import get_running_loop

        waiter = _Waiter(get_running_loop())
        if self._enrol(resource, waiter.wake, blocks=False):
            return
        try:
            await waiter.turn
        except BaseException:
            if not waiter.passed_over:
                self._withdraw(resource, waiter.wake)
            raise

    def end(self, resource: str) -> None:
        while True:
            with self._mutex:
                queue = self._queues[resource]
                if not queue:
                    del self._queues[resource], self._holders[resource]
                    return
                place = queue.popleft()
                self._holders[resource] = place.holder
            if place.wake() is not False:
                return

    def _enrol(self, resource: str, wake: Wake, *, blocks: bool) -> bool:
        """Takes the turn if it is free, and returns True; otherwise a place in the queue."""
        us = TurnHolder.here()
        with self._mutex:
            queue = self._queues.get(resource)
            if queue is None:
                self._queues[resource] = deque()
                self._holders[resource] = us
                return True
            if blocks:
                # A task of this thread that waits ahead of us could not take its turn, either.
                for ahead in (self._holders[resource], *(place.holder for place in queue)):
                    ahead.refuse_to_block(resource)
            else:
                self._holders[resource].refuse_to_await(resource)
            queue.append(_Place(wake, us))
            return False

    def _withdraw(self, resource: str, wake: Wake) -> None:
        """Gives up waiting; if the turn has come meanwhile, hands it on."""
        with self._mutex:
            queue = self._queues[resource]
            for place in queue:
                if place.wake == wake:
                    queue.remove(place)
                    return
        self.end(resource)


class _Waiter:
    """A waiter in an event loop."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self.turn: Future[None] = loop.create_future()
        self.passed_over = False
        """The turn went to the next, since our loop was closed."""

    def wake(self) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._give)
        except RuntimeError:
            self.passed_over = True
        return not self.passed_over

    def _give(self) -> None:
        if not self.turn.done():
            self.turn.set_result(None)
